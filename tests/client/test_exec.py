"""`tiller exec` over real sockets: its output, its exit status, and that it loses nothing."""

import io
import json
import os
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from support.event_bodies import Tiller, ended, started, text_item, tool_call
from support.fake_daemon import FakeDaemon, Refusal
from support.terminal import TILLER
from tiller_client.connecting.connection import DaemonConnection
from tiller_protocol.codec import INPUT_BYTES_MAX
from tiller_protocol.events import RequestOpened, SessionCreated, StatusChanged
from tiller_protocol.items import Request
from tiller_protocol.op import Op
from tiller_protocol.ops import Answer, Interrupt, SessionCreate, SessionDelete, Shell, UserInput
from tiller_protocol.places import Places
from tiller_protocol.settings import Budget, Settings, TurnOverrides


def play_hello(daemon: FakeDaemon, session_id: str) -> None:
    daemon.add(session_id, [started(), *text_item("i1", "Hello", " there."), ended("Hello there.")])


@pytest.mark.promise("B1")
def test_stdout_has_the_final_message_only_and_progress_goes_to_stderr(
    places: Places, tiller: Tiller
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        bodies = [
            started(),
            *text_item("i1", "I look."),
            *tool_call("i2", "read", "a.py"),
            *text_item("i3", "Done."),
            ended("Done."),
        ]
        daemon.add(session_id, bodies)

    with FakeDaemon(places.runtime, play):
        status, out, err = tiller("exec", "say hello")
    assert (status, out) == (0, "Done.\n")
    assert err.index("I look.") < err.index("● read a.py ok")
    assert "■ completed" in err
    assert "Done." not in err


def test_a_command_of_ones_own_is_shown_as_it_runs_and_its_output_is_stdout(
    places: Places, tiller: Tiller
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        call = tool_call("i1", "bash", "ls", output="two files\n", by_user=True)
        daemon.add(session_id, [started(), *call, ended("two files\n")])

    with FakeDaemon(places.runtime, play) as daemon:
        daemon.add("01K0AAAAAAAAAAAAAAAAAASES1", [SessionCreated("/w", Settings())])
        status, out, err = tiller("shell", "01K0AAAAAAAAAAAAAAAAAASES1", "ls")
    assert ops(daemon, Shell).command == "ls"
    assert (status, out) == (0, "two files\n")
    assert "● bash ls ok" in err


def test_json_prints_every_event_as_it_is_and_ends_with_the_turn(
    places: Places, tiller: Tiller
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        play_hello(daemon, session_id)
        daemon.add(session_id, [StatusChanged("idle")])

    with FakeDaemon(places.runtime, play) as daemon:
        status, out, _ = tiller("exec", "--json", "say hello")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["body"]["type"] == "turn_ended"
    assert len(lines) == len(next(iter(daemon.sessions.values()))) - 1


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("completed", 0), ("failed", 1), ("blocked", 3), ("limit_reached", 4), ("interrupted", 130)],
)
def test_the_exit_status_says_how_the_turn_ended(
    places: Places, tiller: Tiller, outcome: str, status: int
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), ended("", outcome)])

    with FakeDaemon(places.runtime, play):
        assert tiller("exec", "x")[0] == status


@pytest.mark.parametrize("outcome", ["blocked", "interrupted"])
def test_what_the_model_said_before_a_turn_was_cut_off_is_no_result(
    places: Places, tiller: Tiller, outcome: str
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *text_item("i1", "I look first.")])
        daemon.add(session_id, [ended("I look first.", outcome)])

    with FakeDaemon(places.runtime, play):
        _, out, err = tiller("exec", "x")
    assert out == ""
    assert err.count("I look first.") == 1


@pytest.mark.promise("G2")
def test_events_that_were_never_published_come_by_replay(places: Places, tiller: Tiller) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        daemon.add(session_id, [*text_item("i1", "lost", " and found"), ended("x")], lost=True)

    with FakeDaemon(places.runtime, play):
        status, out, _ = tiller("exec", "--json", "x")
    assert status == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 2, 3, 4, 5, 6, 7]


