"""The connection: which daemon it trusts, what it resends, and how it starts a daemon."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.event_bodies import Tiller
from support.fake_daemon import FakeDaemon, Refusal, program
from support.terminal import TILLER
from tiller_client.connecting import connection as connection_module
from tiller_client.connecting import daemons as daemons_module
from tiller_client.connecting import starting
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.daemons import LocalDaemon
from tiller_client.connecting.runtime import lock_is_held
from tiller_client.connecting.silence import waits_for
from tiller_client.errors import NoAnswer, NoDaemon, NotPrivate, RejectedError, StartFailed
from tiller_protocol.answers import Created, DaemonStatusResult
from tiller_protocol.ops import DaemonStatus, Hello, SessionCreate
from tiller_protocol.places import TOKEN_FILE, Places
from tiller_protocol.worktrees import (
    WorktreeChoice,
    WorktreeLand,
    WorktreeList,
    WorktreeRemove,
    WorktreeRestore,
)


def connect(places: Places) -> DaemonConnection:
    return DaemonConnection(places, "test", may_start=False)


def test_hello_says_who_answers_and_comes_first(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon, connect(places) as connection:
        assert (connection.hello.daemon_version, connection.hello.log_id) == ("0.0.fake", "log-1")
        connection.ask(DaemonStatus(), DaemonStatusResult)
    assert [type(op) for op in daemon.seen.values()] == [Hello, DaemonStatus]
    assert set(daemon.clients) == {"test"}


def test_no_daemon_is_a_sentence_that_says_how_to_start_one(places: Places) -> None:
    with pytest.raises(NoDaemon, match="tiller daemon start"):
        connect(places)


def test_another_version_is_a_sentence_that_says_what_to_do(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.refusals[Hello] = Refusal("unsupported_protocol", "no")
        with pytest.raises(RejectedError, match="tiller daemon restart"):
            connect(places)


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
@pytest.mark.promise("G14")
def test_a_runtime_directory_that_others_can_reach_is_not_used(places: Places, mode: int) -> None:
    with FakeDaemon(places.runtime):
        places.runtime.chmod(mode)
        with pytest.raises(NotPrivate, match="chmod 700"):
            connect(places)
        places.runtime.chmod(0o700)


@pytest.mark.promise("G14")
def test_a_token_that_others_can_read_or_that_is_a_link_is_not_used(places: Places) -> None:
    with FakeDaemon(places.runtime):
        token = places.runtime / TOKEN_FILE
        token.chmod(0o640)
        with pytest.raises(NotPrivate, match="other users can read"):
            connect(places)
        token.rename(places.runtime / "elsewhere")
        token.symlink_to(places.runtime / "elsewhere")
        with pytest.raises(NotPrivate, match="can't be read"):
            connect(places)


@pytest.mark.promise("G14")
def test_a_runtime_directory_that_is_a_link_is_not_used(places: Places) -> None:
    real = places.runtime.with_name("real")
    with FakeDaemon(real):
        places.runtime.symlink_to(real)
        with pytest.raises(NotPrivate, match="not a directory"):
            connect(places)


@pytest.mark.parametrize("replacements", [1, 2, 5, 500])
def test_a_daemon_that_is_replaced_again_and_again_while_it_is_greeted_is_found(
    places: Places, replacements: int
) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.replacements = replacements
        with DaemonConnection(places, "test", may_start=False) as connection:
            daemon.replacements = replacements
            assert connection.submit(DaemonStatus())


def test_a_token_that_stays_wrong_is_an_error(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.token = "another"
        with pytest.raises(RejectedError, match="The token is wrong"):
            DaemonConnection(places, "test", may_start=False)


@pytest.mark.promise("G3")
def test_a_restarted_daemon_gets_the_same_submission_with_its_own_token(places: Places) -> None:
    with FakeDaemon(places.runtime, token="old"):
        connection = connect(places)
    with connection, FakeDaemon(places.runtime, token="new", log_id="log-2") as second:
        created = connection.ask(SessionCreate("/w"), Created)
        assert created.session_id in second.sessions
        assert connection.hello.log_id == "log-2"


@pytest.mark.promise("G3")
def test_an_op_without_an_answer_is_sent_again_under_its_own_id(
    places: Places, fake_module: Path
) -> None:
    """The first daemon receives the op and dies before it answers; another frontend starts one."""
    assert fake_module.exists()
    with FakeDaemon(places.runtime) as first:
        connection = DaemonConnection(places, "test")
        first.mute.set()
        asked = threading.Thread(target=connection.ask, args=(SessionCreate("/w"), Created))
        asked.start()
        assert first.created.wait(10)
    with FakeDaemon(places.runtime) as second:
        asked.join(10)
        assert not asked.is_alive()
        assert submissions(second) == submissions(first)
    connection.close()


def submissions(daemon: FakeDaemon) -> list[str]:
    """The submission ids that created sessions."""
    return [name for name, op in daemon.seen.items() if isinstance(op, SessionCreate)]


def test_a_daemon_that_is_found_dead_is_started_again(
    places: Places, fake_module: Path, tiller: Tiller
) -> None:
    fake_module.write_text(program("log-2"))
    with FakeDaemon(places.runtime, token="old"):
        connection = DaemonConnection(places, "test")
    with connection:
        connection.ask(SessionCreate("/w"), Created)
        assert connection.hello.log_id == "log-2"
    assert tiller("daemon", "stop")[0] == 0
    starting.wait_for_daemons(places)


def test_a_daemon_that_is_found_dead_is_reported_where_none_may_be_started(places: Places) -> None:
    with FakeDaemon(places.runtime):
        connection = connect(places)
    with connection, pytest.raises(NoDaemon):
        connection.submit(DaemonStatus())


@pytest.mark.nightly
def test_a_daemon_that_does_not_answer_is_not_waited_for_for_ever(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "ANSWER_DEADLINE_S", 0.4)
    with FakeDaemon(places.runtime) as daemon, connect(places) as connection:
        daemon.mute.set()
        with pytest.raises(NoAnswer, match="tiller daemon logs"):
            connection.submit(DaemonStatus())


def test_a_daemon_that_starts_is_waited_for_and_no_second_one_is_started(
    places: Places, fake_module: Path
) -> None:
    """It listens only after the frontend has tried in vain."""
    assert fake_module.exists()
    winner = FakeDaemon(places.runtime)
    winner.take_lock()
    attempts = 0

    def is_connected() -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            winner.listen()
            connect(places).close()
        return attempts >= 3

    LocalDaemon(places, os.environ).reach(is_connected, may_start=True)
    winner.__exit__()
    assert not [start for start in starting._starts if start.places == places]


def test_a_daemon_that_holds_its_lock_and_never_listens_is_reported(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons_module, "CONNECT_DEADLINE_S", 0.05)
    starting_daemon = FakeDaemon(places.runtime)
    starting_daemon.take_lock()
    with pytest.raises(NoAnswer, match="have accepted no connection"):
        DaemonConnection(places, "test")
    starting_daemon.listen()
    starting_daemon.__exit__()


def test_a_daemon_is_started_when_none_lives(
    places: Places, fake_module: Path, tiller: Tiller
) -> None:
    fake_module.write_text(program())
    assert not lock_is_held(places.runtime)
    with DaemonConnection(places, "test") as connection:
        assert connection.hello.daemon_version == "0.0.fake"
        process = starting._starts[-1].process
        assert lock_is_held(places.runtime)
    assert tiller("daemon", "stop")[0] == 0
    assert process.wait(10) == 0
    assert not lock_is_held(places.runtime)


def test_a_daemon_that_ends_at_once_is_reported_with_its_last_words(
    places: Places, fake_module: Path
) -> None:
    fake_module.write_text("raise SystemExit('tillerd: config.toml, line 3: no such key')")
    with pytest.raises(StartFailed, match="line 3: no such key"):
        DaemonConnection(places, "test")


def test_only_what_this_start_printed_is_reported(places: Places, fake_module: Path) -> None:
    """The texts differ in length: Python reuses bytecode if size and second are the same."""
    fake_module.write_text("raise SystemExit('the old reason')")
    with pytest.raises(StartFailed):
        DaemonConnection(places, "test")
    fake_module.write_text("raise SystemExit('the other reason')")
    with pytest.raises(StartFailed) as raised:
        DaemonConnection(places, "test")
    assert "the old reason" not in str(raised.value)


def test_a_daemon_that_comes_up_too_slowly_is_reported(
    places: Places, fake_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "START_DEADLINE_S", 0.5)
    fake_module.write_text("print('reading the log', flush=True)\nraise SystemExit(0)")
    with pytest.raises(StartFailed, match="reading the log"):
        DaemonConnection(places, "test")


def test_the_loser_of_a_race_to_start_finds_the_winner(places: Places, fake_module: Path) -> None:
    """Its own daemon exits with status 0 at once; another one starts a little later."""
    fake_module.write_text("raise SystemExit(0)")
    winner = FakeDaemon(places.runtime)
    timer = threading.Timer(0.3, winner.__enter__)
    timer.start()
    with DaemonConnection(places, "test") as connection:
        assert connection.hello.daemon_version == "0.0.fake"
    timer.join()
    winner.__exit__()


def test_a_folder_named_like_the_daemon_in_the_workspace_is_not_run(tmp_path: Path) -> None:
    hostile = tmp_path / "tiller_daemon"
    hostile.mkdir()
    (hostile / "__init__.py").touch()
    (hostile / "__main__.py").write_text("print('owned')")
    done = subprocess.run(
        [*starting.DAEMON_COMMAND, "--version"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
    )
    assert sys.executable == starting.DAEMON_COMMAND[0]
    assert "owned" not in done.stdout


def test_who_waits_for_a_worktree_is_told_that_and_not_that_the_daemon_may_hang(
    places: Places,
) -> None:
    kinds = WorktreeLand, WorktreeRemove, WorktreeRestore
    apart, plain = (SessionCreate("/w", worktree=one) for one in (WorktreeChoice("a"), None))
    for op in (apart, WorktreeList(), *(kind("a") for kind in kinds)):
        assert "the worktree" in waits_for(op, places, "tiller")
    assert "daemon restart" in waits_for(plain, places, "tiller")


def test_a_search_for_a_model_is_said_at_once_and_any_other_wait_is_not(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon:
        for searches in (True, False):
            daemon.searches_model = searches
            daemon.quick.clear()
            process = subprocess.Popen([*TILLER, "new"], stderr=subprocess.PIPE, text=True)
            assert process.stderr
            line = process.stderr.readline()
            daemon.quick.set()
            process.communicate()
            said = "looking for a model server" if searches else "has not answered for 3 s"
            assert said in line
            assert process.returncode == 0
