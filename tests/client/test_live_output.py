"""The output of a running command on a terminal: its last lines, live, and nothing left of them."""

import os
import pty
import re
import select
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.event_bodies import Tiller, ended, started, text_item
from support.fake_daemon import FakeDaemon
from support.terminal import LINES, TIMEOUT_S, Screen, Terminal, without_reports
from tiller_client.console import REDRAW_S_MIN, Console
from tiller_client.rendering.activity import Activity
from tiller_client.rendering.events import Piece
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    ErrorRaised,
    Event,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    RequestOpened,
    ToolCallUpdated,
    TurnEnded,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import Request, ToolCall, Usage
from tiller_protocol.ops import Answer, UserInput
from tiller_protocol.places import Places

LINES_OF_OUTPUT = [f"line {number} {'x' * 40}" for number in range(20)]
OUTPUT = "".join(f"{line}\n" for line in LINES_OF_OUTPUT)


def running(item_id: str = "c", title: str = "make") -> list[AnyBody]:
    call = ToolCall(ItemId(item_id), CallId(item_id), "bash", "{}", "pending", title=title)
    return [ItemStarted(call), ToolCallUpdated(call.id, "running")]


def piece(text: str, item_id: str = "c") -> ItemDelta:
    return ItemDelta(item_id, "output", text, "tool_call")


def done(output: str = OUTPUT, exit_status: int = 0) -> ItemCompleted:
    return ItemCompleted(
        ToolCall(
            ItemId("c"),
            CallId("c"),
            "bash",
            "{}",
            "completed",
            title="make",
            output=output,
            exit_status=exit_status,
            duration_s=0.5,
        )
    )


class Stage:
    """A turn with a running command, that the test moves on."""

    def __init__(self) -> None:
        self._began = threading.Lock()
        self._goes_on = threading.Semaphore(0)
        self.bodies: list[AnyBody] = []

    def __call__(self, daemon: FakeDaemon, session_id: str) -> None:
        if not self._began.acquire(blocking=False):
            return  # it is steered
        daemon.add(session_id, [started(), *running()])
        while self._goes_on.acquire(timeout=TIMEOUT_S):
            bodies, self.bodies = self.bodies, []
            daemon.add(session_id, bodies)
            if isinstance(bodies[-1], TurnEnded):
                return

    def play(self, *bodies: AnyBody) -> None:
        self.bodies = list(bodies)
        self._goes_on.release()


def rows_of(terminal: Terminal, columns: int) -> list[str]:
    """What stands on the screen and above it, without empty rows."""
    screen = Screen(columns)
    screen.feed(terminal.screen)
    return [row for row in screen.rows() if row]


@pytest.mark.parametrize("columns", [80, 24])
def test_the_last_lines_stand_under_the_call_and_leave_nothing_behind(
    places: Places, columns: int
) -> None:
    stage = Stage()
    with FakeDaemon(places.runtime, stage):
        terminal = Terminal("exec", "x", columns=columns)
        terminal.wait_for("○ bash ")
        for number in (4, 9, 14, 19):
            stage.play(piece("".join(f"{line}\n" for line in LINES_OF_OUTPUT[number - 4 : number])))
            terminal.wait_for(f"line {number - 1} ")
            stage.play(piece(f"{LINES_OF_OUTPUT[number]}\n"))
            terminal.wait_for(f"line {number} ")
        during = rows_of(terminal, columns)
        stage.play(done(), *text_item("a", "Built."), ended())
        assert terminal.end() == 0
    head, *output, hint = during[-7:]
    # On a busy machine, the call's time is shown, too, which leaves other room for its name.
    assert re.match("○ bash make running" if columns == 80 else "○ bash m?… running", head)
    assert [row.split()[1] for row in output] == ["15", "16", "17", "18", "19"]
    assert hint == "»"
    assert all(len(row) < columns for row in during[-7:])
    after = rows_of(terminal, columns)
    assert not [row for row in after if row.startswith(("○", "»"))]
    begin = next(at for at, row in enumerate(after) if row.startswith("● bash make"))
    shown = [row for row in after[begin:] if row.startswith("    line ")]
    assert [row.split()[1] for row in shown] == ["15", "16", "17", "18", "19"]
    assert "… 15 more lines: tiller show --full" in "".join(after).replace("    ", "")
    assert sum(row.startswith("    line 19") for row in after) == 1


def test_a_window_that_changes_its_size_during_output_keeps_what_was_written_before(
    places: Places,
) -> None:
    stage = Stage()
    with FakeDaemon(places.runtime, stage):
        terminal = Terminal("exec", "x", columns=80)
        terminal.wait_for("○ bash make")
        stage.play(piece(OUTPUT))
        terminal.wait_for("line 19")
        wide = len(terminal.screen)
        terminal.resize(30)
        stage.play(piece("last 1\n"))
        at = terminal.wait_for("last 1", after=wide)
        stage.play(done(), ended())
        assert terminal.end() == 0
    screen = Screen(80)
    screen.feed(terminal.screen[:wide])
    screen.resize(30)
    screen.feed(terminal.screen[wide:])
    rows = [row for row in screen.rows() if row]
    assert at
    assert rows[0].startswith("session ")
    assert not [row for row in rows if row.startswith(("○", "»"))]
    assert sum(row.startswith("    line 19") for row in rows) == 1


