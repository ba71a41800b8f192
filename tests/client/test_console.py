"""All output is written in one place and sanitized there, on a terminal or not."""

import ast
import json
from pathlib import Path

import pytest
from msgspec import structs

import tiller_client
from support.event_bodies import CONTEXT, Tiller, ended, text_item, tool_call
from support.fake_daemon import FakeDaemon, Refusal
from support.terminal import Terminal, without_reports
from tiller_protocol.catalog import ModelSummary
from tiller_protocol.events import (
    ErrorRaised,
    SessionCreated,
    SessionTitled,
    StatusChanged,
    TurnStarted,
)
from tiller_protocol.ops import Compact, SessionCreate
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

EVIL = "\x1b]0;owned\x07\x9b2J\u202eabc\u200b\x08"
SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"


def is_harmless(text: str) -> bool:
    return all(c in "\n\t" or c.isprintable() for c in text)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory whose name controls a terminal and imitates lines of tiller."""
    path = tmp_path / f"w{EVIL}\n? Run ls"
    path.mkdir()
    return path


def play(daemon: FakeDaemon, session_id: str) -> None:
    created = next(op for op in daemon.seen.values() if isinstance(op, SessionCreate))
    bodies = [
        TurnStarted(structs.replace(CONTEXT, workspace=created.workspace)),
        *text_item("i1", EVIL),
        *tool_call("i2", EVIL, EVIL, state="error", error_kind="failed", output=EVIL),
        SessionTitled(EVIL),
        ErrorRaised("x", EVIL),
    ]
    daemon.add(session_id, [*bodies, ended(EVIL), StatusChanged("idle")])


@pytest.mark.parametrize("term", ["xterm", "dumb"])
@pytest.mark.parametrize("verb", [("exec", "x"), ("attach", "last", "--until-idle"), ("ls",)])
def test_no_name_and_no_word_of_a_model_steers_a_terminal(
    places: Places, workspace: Path, tiller: Tiller, term: str, verb: tuple[str, ...]
) -> None:
    with FakeDaemon(places.runtime, play) as daemon:
        tiller("exec", "-C", str(workspace), "x")
        options = ("-C", str(workspace)) if verb[0] == "exec" else ()
        terminal = Terminal(*verb, *options, term=term)
        assert terminal.end() == 0
        assert daemon.seen
    shown = without_reports(terminal.screen)
    assert "owned" in shown
    assert "\n? Run ls" not in shown
    for ours in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"):
        shown = shown.replace(ours, "") if term != "dumb" else shown
    assert is_harmless(shown.replace("\r\n", "\n").replace("\r\x1b[K", ""))


def test_what_goes_into_a_pipe_for_people_is_harmless_and_json_keeps_the_value(
    places: Places, workspace: Path, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime, play) as daemon:
        daemon.models = (ModelSummary(f"local/{EVIL}", "openai_chat", problem=EVIL),)
        daemon.refusals[Compact] = Refusal("busy", f"no: {EVIL}")
        _, out, err = tiller("exec", "-C", str(workspace), "x")
        shown = [out, err]
        for verb in (("ls",), ("show", "last"), ("log", "last"), ("models",), ("compact", "last")):
            shown += tiller(*verb)[1:]
        as_json = tiller("log", "--json", "last")[1]
    assert out == "␛]0;owned␇⟨U+009B⟩2J⟨U+202E⟩abc⟨U+200B⟩␈\n"
    assert [text for text in shown if not is_harmless(text)] == []
    assert is_harmless(as_json)
    assert EVIL in [json.loads(line)["body"].get("title") for line in as_json.splitlines()]


@pytest.mark.parametrize(
    "misuse", [("no\x1b[2J",), ("ls", "--no\x1b[2J"), ("exec", "-C", "no\x1b[2J", "x")]
)
def test_words_of_the_command_line_are_repeated_harmlessly(
    places: Places, tiller: Tiller, misuse: tuple[str, ...]
) -> None:
    status, out, err = tiller(*misuse)
    assert (status, out) == (2, "")
    assert "no" in err
    assert is_harmless(err)


def test_a_session_in_a_place_with_an_odd_name_is_one_line_of_the_list(
    places: Places, workspace: Path, tiller: Tiller
) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated(str(workspace), Settings())])
        assert len(tiller("ls")[1].splitlines()) == 1


def test_only_the_console_writes() -> None:
    """Except in the standard library, such as argparse with the help and the version."""
    root = Path(tiller_client.__file__).parent
    found = {
        (str(path.relative_to(root)), node.lineno)
        for path in root.rglob("*.py")
        if path.name != "console.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _writes(node)
    }
    assert not found


def _writes(call: ast.Call) -> bool:
    called = ast.unparse(call.func)
    return called == "print" or called.startswith(
        ("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer", "sys.stderr.buffer")
    )
