"""`tiller` as a process: on a terminal, stopped and continued, and with a daemon that dies."""

import json
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from msgspec import structs

from support.event_bodies import Tiller, ended, started, text_item
from support.fake_daemon import TURN, FakeDaemon
from support.installation import make_installation
from support.terminal import TILLER, TIMEOUT_S, Terminal
from tiller_protocol.events import (
    ItemCompleted,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    SessionCreated,
    SessionTitled,
    StatusChanged,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import Decision, Request, ToolCall
from tiller_protocol.ops import Answer, Interrupt, UserInput
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
REQUEST = Request(
    "01K0REQ00000000000000000R1", "approval", "Run \x1b[2Jls", subjects=("\x1b[2Jls",)
)


def asks(daemon: FakeDaemon, session_id: str) -> None:
    daemon.add(session_id, [started(), RequestOpened(REQUEST)])
    assert daemon.wait_for_answer(TIMEOUT_S)
    daemon.add(session_id, [*text_item("i1", "Thanks."), ended("Thanks.")])


@pytest.mark.parametrize(
    ("typed", "decision", "text"),
    [(["y"], "once", ""), (["what", "a"], "always", ""), (["n", "not now"], "reject", "not now")],
)
def test_an_approval_is_asked_in_place_and_the_typed_line_answers_it(
    places: Places, typed: list[str], decision: Decision, text: str
) -> None:
    with FakeDaemon(places.runtime, asks) as daemon:
        terminal = Terminal("exec", "x")
        terminal.wait_for("y once · a always · n reject")
        for line in typed[:-1]:
            terminal.type(line)
            terminal.wait_for("why not?" if decision == "reject" else "type y, a or n")
        terminal.type(typed[-1])
        assert terminal.end() == 0
    assert daemon.answers[REQUEST.id] == Answer(REQUEST.id, decision, text)
    assert "Thanks." in terminal.screen
    assert "\x1b[2J" not in terminal.screen
    assert "␛[2Jls" in terminal.screen


@pytest.mark.parametrize("typed", ["h", "always here"])
def test_what_can_be_allowed_for_good_says_where_and_takes_a_word_more(
    places: Places, typed: str
) -> None:
    request = structs.replace(
        REQUEST, permission="bash", always=("ls *",), always_here="/home/me/pro\x1b[2Jject"
    )

    def asks_that(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), RequestOpened(request)])
        assert daemon.wait_for_answer(TIMEOUT_S)
        resolved = RequestResolved(request.id, "always_here", "tiller exec")
        daemon.add(session_id, [resolved, ended()])

    with FakeDaemon(places.runtime, asks_that) as daemon:
        terminal = Terminal("exec", "x")
        terminal.wait_for("y once · a always · h always here · n reject")
        terminal.type("what")
        terminal.wait_for("type y, a, h or n")
        terminal.type(typed)
        assert terminal.end() == 0
    assert daemon.answers[request.id] == Answer(request.id, "always_here")
    assert "“always” allows bash: ls *" in terminal.screen
    assert "“always here” allows it in every session of /home/me/pro␛[2Jject" in terminal.screen
    assert "✓ allowed always here by tiller exec" in terminal.screen


@pytest.mark.parametrize(("typed", "text"), [("2", "blanks"), ("n", "n"), ("four", "four")])
def test_a_question_shows_its_choices_and_takes_a_number_or_any_text(
    places: Places, typed: str, text: str
) -> None:
    question = Request(
        "01K0REQ00000000000000000R1", "question", "Tabs?", choices=("tabs", "blanks")
    )

    def asks_that(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), RequestOpened(question)])
        assert daemon.wait_for_answer(TIMEOUT_S)
        daemon.add(session_id, [ended()])

    with FakeDaemon(places.runtime, asks_that) as daemon:
        terminal = Terminal("exec", "x")
        terminal.wait_for("number or text »")
        assert "2. blanks" in terminal.screen
        terminal.type(typed)
        assert terminal.end() == 0
    assert daemon.answers[question.id] == Answer(question.id, "answer", text)