def test_a_flood_costs_the_terminal_little(places: Places) -> None:
    """100,000 lines, of which some are drawn and five stay."""
    flood = [f"{number:06} {'y' * 50}\n" for number in range(100_000)]
    blocks = ["".join(flood[at : at + 500]) for at in range(0, len(flood), 500)]

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *running()])
        daemon.add(session_id, map(piece, blocks))
        daemon.add(session_id, [done("".join(flood[-900:])), ended()])

    with FakeDaemon(places.runtime, play):
        terminal = Terminal("exec", "x")
        assert terminal.end() == 0
    assert "… 895 more lines" in terminal.screen
    assert any(row.startswith("    099999 yyy") for row in rows_of(terminal, 80))
    assert len(terminal.screen.encode()) < sum(map(len, flood)) / 20


@pytest.mark.parametrize("terminal", [True, False])
def test_where_nothing_can_be_redrawn_the_last_lines_come_once_when_the_call_ends(
    places: Places, tiller: Tiller, *, terminal: bool
) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        bodies = [started(), *running(), *map(piece, OUTPUT.splitlines(keepends=True))]
        daemon.add(session_id, [*bodies, done(), *text_item("a", "Built."), ended("Built.")])

    with FakeDaemon(places.runtime, play):
        if terminal:
            dumb = Terminal("exec", "x", term="dumb")
            assert dumb.end() == 0
            shown = dumb.screen.replace("\r\n", "\n")
        else:
            status, out, shown = tiller("exec", "x")
            assert (status, out) == (0, "Built.\n")
    assert not set(shown) & {"\x1b", "\r", "○"}
    lines = shown.splitlines()
    begin = lines.index(f"{'*' if terminal else '●'} bash make ok 500 ms")
    assert lines[begin + 1].endswith(" 15 more lines: tiller show --full")
    assert lines[begin + 2 : begin + 7] == [f"    {line}" for line in LINES_OF_OUTPUT[15:]]
    assert shown.count("line 15") == 1


def test_verbose_shows_all_of_it(places: Places, tiller: Tiller) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *running(), piece(OUTPUT), done(), ended("Built.")])

    with FakeDaemon(places.runtime, play):
        shown = tiller("exec", "-v", "x")[2]
        again = tiller("log", "--verbose", "last")[1]
        whole, usual = tiller("show", "--full", "last")[1], tiller("show", "last")[1]
    for text in (shown, again, whole):
        assert "".join(f"    {line}\n" for line in LINES_OF_OUTPUT) in text
        assert "more lines" not in text
    assert "… 15 more lines: tiller show --full\n    line 15" in usual


def test_quiet_shows_the_answer_and_nothing_else(places: Places, tiller: Tiller) -> None:
    def play(daemon: FakeDaemon, session_id: str) -> None:
        bodies = [started(), *text_item("a", "First."), *running(), piece(OUTPUT), done()]
        daemon.add(session_id, [*bodies, *text_item("b", "Built."), ended("Built.")])

    with FakeDaemon(places.runtime, play):
        terminal = Terminal("exec", "--quiet", "x")
        assert terminal.end() == 0
        assert tiller("exec", "--quiet", "x") == (0, "Built.\n", "")
    assert rows_of(terminal, 80) == ["Built."]


def test_quiet_still_asks_and_says_what_went_wrong(places: Places) -> None:
    request = Request("01K0REQ00000000000000000R1", "approval", "Run ls", subjects=("ls",))
    failed = ErrorInfo("x", "The model is not there.")

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *text_item("a", "Hm."), RequestOpened(request)])
        assert daemon.wait_for_answer(TIMEOUT_S)
        end = TurnEnded("failed", 1, Usage(), 1.0, error=failed)
        daemon.add(session_id, [ErrorRaised("x", failed.message), end])

    with FakeDaemon(places.runtime, play) as daemon:
        terminal = Terminal("exec", "--quiet", "x")
        terminal.wait_for("y once")
        terminal.type("y")
        assert terminal.end() == 1
    assert daemon.answers[request.id] == Answer(request.id, "once")
    rows = rows_of(terminal, 80)
    assert rows[0] == "? Run ls"
    assert [row[:9] for row in rows[-2:]] == ["✗ The mod", "■ failed "]
    assert "Hm." not in terminal.screen


def test_a_line_typed_below_the_output_steers_and_no_row_stays_of_what_stood_there(
    places: Places,
) -> None:
    stage = Stage()
    with FakeDaemon(places.runtime, stage) as daemon:
        terminal = Terminal("exec", "x")
        terminal.wait_for("○ bash make")
        stage.play(piece(OUTPUT))
        terminal.wait_for("»")
        daemon.started.clear()
        terminal.type("faster")
        assert daemon.started.wait(TIMEOUT_S)
        stage.play(piece("more\n"))
        terminal.wait_for("    more")
        stage.play(done(), ended())
        assert terminal.end() == 0
    sent = [op.text for op in daemon.seen.values() if isinstance(op, UserInput)]
    assert sent == ["x", "faster"]
    rows = rows_of(terminal, 80)
    assert not [row for row in rows if row.startswith(("○", "»"))]
    assert sum(row.startswith("    line 19") for row in rows) == 1


