"""What a user approves is what runs: every command can be read back exactly from the screen."""

import json
import subprocess
import unicodedata
from collections.abc import Callable, Sequence
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.each import each
from support.event_bodies import Tiller, ended, started, text_item
from support.fake_daemon import FakeDaemon
from support.hostile import POSING_AS_A_DIFF, SEED, commands, read_back, read_back_ascii
from support.terminal import TILLER, TIMEOUT_S, Screen, Terminal
from tiller_client.rendering.requests import request_block, request_text
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import on_screen, verbatim
from tiller_protocol.events import RequestOpened, SessionCreated
from tiller_protocol.items import Request
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

COUNT = 2500
TITLE = "Run it"
SESSION = "01K0AAAAAAAAAAAAAAAAAASES1"
ASKS = "\x1b[2m  y once"
"""Only tiller itself can write this: commands can't contain escapes."""

COMMANDS = list(commands(COUNT))


def asked(command: str, number: int = 0) -> Request:
    return Request(
        f"01K0REQ{number:019}",
        "approval",
        TITLE,
        permission="bash",
        subjects=(command,),
        detail=command,
        detail_kind="command",
    )


def said_by(rows: Sequence[str], read: Callable[[Sequence[str]], str] = read_back) -> list[str]:
    """The commands in rows, each between its title and the next line of tiller itself."""
    return [
        read(list(takewhile(lambda row: row[:4].strip() in ("", "↳", ">"), rows[at + 1 :])))
        for at, row in enumerate(rows)
        if row == f"? {TITLE}"
    ]


@pytest.mark.parametrize("columns", [8, 20, 80])
def test_a_hostile_command_is_read_back_exactly_from_what_is_written(columns: int) -> None:
    for number, command in enumerate(COMMANDS):
        text = request_block(asked(command), Theme(), columns)
        written = on_screen(text)
        assert written == text, (SEED, number, "it is harmless already")
        assert all(c == "\n" or c.isprintable() for c in written), (SEED, number)
        assert said_by(written.split("\n")) == [command], (SEED, number)


@pytest.mark.parametrize("columns", [20, 80])
def test_all_permissions_come_before_any_text_that_could_pose_as_them(columns: int) -> None:
    posing = asked("make\n! needs several permissions: read\n? Run it")
    request = structs.replace(posing, permission="network", also=("bash", "read\u202e"))
    title, *rows = request_block(request, Theme(), columns).split("\n")
    assert title == f"? {TITLE}"
    ours = [row for row in rows if not row.startswith(("    ", "  ↳ "))]
    assert ours == [rows[0]]
    continued = takewhile(lambda row: row.startswith("  ↳ "), rows[1:])
    shown = rows[0] + "".join(row[4:] for row in continued)
    names = "network, bash, read⟨U+202E⟩"
    assert shown.replace("␠", " ") == f"! needs several permissions: {names}"


@given(st.text(max_size=80))
def test_any_text_is_read_back_exactly(text: str) -> None:
    block = request_block(asked(text or "x"), Theme(), 40)
    assert said_by(block.split("\n")) == [text or "x"]


@each("columns", [20, 80])
@pytest.mark.nightly
def test_a_hostile_command_is_read_back_from_the_screen_of_a_terminal(columns: int) -> None:
    for number, command in enumerate(COMMANDS):
        screen = Screen(columns)
        block = request_block(asked(command), Theme("dark", 16), columns)
        screen.feed(on_screen(block).replace("\n", "\r\n"))
        rows = screen.rows()
        first = rows.index(f"? {TITLE}")
        last = first + block.count("\n")
        assert composed(said_by(rows[: last + 1])) == composed([command]), (SEED, number)


def composed(texts: Sequence[str]) -> list[str]:
    """Normalize like the emulator: marks are composed with their character."""
    return [unicodedata.normalize("NFC", text) for text in texts]


@pytest.mark.parametrize("verb", ["exec", "attach"])
@pytest.mark.parametrize("columns", [20, 80])
def test_whoever_answers_at_the_terminal_has_the_whole_command_above_the_line_that_asks(
    places: Places, verb: str, columns: int
) -> None:
    chosen = COMMANDS[:40]

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started()])
        for number, command in enumerate(chosen):
            daemon.add(session_id, [RequestOpened(asked(command, number))])
            assert daemon.wait_for_answer(TIMEOUT_S)
        daemon.add(session_id, [ended()])

    with FakeDaemon(places.runtime, play) as daemon:
        if verb == "attach":
            daemon.add(SESSION, [SessionCreated("/w", Settings())])
        terminal = Terminal(verb, "x" if verb == "exec" else SESSION, columns=columns)
        if verb == "attach":
            terminal.wait_for("type the next task"[: columns - 4])
            terminal.type("do it")
        at = 0
        for _ in chosen:
            at = terminal.wait_for(ASKS, after=at)
            terminal.type("y")
        terminal.wait_for("■ completed", after=at)
        terminal.process.terminate()
        terminal.end()
    screen = Screen(columns)
    screen.feed(terminal.screen)
    assert composed(said_by(screen.rows())) == composed(chosen)