def test_a_long_turn_with_every_third_event_lost_is_printed_whole(
    places: Places, tiller: Tiller
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        for number in range(200):
            bodies = text_item(f"i{number}", f"piece {number}")
            for place, body in enumerate(bodies):
                daemon.add(session_id, [body], lost=place == 1)
        daemon.add(session_id, [ended("x")])

    with FakeDaemon(places.runtime, play):
        status, out, _ = tiller("exec", "--json", "x")
    assert status == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == list(range(1, 604))


def test_ctrl_c_interrupts_the_turn_and_waits_for_its_end(places: Places, tiller: Tiller) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        os.kill(os.getpid(), signal.SIGINT)
        assert daemon.interrupted.wait(10)
        daemon.add(session_id, [ended("", "interrupted")])

    with FakeDaemon(places.runtime, play) as daemon:
        status, _, err = tiller("exec", "x")
    assert status == 130
    assert [op for op in daemon.seen.values() if isinstance(op, Interrupt)]
    assert "interrupted" in err


def test_ctrl_c_twice_detaches_and_says_how_to_attach(places: Places, tiller: Tiller) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        os.kill(os.getpid(), signal.SIGINT)
        assert daemon.interrupted.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    with FakeDaemon(places.runtime, play) as daemon:
        status, _, err = tiller("exec", "x")
        session_id = next(iter(daemon.sessions))
    assert status == 130
    assert f"tiller attach {session_id}" in err


def test_a_request_without_a_terminal_says_how_to_answer_it_from_elsewhere(places: Places) -> None:
    request = Request("01K0REQ000000000000000000R", "approval", "bash", subjects=("rm -rf x",))

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), RequestOpened(request)])
        assert daemon.wait_for_answer(10)
        daemon.add(session_id, [ended("ok")])

    with (
        FakeDaemon(places.runtime, play),
        subprocess.Popen(
            [*TILLER, "exec", "--wait", "x"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        ) as process,
    ):
        assert process.stderr is not None
        lines = list(takewhile(lambda line: "tiller answer" not in line, process.stderr))
        with DaemonConnection(places, "other", may_start=False) as elsewhere:
            elsewhere.submit(Answer(request.id, "once"))
        out, after = process.communicate()
    assert (process.returncode, out) == (0, "ok\n"), after
    assert "rm -rf x" in "".join(lines)


def test_what_was_chosen_on_the_command_line_reaches_the_daemon(
    places: Places, tiller: Tiller, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    options = (
        "-C",
        str(tmp_path),
        "-m",
        "p/m",
        "--agent",
        "plan",
        "--approve",
        "never",
        "--sandbox",
        "read_only",
        "--variant=high",
        "--max-steps=7",
        "--budget=2.5",
        "--tools=read, grep",
    )
    with FakeDaemon(places.runtime, play_hello) as daemon:
        assert tiller("exec", *options, "--output-schema", str(schema), "do it")[0] == 0
        created, asked = ops(daemon, SessionCreate), ops(daemon, UserInput)
    assert created.workspace == str(tmp_path)
    assert created.settings == Settings(
        model="p/m",
        agent="plan",
        approve="never",
        sandbox="read_only",
        variant="high",
        max_steps=7,
        turn_budget=Budget(cost=2.5),
        tools=("read", "grep"),
    )
    assert (asked.text, asked.delivery) == ("do it", "start")
    assert asked.overrides.output_schema == {"type": "object"}


def test_a_turn_in_an_old_session_overrides_instead_and_shows_only_what_is_new(
    places: Places, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime, play_hello) as daemon:
        tiller("exec", "first")
        session_id = next(iter(daemon.sessions))
        before = len(daemon.sessions[session_id])
        options = ("--session", session_id[-6:], "--approve", "always", "--variant=low", "--json")
        status, out, _ = tiller("exec", *options, "second")
    asked = [op for op in daemon.seen.values() if isinstance(op, UserInput)][-1]
    assert status == 0
    assert json.loads(out.splitlines()[0])["seq"] == before + 1
    assert asked.overrides == TurnOverrides(approve="always", variant="low")


def test_a_session_whose_first_input_was_refused_is_not_left_behind(
    places: Places, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.refusals[UserInput] = Refusal("unavailable", "No model is configured: tiller demo.")
        status, out, err = tiller("exec", "--json", "x")
    assert status == 1
    assert "tiller: No model is configured: tiller demo.\n" in err
    assert json.loads(out)["code"] == "unavailable"
    assert ops(daemon, SessionDelete)
    assert not daemon.sessions


def test_a_current_directory_that_is_gone_is_said(
    tiller: Tiller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert tiller("exec", "x")[0::2] == (
        2,
        "tiller: the current directory no longer exists; change to another one, "
        "or name the workspace with -C DIR\n",
    )


def test_images_beyond_the_limit_are_misuse_and_nothing_is_sent(
    tiller: Tiller, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(b"x" * (INPUT_BYTES_MAX // 2))
    (tmp_path / "b.png").write_bytes(b"x" * (INPUT_BYTES_MAX // 2 + 1))
    images = [word for name in ("a.png", "b.png") for word in ("--image", str(tmp_path / name))]
    status, out, err = tiller("exec", *images, "look")
    assert (status, out) == (2, "")
    assert "larger than 8 MiB; name each image with --file PATH" in err


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "the text is empty"),
        (b" \n\t", "the text is empty"),
        (b"caf\xe9", "not UTF-8: byte 4"),
        (b"x" * (INPUT_BYTES_MAX + 1), "longer than 8 MiB"),
    ],
)
def test_a_bad_prompt_on_stdin_is_misuse_and_nothing_is_sent(
    tiller: Tiller, monkeypatch: pytest.MonkeyPatch, data: bytes, complaint: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status, out, err = tiller("exec", "-")
    assert (status, out) == (2, "")
    assert complaint in err


def test_a_prompt_of_the_largest_size_is_taken(
    places: Places, tiller: Tiller, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "x" * INPUT_BYTES_MAX
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    with FakeDaemon(places.runtime, play_hello) as daemon:
        assert tiller("exec", "-")[0] == 0
    assert ops(daemon, UserInput).text == text


@pytest.mark.parametrize(
    "command_line",
    [
        ("exec",),
        ("exec", "--approve", "perhaps", "x"),
        ("exec", "-C", "/does/not/exist", "x"),
        ("exec", "--output-schema", "/does/not/exist", "x"),
        ("exec", "\udce9"),
        ("exec", ""),
        ("nonsense",),
        (),
    ],
)
def test_misuse_ends_with_2_and_a_sentence(tiller: Tiller, command_line: tuple[str, ...]) -> None:
    status, out, err = tiller(*command_line)
    assert (status, out) == (2, "")
    assert err
    assert "Traceback" not in err


def ops(daemon: FakeDaemon, kind: type[Op]) -> Any:
    """The only op of this kind that the daemon received."""
    (found,) = [op for op in daemon.seen.values() if isinstance(op, kind)]
    return found
