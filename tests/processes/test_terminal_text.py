"""What a model reads of a program's output is what a terminal shows of it in the end."""

import pyte
from hypothesis import given, settings
from hypothesis import strategies as st
from pyte.modes import LNM

from support.each import each
from tiller_daemon.processes.terminal_text import LINE_CHARS_MAX, ROWS, TerminalText, last_state

FRAMES = b"".join(b"\r\x1b[2KDownloading %d%%" % n for n in range(3001))


@each(
    ("output", "shown"),
    [
        (FRAMES + b"\n\x1b[31mred\x1b[0m\n", "Downloading 3000%\nred\n"),
        (b"  1%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        (b"a long line\rshort", "shortg line"),
        (b"a long line\rshort\x1b[K\n", "short\n"),
        (b"|\b/\b-\b\\\b done\n", " done\n"),
        (b"N\bNA\bAM\bME\bE", "NAME"),
        (b"one: 1%\ntwo: 1%\n\x1b[2A\x1b[2Kone: 9%\n\x1b[2Ktwo: 9%\n", "one: 9%\ntwo: 9%\n"),
        (b"old\nscreen\x1b[H\x1b[2Jnew", "new"),
        (b"dos\r\nlines\r\r\n", "dos\nlines\n"),
        (b"\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b(B\x1b=\x1b[?25h", "link "),
        (b"a\0b\0\a", "a b "),
        (b"\xff\xc3\xa9\tx", "\ufffd\xe9\tx"),
        (b"cut \x1b[3", "cut [3"),
        (b"a\n\x1b[" + b"9" * 5000 + b"Ab", "b\n"),
    ],
)
def test_the_last_state_of_a_line_is_kept_without_escapes(output: bytes, shown: str) -> None:
    assert last_state(output) == shown


def test_of_lines_that_have_left_the_terminal_nothing_changes() -> None:
    many = b"".join(b"%d\n" % n for n in range(100))
    lines = last_state(many + b"\x1b[99A\x1b[Kchanged").split("\n")
    assert lines[100 - ROWS : 103 - ROWS] == ["60", "changed", "62"]
    assert len(lines) == 101
    assert last_state(many + b"\x1b[2J").split("\n")[:61] == [str(n) for n in range(61)]


def test_it_holds_little() -> None:
    terminal = TerminalText()
    out = sum(len(terminal.feed(b"x" * 10_000)) for _ in range(100))
    assert out > 1_000_000 - 2 * LINE_CHARS_MAX
    assert len(terminal.feed(b"\x1b[99999C\x1b[99999Bx\n" * 1000)) < 5_000_000


WORDS = ("one", "tw\xf6", " ", "\n", "\r", "\r\n", "\b", "\x1b[1m", "\x1b]0;t\x07")
MOVES = ("\x1b[2;3H", *(f"\x1b[{n}{move}" for move in "ABCDEFGJK" for n in ("", 1, 2)))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(WORDS + MOVES), max_size=30), st.integers(0, 300))
def test_a_terminal_emulator_shows_the_same(tokens: list[str], cut: int) -> None:
    screen = pyte.Screen(120, ROWS)
    screen.set_mode(LNM)
    pyte.Stream(screen).feed("".join(tokens))
    data = "".join(tokens).encode()
    terminal = TerminalText()
    shown = (terminal.feed(data[:cut]) + terminal.feed(data[cut:]) + terminal.end()).decode()
    lines = [line.rstrip() for line in shown.split("\n")]
    assert "\n".join(lines).rstrip() == "\n".join(map(str.rstrip, screen.display)).rstrip()