def test_of_several_requests_the_one_that_is_asked_stands_right_above_the_line_that_asks(
    places: Places,
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        both = [RequestOpened(asked("rm -r one", 1)), RequestOpened(asked("ls two", 2))]
        daemon.add(session_id, [started(), *both])
        assert daemon.wait_for_answer(TIMEOUT_S)
        assert daemon.wait_for_answer(TIMEOUT_S)
        daemon.add(session_id, [ended()])

    with FakeDaemon(places.runtime, play):
        terminal = Terminal("exec", "x")
        # With what stands above it: a line that asks may be drawn again meanwhile.
        at = terminal.wait_for(f"\r\n    rm -r one\r\n{ASKS}")
        terminal.type("y")
        terminal.wait_for(f"\r\n    ls two\r\n{ASKS}", after=at)
        terminal.type("y")
        assert terminal.end() == 0
    below = terminal.screen.rpartition("ls two")[2]
    assert below.count("✓ allowed") == 1, "what became of the first is said above the second"


def test_a_request_from_before_the_first_event_that_is_shown_is_shown_before_it_is_asked(
    places: Places,
) -> None:
    with FakeDaemon(places.runtime) as daemon:
        opened = RequestOpened(asked("rm -rf ~"))
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), opened])
        terminal = Terminal("attach", "--after", "3", SESSION)
        terminal.wait_for(ASKS)
        terminal.type("y")
        assert daemon.wait_for_answer(TIMEOUT_S)
        terminal.process.terminate()
        terminal.end()
    screen = Screen(80)
    screen.feed(terminal.screen)
    assert said_by(screen.rows()) == ["rm -rf ~"]


@pytest.mark.parametrize("arguments", [("--json",), ()])
def test_who_is_told_how_to_answer_from_elsewhere_has_the_whole_command(
    places: Places, arguments: tuple[str, ...]
) -> None:
    command = POSING_AS_A_DIFF[0]
    with FakeDaemon(places.runtime) as daemon:
        opened = RequestOpened(asked(command))
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), opened])
        process = subprocess.Popen(
            [*TILLER, "attach", "--after", "3", *arguments, SESSION],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        assert process.stdout is not None
        lines = list(takewhile(lambda line: "tiller answer" not in line, process.stdout))
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert said_by([line.rstrip("\n") for line in lines]) == [command]


def test_requests_lists_every_hostile_command_whole(places: Places, tiller: Tiller) -> None:
    opened = [RequestOpened(asked(command, number)) for number, command in enumerate(COMMANDS)]
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings()), started(), *opened])
        out = tiller("requests")[1]
        as_json = tiller("requests", "--json")[1]
    assert said_by(out.removesuffix("\n").split("\n")) == COMMANDS, SEED
    requests = [json.loads(line)["request"] for line in as_json.splitlines()]
    assert [request["detail"] for request in requests] == COMMANDS
    shown = set(as_json) - {"\n"}
    assert all(c.isprintable() or unicodedata.category(c) == "Zs" for c in shown)


def test_a_dumb_terminal_gets_no_control_and_every_command_whole(places: Places) -> None:
    imitating = "ls <U+0009> \u2026/x \t"
    chosen = [command for command in COMMANDS[:40] if composed([command]) == [command]]
    chosen.append(imitating)
    evil = "\x1b]0;owned\x07\x9b2J\u202eabc\r"

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *text_item("i1", evil)])
        for number, command in enumerate(chosen):
            daemon.add(session_id, [RequestOpened(asked(command, number))])
        daemon.add(session_id, [ended(evil)])

    with FakeDaemon(places.runtime, play):
        terminal = Terminal("exec", "x", columns=40, term="dumb")
        assert terminal.end() == 0
    shown = terminal.screen.replace("\r\n", "\n")
    assert all(c in "\n\t" or c.isprintable() for c in shown)
    assert "<U+001B>]0;owned<U+0007><U+009B>2J<U+202E>abc<U+000D>" in shown
    said = said_by(shown.split("\n"), read_back_ascii)
    assert [command for command in chosen if command not in said] == []


def test_a_question_keeps_the_characters_that_prose_needs() -> None:
    family = "Is this your family: 👩\u200d👩\u200d👧 ❤\ufe0f?"
    request = Request("r", "question", "Is it?", detail=family)
    assert family in request_block(request, Theme(), 80)
    assert "\u200d" not in verbatim(family)


def test_a_long_command_says_that_its_beginning_may_be_out_of_sight() -> None:
    def block(command: str) -> str:
        return request_block(asked(command), Theme(), 80).rpartition("\n")[2]

    assert block("true\n" * 30) == "  ↑ 32 lines: scroll up to see all of them"
    assert block("true\n" * 5 + "rm") == "    rm"


def test_half_a_surrogate_pair_is_visible_too() -> None:
    assert verbatim("\ud800rm\udc80") == "⟨U+D800⟩rm⟨U+DC80⟩"


def test_a_long_question_is_shown_once_and_broken_between_words() -> None:
    text = "Which database shall the accounts use? " * 8 + "\n\nBoth are installed."
    title = "worker: " + " ".join(text.split())[:191] + "…"
    request = Request("r", "question", title, detail=text, choices=("SQLite, " * 9, "PostgreSQL"))
    said = request_text(request, Theme(), 40)
    assert said.startswith("? worker: Which database")
    assert " ".join(said.split()).count("Which database shall the accounts use?") == 8
    assert "↳" not in said
    assert max(map(len, said.split("\n"))) <= 40
