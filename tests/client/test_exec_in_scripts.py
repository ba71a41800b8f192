"""`tiller exec` where no person watches: stdin, time limits, signals, a daemon that is silent."""

import os
import signal
import subprocess
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import pytest

from support.each import each
from support.event_bodies import Tiller, ended, started
from support.fake_daemon import FakeDaemon
from support.terminal import TILLER
from tiller_client.command_line.piped import CONTEXT_BYTES_MAX
from tiller_client.command_line.turn_arguments import duration
from tiller_client.connecting import connection, silence
from tiller_protocol.events import RequestOpened, RequestResolved
from tiller_protocol.items import Request
from tiller_protocol.ops import Interrupt, Replay, UserInput
from tiller_protocol.places import Places

REQUEST = Request("01K0REQ000000000000000000R", "approval", "bash", subjects=("rm -rf x",))


def play_nothing(daemon: FakeDaemon, session_id: str) -> None:
    daemon.add(session_id, [started(), ended("ok")])


def play_until_interrupted(daemon: FakeDaemon, session_id: str) -> None:
    daemon.add(session_id, [started()])
    assert daemon.interrupted.wait(10)
    daemon.add(session_id, [ended("", "interrupted")])


def run(*arguments: str, stdin: bytes | int) -> tuple[int, str]:
    """Run a command line with this stdin; the exit status and stderr."""
    given: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    done = subprocess.run([*TILLER, *arguments], capture_output=True, check=False, **given)
    return done.returncode, done.stderr.decode()


def input_of(daemon: FakeDaemon) -> UserInput:
    (found,) = [op for op in daemon.seen.values() if isinstance(op, UserInput)]
    return found


@pytest.mark.parametrize(
    ("arguments", "stdin", "text", "context"),
    [
        (("why?",), b"a\nb\n", "why?", "a\nb\n"),
        (("why?",), b"", "why?", ""),
        (("why?",), subprocess.DEVNULL, "why?", ""),
        (("-",), b"do it", "do it", ""),
        ((), b"do it", "do it", ""),
    ],
)
def test_stdin_is_the_context_of_a_prompt_or_the_prompt(
    places: Places, arguments: tuple[str, ...], stdin: bytes | int, text: str, context: str
) -> None:
    with FakeDaemon(places.runtime, play_nothing) as daemon:
        assert run("exec", *arguments, stdin=stdin)[0] == 0
    assert (input_of(daemon).text, input_of(daemon).context) == (text, context)


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (("x",), b"GIF89a\0\x01", "stdin is not text, so it can't be context: it contains a NUL"),
        (("x",), b"caf\xe9", "byte 4 is not UTF-8; attach an image with --image"),
        (("x",), b"x" * (CONTEXT_BYTES_MAX + 1), "stdin has more than 1 MiB"),
        ((), subprocess.DEVNULL, "there is no task; give PROMPT"),
        (("--worktree", "x" * 201, "y"), subprocess.DEVNULL, "name has at most 200 characters"),
        (("--worktree", "hi"), subprocess.DEVNULL, "no task ('hi' is the name of the worktree)"),
    ],
)
def test_stdin_that_can_not_be_used_is_misuse_and_starts_no_daemon(
    places: Places, arguments: tuple[str, ...], stdin: bytes | int, complaint: str
) -> None:
    status, said = run("exec", *arguments, stdin=stdin)
    assert status == 2
    assert complaint in said
    assert not places.state.exists(), "a start makes it at once"


def test_a_pipe_that_nobody_closes_is_said(places: Places) -> None:
    with (
        FakeDaemon(places.runtime, play_nothing) as daemon,
        subprocess.Popen(
            [*TILLER, "exec", "x"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stderr is not None
        assert b"waiting for the end of stdin" in process.stderr.readline()
        _, said = process.communicate(b"late")
        assert process.returncode == 0, said
    assert input_of(daemon).context == "late"


def test_a_time_limit_interrupts_the_turn_and_has_its_own_status(
    places: Places, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime, play_until_interrupted) as daemon:
        status, _, said = tiller("exec", "--timeout", "0.3", "x")
        session_id = next(iter(daemon.sessions))
    assert status == 124
    assert [op for op in daemon.seen.values() if isinstance(op, Interrupt)]
    assert "the time limit (--timeout) has passed, so the turn was interrupted" in said
    assert f"continue with: tiller resume {session_id}" in said


def test_a_time_limit_holds_while_stdin_does_not_end(places: Places) -> None:
    reader, writer = os.pipe()
    try:
        status, said = run("exec", "--timeout=0.3", "x", stdin=reader)
    finally:
        os.close(reader)
        os.close(writer)
    assert (status, "before a turn began" in said) == (124, True)
    assert not places.runtime.exists()


def test_a_turn_that_ends_before_its_time_limit_has_the_status_of_the_turn(
    places: Places, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime, play_nothing):
        assert tiller("exec", "--timeout=1h", "x")[0] == 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@each(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5", 1.5), ("10m", 600), ("1h30m", 5400), ("2h5s", 7205)],
)
def test_times_are_numbers_with_units(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "m", "1d", "1m2h", "9" * 20, "1e3", "nan"])
def test_a_bad_time_is_misuse(tiller: Tiller, text: str) -> None:
    status, _, said = tiller("exec", f"--timeout={text}", "x")
    assert (status, "such as 90s, 10m, 2h or 1h30m" in said) == (2, True)
    assert "the limit must be more than 0 s and at most 8760h" in said


@pytest.mark.parametrize(
    "options", [("exec", "x"), ("exec", "--no-wait", "x"), ("exec", "--json", "x")]
)
def test_a_question_that_nobody_can_answer_ends_the_turn_as_blocked(
    places: Places, tiller: Tiller, options: tuple[str, ...]
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), RequestOpened(REQUEST)])
        assert daemon.interrupted.wait(10)
        daemon.add(session_id, [ended("", "interrupted")])

    with FakeDaemon(places.runtime, play):
        status, _, said = tiller(*options)
    assert status == 3
    assert "--json" in options or "rm -rf x" in said
    assert "an approval is open" not in said
    assert "the turn needed an answer that nobody could give here, so it was interrupted" in said
    assert "to wait for `tiller answer`, add --wait" in said


