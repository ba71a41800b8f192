"""What `last` and parts of ids mean, and that verbs say what they changed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from support.event_bodies import Tiller, ended, started, text_item
from support.fake_daemon import TURN, FakeDaemon
from support.terminal import Terminal
from tiller_client.command_line import choose
from tiller_client.errors import UsageError
from tiller_protocol.events import (
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    SessionArchived,
    SessionCreated,
    SessionTitled,
    StatusChanged,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import QueuedInput, UserMessage
from tiller_protocol.ops import QueueEdit, Revert, SessionArchive, SessionDelete, TurnContinue
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

HERE = "01K0AAAAAAAAAAAAAAAAAAHERE"
ELSEWHERE = "01K0BBBBBBBBBBBBBBBBBWHERE"
"""The newer one."""
FORK = "01K0CCCCCCCCCCCCCCCCCCFORK"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "shop" / "source"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    return place.parent


@pytest.fixture
def daemon(places: Places, repository: Path) -> Iterator[FakeDaemon]:
    """A daemon with a session of the repository, and a newer one of another directory."""
    message = UserMessage(ItemId("i0"), "Repair the\ntill", "start")
    bodies = [
        SessionCreated(str(repository), Settings()),
        SessionTitled("Repairs"),
        started(),
        ItemStarted(message),
        ItemCompleted(message),
        *text_item("i1", "Done."),
        QueueChanged((QueuedInput("01K0QUEUED000000000000ONE1", "and then", "queue"),)),
        ended("Done."),
        StatusChanged("idle"),
    ]
    with FakeDaemon(places.runtime) as fake:
        fake.add(HERE, bodies)
        fake.add(ELSEWHERE, [SessionCreated("/work/other", Settings()), SessionTitled("Tea")])
        yield fake


def test_last_is_the_most_recently_active_session_of_the_nearest_directory(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    status, out, err = tiller("show")
    assert (status, err) == (0, "")
    assert "Repairs" in out


def test_the_name_of_a_worktree_means_the_latest_session_there(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    places = [("1ONE", "/work/a", "fix"), ("2TWO", "/work/a", "fix"), ("3ELS", "/work/b", "WHERE")]
    for end, place, worktree in places:
        created = SessionCreated(place, Settings(), worktree=worktree)
        daemon.add(f"01K0{end:0>22}", [created, SessionTitled(f"Title {end}")])
    assert "Title 2TWO" in tiller("show", "fix")[1]
    assert "Tea" in tiller("show", "WHERE")[1]  # the end of an id goes first
    daemon.add(FORK, [SessionCreated("/work/c", Settings(), worktree="fix")])
    status, out, err = tiller("show", "fix")
    assert (status, out) == (2, "")
    assert "'fix' names several worktrees; give an id: session " in err
    assert "session CCCCFORK in /work/c" in err


def test_without_a_session_here_showing_takes_the_newest_and_says_which(
    daemon: FakeDaemon, tiller: Tiller, tmp_path: Path
) -> None:
    os.chdir(tmp_path)
    status, out, err = tiller("show", "last")
    assert status == 0
    assert "Tea" in out
    assert "this directory has no session" in err
    assert f"session {ELSEWHERE[-8:]} “Tea” in /work/other" in err


@pytest.mark.parametrize(
    "verb",
    [
        ("revert", "last"),
        ("unrevert", "last"),
        ("compact", "last"),
        ("archive", "last"),
        ("rm", "--yes", "last"),
        ("fork", "last"),
        ("send", "last", "x"),
        ("steer", "last", "x"),
        ("interrupt", "last"),
        ("queue", "last", "--remove", "ONE1"),
        ("shell", "last", "ls"),
        ("exec", "--session", "last", "x"),
    ],
    ids=" ".join,
)
def test_without_a_session_here_nothing_is_changed_elsewhere(
    daemon: FakeDaemon, tiller: Tiller, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    os.chdir(tmp_path)
    status, out, err = tiller(*verb)
    submitted = [type(op).__name__ for op in daemon.seen.values()]
    assert (status, out) == (2, "")
    assert f"“Tea” in /work/other; to use it, give its id: {ELSEWHERE[-8:]}" in err
    assert set(submitted) == {"Hello", "SessionList"}


def test_last_without_any_session_says_how_to_begin(places: Places, tiller: Tiller) -> None:
    with FakeDaemon(places.runtime):
        status, _, err = tiller("show", "last")
    assert status == 2
    assert "tiller exec" in err


def test_every_change_names_what_it_changed(daemon: FakeDaemon, tiller: Tiller) -> None:
    name = f"session {HERE[-8:]} “Repairs” in "
    assert f"archived {name}" in tiller("archive", "last")[1]
    assert f"took {name}" in tiller("archive", "--undo", HERE)[1]
    assert f"undid the last revert of {name}" in tiller("unrevert", "last")[1]
    out = tiller("revert", "last")[1]
    assert f"went back to the point before turn {TURN} “Repair the till” of {name}" in out
    assert tiller("queue", "last", "--remove", "one1")[1].startswith("dropped 01K0QUEUED")
    status, out, err = tiller("interrupt", "last")
    assert (status, out) == (0, f"interrupted {HERE}\n")
    assert f"1 input waits; continue with: tiller resume {HERE}" in " ".join(err.split())
    assert f"deleted {name}" in tiller("rm", "--yes", "last")[1]
    ops = {type(op): op for op in daemon.seen.values()}
    assert ops[Revert] == Revert(HERE, TURN)
    assert ops[QueueEdit] == QueueEdit(HERE, "01K0QUEUED000000000000ONE1", "remove")


def test_undoing_an_archive_takes_the_last_one_that_is_archived(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    daemon.add(ELSEWHERE, [SessionArchived(archived=True)])
    status, _, err = tiller("archive", "--undo", "last")
    assert status == 2
    of_all = f"the most recently active of all is session {ELSEWHERE[-8:]}"
    assert f"this directory has no archived session; {of_all}" in err
    assert SessionArchive not in map(type, daemon.seen.values())


def deleted(daemon: FakeDaemon) -> list[str]:
    return [op.session_id for op in daemon.seen.values() if isinstance(op, SessionDelete)]


def test_rm_deletes_several_sessions_and_goes_on_after_one_that_must_stay(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    daemon.add(FORK, [SessionCreated("/work/fork", Settings(), HERE)])
    status, out, err = tiller("rm", HERE, "--yes", ELSEWHERE, HERE)
    assert status == 1
    assert f"session {HERE[-8:]} “Repairs” in" in err
    assert "was not deleted: Delete the forks first." in err
    assert out.startswith(f"deleted session {ELSEWHERE[-8:]}")
    assert tiller("rm", HERE, FORK, "--yes")[0] == 0
    assert deleted(daemon) == [ELSEWHERE, HERE, FORK, HERE]


def test_rm_of_old_sessions_shows_them_first_and_deletes_only_those(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    daemon.sessions = {
        one: [replace(event, time=event.time - 31 * 24 * 3600) for event in events]
        for one, events in daemon.sessions.items()
    }
    daemon.sessions[ELSEWHERE] += [
        replace(event, body=SessionArchived(archived=True), seq=event.seq + 1)
        for event in daemon.sessions[ELSEWHERE][-1:]
    ]
    daemon.add(FORK, [SessionCreated("/work/new", Settings())])
    status, out, err = tiller("rm", "--older-than", "30d")
    assert (status, "add --yes" in err, deleted(daemon)) == (2, True, [])
    assert (HERE[-8:] in out, ELSEWHERE[-8:] in out, FORK[-8:] in out) == (True, True, False)
    assert tiller("rm", "--older-than", "30d", "--yes")[0] == 0
    assert sorted(deleted(daemon)) == [HERE, ELSEWHERE]
    assert tiller("rm", "--older-than", "30d", "--yes") == (0, "no session is that old\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name either sessions or their age: SESSION… or --older-than 30d"),
        ((HERE, "--older-than", "3d"), "name either sessions or their age"),
        (("--older-than", "30"), "'30' is no age; give a number of days, such as 30d"),
    ],
)
def test_rm_says_how_to_choose_sessions(tiller: Tiller, words: tuple[str, ...], said: str) -> None:
    status, _, err = tiller("rm", *words)
    assert (status, said in err) == (2, True), err


@pytest.mark.nightly
def test_resume_without_a_session_lets_the_user_choose_one_of_this_directory(
    daemon: FakeDaemon, tiller: Tiller
) -> None:
    status, _, err = tiller("resume")
    assert (status, "name the session: tiller resume SESSION" in err) == (2, True)
    done = SessionCreated(str(Path.cwd()), Settings())
    daemon.add(FORK, [done, SessionTitled("Nothing is left")])
    terminal = Terminal("resume", columns=100)
    terminal.wait_for("1 to 1 [1]")
    assert "Repairs" in terminal.screen
    assert not {"Tea", "Nothing"} & {*terminal.screen.split()}
    terminal.type("7")
    terminal.wait_for("'7' is none of them; type a number from 1 to 1")
    terminal.type("")
    terminal.end()
    (op,) = [op for op in daemon.seen.values() if isinstance(op, TurnContinue)]
    assert op.session_id == HERE


def test_rm_asks_on_a_terminal_and_refuses_without_one(
    daemon: FakeDaemon, tiller: Tiller, repository: Path
) -> None:
    status, _, err = tiller("rm", HERE)
    assert status == 2
    assert "add --yes" in err
    terminal = Terminal("rm", HERE)
    terminal.wait_for("[y/N]")
    assert f"Repairs” in {repository}, with 1 turn, for good?" in " ".join(terminal.screen.split())
    terminal.type("n")
    assert terminal.end() == 1
    assert SessionDelete not in map(type, daemon.seen.values())
    terminal = Terminal("rm", HERE)
    terminal.wait_for("[y/N]")
    terminal.type("y")
    assert terminal.end() == 0
    assert SessionDelete in map(type, daemon.seen.values())


def test_a_turn_is_named_by_its_number_or_by_a_piece_of_its_id() -> None:
    turns = ["01K0AAAAAAAAAAAAAAAAAAAAAA", "01K0BBBBBBBBBBBBBBBBBBBBBB"]
    assert [choose.turn_id(turns, one) for one in ("1", "2", "last", "BBBB")] == [
        turns[0], turns[1], turns[1], turns[1],
    ]  # fmt: skip
    with pytest.raises(UsageError):
        choose.turn_id(turns, "3")
