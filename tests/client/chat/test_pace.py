"""When frames are drawn on a terminal that answers, and what comes from its keyboard."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine

import pytest
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.keys import Keys

from tiller_client.chat.terminal import pace
from tiller_client.chat.terminal.keyboard import LINE_BREAK, Keyboard, type_ahead
from tiller_client.chat.terminal.pace import FRAME_S, FRAMES_IN_FLIGHT_MAX, Pace
from tiller_client.chat.terminal.sequences import ANSWER_SEQUENCE

UP = "\x1b[A"


class Drawn:
    """A pace on a terminal; its frames are counted."""

    def __init__(self) -> None:
        self.frames = self.seen = 0
        self._more = asyncio.Event()
        self.pace = Pace(self.draw, self.see)
        self.pace.begin()
        self.pace.answered()

    def draw(self) -> None:
        if self.pace.may_draw():
            self.pace.drawn()
            self.frames += 1
            self._more.set()
            self.pace.written(asked=self.pace.asks)

    def see(self) -> None:
        """The terminal shows all frames that were drawn so far."""
        self.seen = self.frames

    async def next_frame(self) -> None:
        """Return when there is one more."""
        self._more.clear()
        await self._more.wait()


def play(body: Callable[[Drawn], Coroutine[object, object, None]]) -> None:
    """Play something in a loop, on a terminal that has answered the first time."""

    async def run() -> None:
        await body(Drawn())

    asyncio.run(run())


def test_events_draw_one_frame_until_the_terminal_has_answered() -> None:
    async def body(drawn: Drawn) -> None:
        for _ in range(5):
            drawn.draw()
        assert drawn.frames == 1
        drawn.pace.answered()
        await drawn.next_frame()
        assert drawn.frames == 2

    play(body)


def test_keys_are_drawn_while_few_frames_are_on_their_way() -> None:
    async def body(drawn: Drawn) -> None:
        for _ in range(2 * FRAMES_IN_FLIGHT_MAX):
            drawn.pace.key_came()
            drawn.draw()
        assert drawn.frames == FRAMES_IN_FLIGHT_MAX
        drawn.pace.answered()
        await drawn.next_frame()
        assert drawn.frames == FRAMES_IN_FLIGHT_MAX + 1, "what the other keys did"

    play(body)


def test_events_draw_no_frame_before_the_last_one_is_old_enough() -> None:
    async def body(drawn: Drawn) -> None:
        before = time.monotonic()
        for _ in range(3):
            drawn.pace.soon()
            drawn.pace.soon()
            await drawn.next_frame()
            drawn.pace.answered()
        assert drawn.frames == 3
        assert time.monotonic() - before >= 2 * FRAME_S

    play(body)


def test_a_frame_is_seen_when_the_terminal_has_answered_behind_it() -> None:
    async def body(drawn: Drawn) -> None:
        for _ in range(2):
            drawn.pace.key_came()
            drawn.draw()
        assert drawn.seen == 0
        drawn.pace.answered()
        assert drawn.seen == 0, "the second one is still on its way"
        drawn.pace.answered()
        assert drawn.seen == 2

    play(body)


def test_an_answer_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "ANSWER_TIMEOUT_S", 0.0)

    async def body(drawn: Drawn) -> None:
        drawn.draw()
        drawn.draw()
        assert drawn.frames == 1
        await drawn.next_frame()

    play(body)


def test_the_terminal_is_given_away_when_all_answers_have_come() -> None:
    async def body(drawn: Drawn) -> None:
        for _ in range(2):
            drawn.pace.key_came()
            drawn.draw()
        settled = asyncio.create_task(drawn.pace.settle())
        drawn.pace.answered()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not settled.done()
        drawn.draw()
        assert drawn.frames == 3, "it is drawn, and asks for nothing"
        drawn.pace.answered()
        await settled
        assert not drawn.pace.asks

    play(body)


def test_answers_may_come_between_keys_and_in_a_pasted_text(
    board: tuple[Keyboard, int],
) -> None:
    keyboard, master = board
    answers: list[None] = []
    keyboard.answered = lambda: answers.append(None)
    pasted = f"\x1b[200~pas{ANSWER_SEQUENCE}ted\x1b[201~"
    os.write(master, f"a{ANSWER_SEQUENCE}\x1b{UP}{pasted}".encode())
    keys = [(press.key, press.data) for press in keyboard.read_keys()]
    assert [key for key, _ in keys] == ["a", Keys.Escape, Keys.Up, Keys.BracketedPaste]
    assert keys[-1][1] == "pasted"
    assert len(answers) == 2


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("say it\r", [*"say it", Keys.Enter]),
        ("one\r\rtwo\r", ["one\n\ntwo", Keys.Enter]),
        ("one\rtwo", ["one\ntwo"]),
        ("one\r\ttwo\nthree\t\r", ["one\n\ttwo\nthree\t", Keys.Enter]),
        ("one\t\r", [*"one", Keys.Tab, Keys.Enter]),
        ("\rmore", [LINE_BREAK, "more"]),
        ("\r\r", [LINE_BREAK, Keys.Enter]),
        (f"one\r{ANSWER_SEQUENCE}", [*"one", Keys.Enter]),
        (f"one\r{ANSWER_SEQUENCE}two", ["one\ntwo"]),
        (f"one\r{UP}", [*"one", Keys.Enter, Keys.Up]),
        (f"one\x1b\r{UP}two", [*"one", Keys.Escape, Keys.Enter, Keys.Up, *"two"]),
        ("ein \N{WHITE SMILING FACE}\rzwei", ["ein \N{WHITE SMILING FACE}\nzwei"]),
    ],
)
def test_an_enter_that_text_follows_at_once_is_a_line_break(
    board: tuple[Keyboard, int], typed: str, keys: list[str]
) -> None:
    keyboard, master = board
    os.write(master, typed.encode())
    read = keyboard.read_keys()
    plain = (Keys.Any, LINE_BREAK)
    assert [one.data if {one.key, one.data} & {*plain} else one.key for one in read] == keys


def test_a_pasted_text_is_read_to_its_end_however_it_is_split(
    board: tuple[Keyboard, int],
) -> None:
    """As if each Enter were the last byte of a read."""
    keyboard, master = board
    pasted = "".join(f"{'x' * 1023}\r" for _ in range(3)).encode()
    os.write(master, pasted)
    text, enter = keyboard.read_keys()
    assert text.data == pasted.decode().replace("\r", "\n").removesuffix("\n")
    assert enter.key is Keys.Enter


def test_what_is_typed_before_the_chat_reads_keys_keeps_its_enters_unless_it_is_a_pasted_text(
    board: tuple[Keyboard, int],
) -> None:
    keyboard, _ = board
    type_ahead(keyboard, b"one\rtwo\r")
    assert [press.key for press in get_typeahead(keyboard)] == [
        *"one",
        Keys.Enter,
        *"two",
        Keys.Enter,
    ]
    type_ahead(keyboard, b"a line of a paste\r" * 100)
    text, enter = get_typeahead(keyboard)
    assert text.data.count("\n") == 99
    assert enter.key is Keys.Enter


def test_nothing_is_taken_for_a_key_after_the_user_has_left(
    board: tuple[Keyboard, int],
) -> None:
    keyboard, master = board
    keyboard.is_ignored = True
    os.write(master, b"ls\r\x1b")
    assert keyboard.read_keys() == keyboard.flush_keys() == []