@pytest.mark.parametrize(
    ("options", "others"), [(("--wait",), ()), ((), ("tiller chat",))], ids=["--wait", "others"]
)
def test_a_question_that_somebody_may_answer_is_waited_for(
    places: Places, options: tuple[str, ...], others: tuple[str, ...]
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), RequestOpened(REQUEST)])
        assert not daemon.interrupted.wait(1)
        answered = RequestResolved(REQUEST.id, "once", "tiller chat")
        daemon.add(session_id, [answered, ended("done")])

    with FakeDaemon(places.runtime, play) as daemon:
        daemon.followers = others
        with begun(*options, "x") as process:
            out, said = process.communicate()
    assert (process.returncode, out) == (0, "done\n"), said


def begun(*arguments: str, before: Callable[[], Any] | None = None) -> "subprocess.Popen[str]":
    """A `tiller exec` of its own that follows its turn."""
    process = subprocess.Popen(
        [*TILLER, "exec", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=before,
    )
    assert process.stderr is not None
    assert not list(takewhile(lambda line: not line.startswith("session "), process.stderr))
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_the_turn(places: Places, number: signal.Signals) -> None:
    with FakeDaemon(places.runtime, play_until_interrupted) as daemon:
        with begun("x") as process:
            process.send_signal(number)
            _, said = process.communicate()
        assert process.returncode == 130, said
        assert [op for op in daemon.seen.values() if isinstance(op, Interrupt)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_with_detach_a_signal_leaves_the_turn_running(
    places: Places, number: signal.Signals
) -> None:
    with FakeDaemon(places.runtime, play_until_interrupted) as daemon:
        with begun("--detach", "x") as process:
            process.send_signal(number)
            _, said = process.communicate()
        assert process.returncode == 130
        assert f"tiller attach {next(iter(daemon.sessions))}" in said
        assert not [op for op in daemon.seen.values() if isinstance(op, Interrupt)]


def test_with_detach_the_first_line_says_how_to_leave_and_come_back(places: Places) -> None:
    with FakeDaemon(places.runtime, play_nothing) as daemon:
        _, said = run("exec", "--detach", "x", stdin=subprocess.DEVNULL)
    session_id = next(iter(daemon.sessions))
    again = f"to watch it again: tiller attach {session_id[-8:]}"
    assert f"session {session_id}; Ctrl-C leaves the turn running; {again}\n" in said


def test_under_nohup_a_hangup_ends_nothing(places: Places) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        assert daemon.asked.wait(10)
        daemon.add(session_id, [ended("ok")])

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with FakeDaemon(places.runtime, play) as daemon:
        with begun("x", before=ignore) as process:
            process.send_signal(signal.SIGHUP)
            daemon.asked.set()
            out, _ = process.communicate()
        assert (process.returncode, out) == (0, "ok\n")


@pytest.mark.nightly
def test_a_daemon_that_is_silent_in_mid_turn_is_said_and_waited_for(
    places: Places, tiller: Tiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_DEADLINE_S", 0.5)
    monkeypatch.setattr(silence, "SAID_AFTER_S", 0.05)
    said_so = "the daemon has not answered for 0.05 s"

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        while not any(isinstance(op, Replay) for op in [*daemon.seen.values()]):
            assert not daemon.interrupted.wait(0.01)  # the answer to the input is out by then
        daemon.mute.set()
        replays = len(daemon.seen)
        while len(daemon.seen) < replays + 3:  # the third is asked after two were given up
            assert not daemon.interrupted.wait(0.01)
        daemon.mute.clear()
        daemon.add(session_id, [ended("after all")], lost=True)

    with FakeDaemon(places.runtime, play) as daemon:
        status, out, said = tiller("exec", "x")
        session_id = next(iter(daemon.sessions))
    assert (status, out) == (0, "after all\n"), said
    assert said.count(said_so) == 1
    assert f"to return: tiller attach {session_id}" in said


def test_a_queue_is_for_sessions_that_are_there(tiller: Tiller) -> None:
    status, _, said = tiller("exec", "--queue", "x")
    assert (status, "needs --session" in said) == (2, True)
