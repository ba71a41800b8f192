"""What a terminal shows after any frames: the lines that stay, then the last frame."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiller_client.chat.terminal.painter import BEGIN, END, Frame, Painter

COLUMNS, LINES = 20, 8
LETTERS = "ab界é "


ROWS = st.text(LETTERS, max_size=COLUMNS // 2)
FRAMES = st.lists(ROWS, min_size=1, max_size=LINES - 1)
STEPS = st.lists(
    st.tuples(st.lists(st.text(LETTERS, max_size=3 * COLUMNS), max_size=6), FRAMES), min_size=1
)


class Screen:
    """A painter and the emulated terminal that it writes to."""

    def __init__(self, **environ: str) -> None:
        self._source, self._sink = os.pipe()
        os.set_blocking(self._source, False)
        self.painter = Painter(self._sink, environ)
        self.terminal = pyte.HistoryScreen(COLUMNS, LINES, history=100_000, ratio=0.5)
        self._stream = pyte.Stream(self.terminal)
        self.written = ""

    def show(self) -> None:
        try:
            self.written = os.read(self._source, 1 << 20).decode()
        except BlockingIOError:
            self.written = ""
        self._stream.feed(self.written)

    def rows(self) -> list[str]:
        screen = self.terminal
        lines = [*screen.history.top, *(screen.buffer[y] for y in range(screen.lines))]
        return ["".join(line[x].data for x in range(COLUMNS)).rstrip() for line in lines]

    def close(self) -> None:
        os.close(self._source)
        os.close(self._sink)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.close()


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, data=st.data())
def test_lines_that_stay_come_first_and_then_the_last_frame(
    steps: list[tuple[list[str], list[str]]], data: st.DataObject
) -> None:
    screen = Screen()
    stays = ""
    for above, rows in steps:
        row = data.draw(st.integers(0, len(rows) - 1))
        screen.painter.paint(above, Frame(rows, (row, len(rows[row]))), (COLUMNS, LINES))
        screen.show()
        stays += "".join(above)
        shown = screen.rows()
        while shown and not shown[-1]:
            shown.pop()
        expected = [one.rstrip() for one in rows]
        while expected and not expected[-1]:
            expected.pop()
        assert shown[len(shown) - len(expected) :] == expected
        cursor = screen.terminal.cursor
        assert (screen.terminal.display[cursor.y].rstrip(), cursor.x) == (
            rows[row].rstrip(),
            len(rows[row]),
        )
        kept = "".join(shown[: len(shown) - len(expected)])
        assert kept.replace(" ", "") == stays.replace(" ", "")
    screen.close()


def test_a_frame_is_one_synchronized_write(screen: Screen) -> None:
    screen.painter.paint(["one"], Frame(["two"], (0, 3)), (COLUMNS, LINES))
    screen.show()
    assert screen.written.startswith(BEGIN)
    assert screen.written.endswith(END)
    assert screen.written.count(BEGIN) == 1


def test_what_is_on_the_screen_already_is_not_written_again(screen: Screen) -> None:
    rows = [f"row {number}" for number in range(5)]
    screen.painter.paint([], Frame(rows, (4, 0)), (COLUMNS, LINES))
    screen.show()
    screen.painter.paint([], Frame(rows, (4, 0)), (COLUMNS, LINES))
    screen.show()
    assert screen.written == ""
    screen.painter.paint([], Frame([*rows[:4], "other"], (4, 0)), (COLUMNS, LINES))
    screen.show()
    assert "other" in screen.written
    assert "row" not in screen.written


def test_an_erased_live_part_leaves_what_stays(screen: Screen) -> None:
    screen.painter.paint(["stays"], Frame(["goes", "too"], (1, 0)), (COLUMNS, LINES))
    screen.painter.erase()
    screen.show()
    assert [row for row in screen.rows() if row] == ["stays"]


def test_a_terminal_tells_the_size_of_its_cells():
    """Not every one does; a file never."""
    master, slave = pty.openpty()
    try:
        for window, cell in (((24, 80, 0, 0), None), ((24, 80, 726, 500), (9, 20))):
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("4H", *window))
            assert Painter(slave, {}).cell == cell
    finally:
        os.close(master)
        os.close(slave)
    with Path(__file__).open() as file:
        assert Painter(file.fileno(), {}).cell is None
