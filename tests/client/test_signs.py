"""`tiller` where signs such as `✓` can't be shown: other locales, and dumb terminals."""

import ast
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tiller_client
from support.event_bodies import ended, started, text_item, tool_call
from support.fake_daemon import FakeDaemon
from support.terminal import TILLER, TIMEOUT_S, Terminal
from tiller_client.streams import STAND_INS
from tiller_protocol.events import RequestOpened, SessionCreated, SessionTitled, StatusChanged
from tiller_protocol.items import Request
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
ASKING = "01K0AAAAAAAAAAAAAAAAAASES0"
ANSWER = "na\u00efve \u65e5\u672c \u2192 done"
TITLE = "Caf\u00e9 \u65e5\u672c"
REQUEST = Request(
    "01K0REQ00000000000000000R1", "approval", "bash: ls", subjects=("ls \u2026/a\tb \u65e5 ",)
)

C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale whose encoding is ASCII, which Python else takes for UTF-8."""

ASCII = pytest.mark.parametrize(
    "variables", [C, pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.nightly)]
)

SHOWING = (
    *("ls", "show last", "show --full last", "log last", "requests", "queue last", "models"),
    *("attach --until-idle last", "exec -v hi", "doctor", "rpc --help", "send last hi", "why last"),
)
"""Command lines that show something to a person."""

OFTEN = ("show last", "log last", "attach --until-idle last", "doctor")
ON_TERMINALS = tuple(
    pytest.param(line, marks=[] if line in OFTEN else pytest.mark.nightly) for line in SHOWING
)
"""One line for each way to show something, and in a nightly run all."""

Done = subprocess.CompletedProcess[bytes]


def play(daemon: FakeDaemon, session_id: str) -> None:
    call = tool_call("i2", "edit", "a.py", diff="@@ -1 +1 @@\n-a\n+b\n")
    said = text_item("i1", ANSWER)
    daemon.add(session_id, [started(), *call, *said, ended(ANSWER), StatusChanged("idle")])


@pytest.fixture
def daemon(places: Places) -> Generator[FakeDaemon]:
    """A daemon with a session that has something to show of everything."""
    with FakeDaemon(places.runtime, play) as fake:
        here = str(Path.cwd())
        fake.add(ASKING, [SessionCreated(here, Settings()), started(), RequestOpened(REQUEST)])
        fake.add(SESSION, [SessionCreated(here, Settings()), SessionTitled(TITLE)])
        play(fake, SESSION)
        yield fake


def run(line: str, variables: dict[str, str]) -> Done:
    return subprocess.run(
        [*TILLER, *line.split()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **variables},
        check=False,
        timeout=TIMEOUT_S,
    )


@ASCII
def test_every_verb_shows_ascii_where_the_locale_has_nothing_else(
    daemon: FakeDaemon, variables: dict[str, str]
) -> None:
    assert daemon
    with ThreadPoolExecutor(2) as pool:
        all_done = pool.map(lambda line: run(line, variables), SHOWING)
        for line, done in zip(SHOWING, all_done, strict=True):
            shown = done.stdout + done.stderr
            assert shown.isascii(), (line, shown)
            assert b"Traceback" not in shown, line
            assert b"bug" not in shown, (line, shown)
            assert shown.strip(), line


@ASCII
def test_what_was_said_is_spelled_out_where_its_letters_can_not_be_shown(
    daemon: FakeDaemon, variables: dict[str, str]
) -> None:
    assert daemon
    assert run("exec hi", variables).stdout == b"na<U+00EF>ve <U+65E5><U+672C> -> done\n"
    listed = run("ls", variables).stdout
    assert b"Caf<U+00E9> <U+65E5><U+672C>" in listed
    assert b"| 1 step |" in run("attach --until-idle last", variables).stdout
    events = run("log --json last", variables).stdout.decode()
    assert ANSWER in [json.loads(line)["body"].get("last_message") for line in events.splitlines()]


def test_a_prompt_goes_to_the_model_as_it_was_typed_in_any_locale(daemon: FakeDaemon) -> None:
    done = run(f"exec --json {ANSWER.split()[0]}", C)
    assert done.returncode == 0, done.stderr
    assert "na\u00efve" in [getattr(op, "text", None) for op in daemon.seen.values()]


def test_letters_that_the_encoding_has_are_shown_in_it(daemon: FakeDaemon) -> None:
    assert daemon
    shown = run("exec hi", {"PYTHONIOENCODING": "latin-1"}).stdout
    assert shown == b"na\xefve <U+65E5><U+672C> -> done\n"


@pytest.mark.skipif(shutil.which("localedef") is None, reason="no locale can be made")
def test_a_locale_of_one_byte_for_a_letter_is_read_and_written(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    made = tmp_path / "de_DE.ISO-8859-1"
    source = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(made)]
    if subprocess.run(source, check=False, capture_output=True).returncode:
        pytest.skip("the sources of locales are not installed")
    variables = {"LOCPATH": str(tmp_path), "LC_ALL": "de_DE.ISO-8859-1"}
    command: list[str | bytes] = [*TILLER, "exec", "Gr\u00fc\u00dfe".encode("latin-1")]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **variables},
        check=True,
        timeout=TIMEOUT_S,
    )
    assert done.stdout == b"na\xefve <U+65E5><U+672C> -> done\n"
    assert "Gr\u00fc\u00dfe" in [getattr(op, "text", None) for op in daemon.seen.values()]


@pytest.mark.parametrize("line", ON_TERMINALS)
def test_a_dumb_terminal_gets_no_sign_of_ours_and_every_letter_of_others(
    daemon: FakeDaemon, line: str
) -> None:
    assert daemon
    terminal = Terminal(*line.split(), term="dumb")
    terminal.end()
    assert not set(terminal.screen) & STAND_INS.keys(), terminal.screen
    if line == "log last":
        assert "na\u00efve \u65e5\u672c -> done" in terminal.screen


def test_an_answer_in_a_pipe_is_exact_even_if_the_terminal_is_dumb(daemon: FakeDaemon) -> None:
    assert daemon
    assert run("exec hi", {"TERM": "dumb"}).stdout.decode() == f"{ANSWER}\n"


@pytest.mark.parametrize("variables", [C, {"TERM": "dumb"}])
def test_a_command_to_approve_looks_like_no_other_where_signs_are_missing(
    daemon: FakeDaemon, variables: dict[str, str]
) -> None:
    """A real `...` in it could not be told from the stand-in of `…`, nor a blank at its end."""
    assert daemon
    shown = run("requests", variables).stdout.decode()
    wide = "<U+65E5>" if variables is C else "\u65e5"
    assert f"ls <U+2026>/a<U+0009>b {wide}<U+0020>" in shown


def test_every_sign_of_ours_has_a_stand_in_of_ascii() -> None:
    root = Path(tiller_client.__file__).parent
    missing = {
        (path.name, character)
        for path in root.rglob("*.py")
        if path.name != "text.py"  # it names characters of others
        for literal in _literals(ast.parse(path.read_text()))
        for character in literal
        if not character.isascii() and character not in STAND_INS and character != "\ufe0f"
    }
    assert not missing
    assert all(stand_in.isascii() for stand_in in STAND_INS.values())


def _literals(tree: ast.Module) -> list[str]:
    """The texts in a module, without its docstrings."""
    texts = {
        id(node): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            texts.pop(id(node.value), None)
    return list(texts.values())