def test_escapes_in_output_reach_no_terminal(places: Places) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b1A\u202eabc\b\n"

    def play(daemon: FakeDaemon, session_id: str) -> None:
        daemon.add(session_id, [started(), *running(), *[piece(evil)] * 3])
        daemon.add(session_id, [done(evil * 3), ended()])

    with FakeDaemon(places.runtime, play):
        terminal = Terminal("exec", "-v", "x")
        assert terminal.end() == 0
    assert terminal.screen.count("␛[2J␛]0;owned␇⟨U+009B⟩1A⟨U+202E⟩abc␈") >= 3
    shown = without_reports(terminal.screen)
    assert not [bad for bad in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e") if bad in shown]


def live(*bodies: AnyBody) -> list[str]:
    activity = Activity()
    for body in (*running(), *bodies):
        activity.note(Event(1, "s", 1.0, body))
    return [row.strip() for row in activity.live_output(80)]


@given(st.text("ab\n", max_size=60), st.lists(st.integers(0, 60)))
def test_what_is_live_does_not_depend_on_the_pieces_in_which_it_came(
    text: str, cuts: list[int]
) -> None:
    bounds = [0, *sorted(cuts), len(text)]
    pieces = [piece(text[a:b]) for a, b in pairwise(bounds)]
    shown = text.rstrip("\n").split("\n")[-5:] if text.strip() else []
    assert live(*pieces) == live(piece(text)) == shown


def test_of_a_line_that_is_drawn_anew_the_latest_state_is_live() -> None:
    assert live(piece("10 %\r"), piece("20 %\r"), piece("30 %")) == ["30 %"]
    assert live(piece("a\r\nb\r\n")) == ["a", "b"]


def test_the_first_call_that_writes_is_shown_before_one_that_does_not() -> None:
    activity = Activity()
    for body in (*running("c"), *running("d", "test"), piece("ok\n", "d")):
        activity.note(Event(1, "s", 1.0, body))
    assert activity.moving_line(2.0, 80) == "○ bash test running 1.0 s and 1 more"
    assert activity.live_output(80) == ["    ok"]


class PtyConsole:
    """A console of this process on a terminal, with a clock that the test moves."""

    def __init__(self, columns: int) -> None:
        self.now = 0.0
        self.written = ""
        self._columns = columns
        self._master, self._slave = pty.openpty()
        termios.tcsetwinsize(self._slave, (LINES, columns))

    @contextmanager
    def open(self) -> Iterator[Console]:
        before = sys.stdout
        clock = SimpleNamespace(monotonic=lambda: self.now)
        with (
            pytest.MonkeyPatch.context() as patched,
            os.fdopen(self._slave, "w", encoding="utf-8") as sys.stdout,
        ):
            patched.setattr("tiller_client.console.time", clock)
            try:
                yield Console()
            finally:
                self.read()
                sys.stdout, stream = before, sys.stdout
                del stream
        os.close(self._master)

    def read(self) -> str:
        """What was written since the last time."""
        new = b""
        while select.select([self._master], [], [], 0)[0]:
            new += os.read(self._master, 65536)
        self.written += new.decode()
        return new.decode()


def test_rows_are_drawn_again_at_most_as_often_as_the_limit_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    place = PtyConsole(80)
    with place.open() as console:
        for number in range(50):
            console.bottom("○ bash make", f"    {number}")
        assert len(place.read()) < 60
        place.now += REDRAW_S_MIN
        for number in range(50):
            console.bottom("○ bash make", f"    again {number}")
        assert len(place.read()) < 60
        console.bottom("type y or n")
        assert "type y or n" in place.read(), "a question never waits"


def test_after_another_program_has_used_the_terminal_nothing_above_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    place = PtyConsole(80)
    with place.open() as console:
        console.bottom("○ bash make", "    one")
        place.read()
        console.moved()
        place.now += 1
        console.bottom("○ bash make", "    two")
        assert "\x1b[1A" not in place.read()


ROW = st.text("ab ", max_size=30).map(str.strip)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("line"), ROW.filter(bool)),
        st.tuples(st.just("bottom"), st.lists(ROW, max_size=6)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(20, 40))
def test_whatever_stood_at_the_bottom_the_lines_above_are_whole_and_nothing_else_stays(
    steps: list[tuple[str, str | list[str]]], columns: int
) -> None:
    place = PtyConsole(columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        with place.open() as console:
            for _, what in steps:
                place.now += 1
                if isinstance(what, str):
                    console.show([Piece("progress", what[: columns - 1] + "\n")])
                else:
                    console.bottom(*what)
                place.read()
            console.bottom()
    screen = Screen(columns)
    screen.feed(place.written)
    lines = [what[: columns - 1].rstrip() for _, what in steps if isinstance(what, str)]
    assert [row for row in screen.rows() if row] == lines