def test_a_choice_that_there_is_not_is_asked_again(places: Places) -> None:
    question = Request(
        "01K0REQ00000000000000000R1", "question", "Tabs?", choices=("tabs", "blanks")
    )

    def asks_that(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), RequestOpened(question)])
        assert daemon.wait_for_answer(TIMEOUT_S)
        daemon.add(session_id, [ended()])

    with FakeDaemon(places.runtime, asks_that) as daemon:
        terminal = Terminal("exec", "x")
        terminal.wait_for("number or text »")
        for wrong in ("3", "0"):
            terminal.type(wrong)
            seen = terminal.wait_for("type a number from 1 to 2, or text")
            terminal.screen = terminal.screen[seen:]
        terminal.type("2")
        assert terminal.end() == 0
    assert daemon.answers[question.id] == Answer(question.id, "answer", "blanks")


def test_what_was_typed_before_a_request_stood_on_the_screen_is_not_its_answer(
    places: Places,
) -> None:
    """A double `y` allows one request; the second one is not sent as steering."""
    second = Request("01K0REQ00000000000000000R2", "approval", "Run rm -r /", subjects=("rm -r /",))

    def asks_twice(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), RequestOpened(REQUEST)])
        assert daemon.wait_for_answer(TIMEOUT_S)
        daemon.add(session_id, [RequestOpened(second)])
        assert daemon.wait_for_answer(TIMEOUT_S)
        daemon.add(session_id, [ended()])

    with FakeDaemon(places.runtime, asks_twice) as daemon:
        terminal = Terminal("exec", "x")
        terminal.wait_for("y once · a always · n reject")
        terminal.type("y\ny")
        terminal.wait_for("'y' was not sent")
        terminal.wait_for("rm -r /")
        terminal.screen = terminal.screen.rpartition("rm -r /")[2]
        terminal.wait_for("y once · a always · n reject")
        terminal.type("n never")
        assert terminal.end() == 0
    assert daemon.answers[REQUEST.id].decision == "once"
    assert daemon.answers[second.id] == Answer(second.id, "reject", "never")
    assert len([op for op in daemon.seen.values() if isinstance(op, UserInput)]) == 1


def test_a_line_typed_while_a_turn_runs_goes_to_it(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), *text_item("i", "Hm.")])
        terminal = Terminal("attach", SESSION)
        terminal.wait_for("Hm.")
        assert "Ctrl-C leaves" not in terminal.screen, "a turn runs"
        terminal.type("look at b.py instead")
        assert daemon.started.wait(TIMEOUT_S)
        daemon.add(SESSION, [ended()])
        terminal.wait_for("type the next task · Ctrl-C leaves »")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
    sent = [op for op in daemon.seen.values() if isinstance(op, UserInput)]
    assert sent == [UserInput(SESSION, "look at b.py instead")]
    assert not [op for op in daemon.seen.values() if isinstance(op, Interrupt)]


def test_a_window_that_is_made_narrower_gets_narrower_lines(places: Places) -> None:
    call = ToolCall(ItemId("i"), CallId("c"), "bash", "{}", "pending", title="x" * 300)
    done = structs.replace(call, state="completed")
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), ItemStarted(call)])
        terminal = Terminal("attach", SESSION)
        terminal.resize(60)
        terminal.wait_for("/w")
        terminal.resize(30)
        daemon.add(SESSION, [ItemCompleted(done), ended()])
        terminal.wait_for("Ctrl-C")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
    (line,) = [line for line in terminal.screen.splitlines() if "xxx" in line]
    assert line.count("x") < 30


