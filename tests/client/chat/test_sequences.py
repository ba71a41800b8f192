"""What a terminal sends is split into keys, pastes and reports, and Esc has its own deadline."""

import asyncio
import os

import pytest
from prompt_toolkit.keys import Keys

from support.each import each
from support.frontend import TIMEOUT_S
from tiller_client.chat.terminal import keyboard
from tiller_client.chat.terminal.keyboard import Keyboard
from tiller_client.chat.terminal.sequences import (
    ANSWER_SEQUENCE,
    FOCUS_IN,
    LONE_ESC,
    given_up,
    split,
)

BACKGROUND = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\"
NEW_LINE = Keys.ControlJ


@each(
    ("text", "keys"),
    [
        ("\x1bm", [Keys.Escape, "m"]),
        ("\x1b\x1b[A", [Keys.Escape, Keys.Up]),
        (f"\x1b{ANSWER_SEQUENCE}m", [LONE_ESC, "m"]),
        (f"\x1b{BACKGROUND}m", [LONE_ESC, "m"]),
        ("\x1b\x1b[Im", [LONE_ESC, FOCUS_IN, "m"]),
        ("\x1b\x1bm", [LONE_ESC, Keys.Escape, "m"]),
        ("\x1b[13;2u", [NEW_LINE]),
        ("\x1b[13;3u", [NEW_LINE]),
        ("\x1b[27;2;13~", [NEW_LINE]),
        ("\x1b[27;5;13~", [NEW_LINE]),
        ("\x1b[27u", [LONE_ESC]),
        ("\x1b[99;5u", [Keys.ControlC]),
        ("\x1b[27;5;99~", [Keys.ControlC]),
        ("\x1b[109;3u", [Keys.Escape, "m"]),
        ("\x1b[9;2u", [Keys.BackTab]),
        ("\x1b[?62;4ca", ["a"]),
        ("\x1b[57441;1ub", ["b"]),
        ("\x1b[<0;1;1Mc", ["c"]),
    ],
)
def test_each_sequence_is_its_key_and_none_is_typed_as_text(text: str, keys: list[str]) -> None:
    found = split(text)
    assert ([one.key for one in found.keys], found.begun) == (keys, "")


def test_an_escape_is_decided_at_its_deadline_whatever_comes_next(
    board: tuple[Keyboard, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyboard, "ESCAPE_S", 0.0)
    keys, master = board
    os.write(master, b"\x1b")
    assert keys.read_keys() == []
    os.write(master, b"make it shorter")
    first, *rest = keys.read_keys()
    assert first.key is LONE_ESC
    assert "".join(one.data for one in rest) == "make it shorter"


def test_an_escape_is_read_at_its_deadline_if_nothing_else_comes(
    board: tuple[Keyboard, int],
) -> None:
    keys, master = board

    async def play() -> list[str]:
        read: list[str] = []
        pressed = asyncio.Event()

        def ready() -> None:
            read.extend(one.key for one in keys.read_keys())
            if read:
                pressed.set()

        with keys.attach(ready):
            os.write(master, b"\x1b")
            await asyncio.wait_for(pressed.wait(), TIMEOUT_S)
        return read

    assert asyncio.run(play()) == [LONE_ESC]


def test_a_report_that_is_never_whole_is_not_typed() -> None:
    assert split("\x1b]11;rgb:ffff").begun == "\x1b]11;rgb:ffff"
    assert given_up("\x1b]11;rgb:ffff") == []
    assert [one.key for one in given_up("\x1b")] == [LONE_ESC]


def test_a_report_comes_whole_however_it_is_split(board: tuple[Keyboard, int]) -> None:
    keys, master = board
    reports: list[str] = []
    keys.reported = reports.append
    for letter in BACKGROUND:
        os.write(master, letter.encode())
        assert keys.read_keys() == []
    assert reports == [BACKGROUND]