def test_text_is_broken_between_words_on_a_terminal_and_only_there(
    places: Places, tiller: Tiller
) -> None:
    said = "the quick brown fox jumps over the lazy dog and rests a while"
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started()])
        terminal = Terminal("attach", SESSION)
        terminal.resize(30)
        terminal.wait_for("/w")
        daemon.add(SESSION, [*text_item("i1", said[:12], said[12:]), ended(said)])
        terminal.wait_for("Ctrl-C")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        piped = tiller("log", SESSION)[1]
    assert (
        "the quick brown fox jumps\r\nover the lazy dog and rests a\r\nwhile\r\n" in terminal.screen
    )
    assert f"\n{said}\n" in piped


def test_no_color_is_respected_on_a_terminal(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *text_item("i1", "Hi."), ended("Hi.")])

    with FakeDaemon(places.runtime, play):
        coloured = Terminal("exec", "x")
        assert coloured.end() == 0
        monkeypatch.setenv("NO_COLOR", "1")
        plain = Terminal("exec", "x")
        assert plain.end() == 0
    assert "\x1b[32m" in coloured.screen
    assert "\x1b[3" not in plain.screen


@pytest.mark.promise("B53")
def test_a_client_that_was_stopped_for_a_while_misses_nothing(places: Places) -> None:
    """Meanwhile more events arrive than the socket buffers."""
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started()])
        command = [*TILLER, "attach", "--json", "--until-idle", SESSION]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            first = [process.stdout.readline(), process.stdout.readline()]
            process.send_signal(signal.SIGSTOP)
            for number in range(4000):
                daemon.add(SESSION, text_item(f"i{number}", "x"))
            daemon.add(SESSION, [ended("x"), StatusChanged("idle")])
            process.send_signal(signal.SIGCONT)
            lines = first + process.stdout.readlines()
    assert process.returncode == 0
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 12_005))


def interrupted_after(daemon: FakeDaemon, session_id: str) -> None:
    """A turn with a last message after an interrupt."""
    daemon.add(session_id, [started()])
    assert daemon.interrupted.wait(TIMEOUT_S)
    daemon.add(session_id, [*text_item("i1", "So far."), ended("So far.", "interrupted")])


@pytest.mark.parametrize("json", [False, True])
def test_ctrl_c_that_ends_a_tee_as_well_still_interrupts_and_shows_what_was_said(
    places: Places, *, json: bool
) -> None:
    """`tiller exec … | tee log`: both get the signal, so the pipe has lost its reader."""
    with FakeDaemon(places.runtime, interrupted_after) as daemon:
        command = [*TILLER, "exec", "look", *(["--json"] if json else [])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        shown = process.stdout if json else process.stderr
        while b"demo/m" not in shown.readline():
            pass
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        err = process.stderr.read().decode()
        status = process.wait(TIMEOUT_S)
        process.stderr.close()
        assert daemon.interrupted.wait(TIMEOUT_S)
    assert status == (141 if json else 130)
    assert json or "So far.\n■ interrupted" in err


def test_a_reader_that_goes_by_itself_is_not_written_to_elsewhere(places: Places) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        assert gone.wait(TIMEOUT_S)
        daemon.add(session_id, [*text_item("i1", "Done."), ended("Done.")])

    gone = threading.Event()
    with FakeDaemon(places.runtime, play):
        command = [*TILLER, "exec", "look"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.close()
        gone.set()
        assert process.stderr is not None
        assert "Done." not in process.stderr.read().decode()
        process.stderr.close()
        assert process.wait(TIMEOUT_S) == 141


def test_attach_until_idle_ends_with_the_word_that_the_session_is_idle(places: Places) -> None:
    """The end of the turn is not the last event: a daemon may need a moment for the rest."""
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), ended("x")])
        command = [*TILLER, "attach", "--json", "--until-idle", SESSION]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            daemon.add(SESSION, [SessionTitled("x"), StatusChanged("idle")])
            lines += process.stdout.readlines()
    assert process.returncode == 0
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4, 5]


@pytest.fixture
def without_daemon(tmp_path: Path) -> tuple[str, ...]:
    """A `tiller` whose `tillerd` exits at once, like one that lost the race to start."""
    package = tmp_path / "path" / "tiller_daemon"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").touch()
    return (make_installation(tmp_path / "python", package.parent), *TILLER[1:])


@pytest.mark.promise("G2")
def test_a_turn_is_followed_to_its_end_across_the_death_of_the_daemon(
    places: Places, without_daemon: tuple[str, ...]
) -> None:
    def begin(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *text_item("i1", "before")])

    first = FakeDaemon(places.runtime, begin, token="old")
    with first:
        command = [*without_daemon, "exec", "--json", "x"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
    with FakeDaemon(places.runtime, token="new", sessions=first.sessions) as second:
        session_id = next(iter(second.sessions))
        second.add(session_id, [*text_item("i2", "after"), ended("after")])
        lines += process.stdout.readlines()
        assert process.wait(TIMEOUT_S) == 0
        process.stdout.close()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, 10))


def test_another_log_under_a_follower_is_said_and_followed_from_its_start(
    places: Places, without_daemon: tuple[str, ...]
) -> None:
    with FakeDaemon(places.runtime) as first:
        first.add(SESSION, [SessionCreated("/w", Settings()), started(), *text_item("i1", "old")])
        command = [*without_daemon, "attach", "--json", "--until-idle", SESSION]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(5):
            process.stdout.readline()
    with FakeDaemon(places.runtime, token="new", log_id="log-2") as second:
        second.add(SESSION, [SessionCreated("/new", Settings()), started(), ended("new")])
        second.add(SESSION, [StatusChanged("idle")])
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 2, 3, 4]
    assert b"a new event log" in err
    assert process.returncode == 0


def test_what_does_not_fit_on_the_screen_goes_to_the_users_pager(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged with $LESS\nexec tail -n 1\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    monkeypatch.delenv("LESS", raising=False)
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), *text_item("i1", "Hi.")])
        short = Terminal("show", SESSION)
        assert short.end() == 0
        lines = "".join(f"line {number}\n\n" for number in range(30))
        daemon.add(SESSION, [*text_item("i2", lines + "the end")])
        long = Terminal("show", SESSION)
        assert long.end() == 0
        monkeypatch.setenv("TILLER_PAGER", "cat")
        whole = Terminal("show", SESSION)
        assert whole.end() == 0
    assert "Hi." in short.screen
    assert "paged" not in short.screen
    assert long.screen.startswith("paged with FRX\r\n")
    assert "line 3" not in long.screen
    assert "paged" not in whole.screen
    assert "line 29" in whole.screen


@pytest.mark.parametrize("variable", ["PAGER", "TILLER_PAGER"])
def test_a_pager_with_an_open_quote_is_misuse(
    places: Places, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "less 'x")
    with FakeDaemon(places.runtime) as daemon:
        lines = "".join(f"line {number}\n\n" for number in range(30))
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), *text_item("i1", lines)])
        terminal = Terminal("show", SESSION, columns=120)
        assert terminal.end() == 2
    expected = f"the variable {variable} does not hold a valid command (no closing quotation)"
    assert f"{expected}: less 'x" in terminal.screen


def test_a_person_who_sends_something_is_told_how_to_watch_it(
    places: Places, tiller: Tiller
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *text_item("i1", "Done."), ended("Done.")])

    with FakeDaemon(places.runtime, play) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings())])
        terminal = Terminal("send", SESSION, "hi", columns=120)
        assert terminal.end() == 0
        assert f"; watch it with: tiller attach {SESSION[-8:]}" in terminal.screen
        terminal = Terminal("send", "--queue", SESSION, "hi", columns=120)
        assert terminal.end() == 0
        assert f"; see the queue with: tiller queue {SESSION[-8:]}" in terminal.screen
        assert tiller("send", SESSION, "hi")[1] == f"started turn {TURN}\n"
        assert tiller("send", "--wait", SESSION, "hi")[:2] == (0, "Done.\n")
        assert tiller("send", "--wait", "--no-reply", SESSION, "hi")[0] == 2
