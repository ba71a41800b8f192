"""Splits a terminal's input into keys, pasted texts and reports; pure.

A sequence that no key has is dropped, as a part of it would otherwise be typed as text.
"""

import re
import sys
from typing import NamedTuple

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

FOCUS_IN, FOCUS_OUT, LONE_ESC = Keys.F21, Keys.F22, Keys.F23
"""Keys that no keyboard has: reports of the focus, and an Esc that begins no other key."""

ANSWER_SEQUENCE = "\x1b[0n"
"""A terminal's answer to the request for its status."""

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"

_FOCUS = {"\x1b[I": FOCUS_IN, "\x1b[O": FOCUS_OUT}
_ESC = KeyPress(LONE_ESC, "\x1b")

_ALT, _CTRL = 2, 4
"""Bits of a key's modifiers; a sequence has their sum plus one. Shift is 1."""

_REPORT = r"\x1b\[0n|\x1b\[[IO]|\x1b\]\d[^\x07\x1b]*(?:\x07|\x1b\\)"
_TOKEN = re.compile(
    r"(?P<text>[^\x1b]+)"
    r"|\x1b\[200~(?P<pasted>.*?)\x1b\[201~"
    r"|(?P<begun>\x1b\[200~.*|\x1b?\x1b(?:\[\[?[0-?]*[ -/]*|O|\](?:\d[^\x07\x1b]*\x1b?)?)?)\Z"
    rf"|(?P<report>{_REPORT})"
    rf"|(?P<lone>\x1b(?=\x1b(?:[^\[O]|\[200~)|{_REPORT}))"
    r"|(?P<key>\x1b?\x1b(?:\[\[[A-E]|\[[0-?]*[ -/]*[@-~]|O[ -~])|\x1b[^\x1b])",
    re.DOTALL,
)
"""Matches a piece of the input; `begun` is the beginning of one whose rest has not come."""

_MODIFIED = re.compile(
    r"\x1b\[(?:27;(?P<xterm>\d{1,3});(?P<character>\d{1,7})~"
    r"|(?P<code>\d{1,7})(?:;(?P<modifiers>\d{1,3}))?u)"
)
"""Matches a key as xterm (`modifyOtherKeys`) and kitty (`CSI u`) send it."""


class Pieces(NamedTuple):
    """A piece of the input, split."""

    keys: list[KeyPress]
    reports: list[str]
    """The terminal's answers, in order."""
    begun: str
    """The beginning of a sequence, to be put before what comes next."""


def is_pasting(begun: str) -> bool:
    """Whether a beginning is that of a pasted text, whose end may come at any time."""
    return begun.startswith(PASTE_BEGIN)


def split(text: str) -> Pieces:
    """Split what has come so far."""
    keys: list[KeyPress] = []
    reports: list[str] = []
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "text" | "key":
                keys += _keys(token[0])
            case "pasted":
                pasted, found = _without_answers(token["pasted"])
                keys.append(KeyPress(Keys.BracketedPaste, pasted))
                reports += found
            case "report":
                keys += [KeyPress(_FOCUS[token[0]], token[0])] if token[0] in _FOCUS else []
                reports += [] if token[0] in _FOCUS else [token[0]]
            case "lone":
                keys.append(_ESC)
            case _:
                return Pieces(keys, reports, token[0])
    return Pieces(keys, reports, "")


def given_up(begun: str) -> list[KeyPress]:
    """The keys of a beginning whose rest did not come in time."""
    if not begun.strip("\x1b"):
        return [_ESC] * len(begun)
    return _parsed(begun) if len(begun) == len("\x1b[") else []


def _without_answers(pasted: str) -> tuple[str, list[str]]:
    """A pasted text without the terminal's answers in it, and these."""
    return pasted.replace(ANSWER_SEQUENCE, ""), [ANSWER_SEQUENCE] * pasted.count(ANSWER_SEQUENCE)


def _keys(text: str) -> list[KeyPress]:
    if modified := _MODIFIED.fullmatch(text):
        code = int(modified["character"] or modified["code"])
        return _modified(code, int(modified["xterm"] or modified["modifiers"] or 1) - 1)
    is_known = text.removeprefix("\x1b") in ANSI_SEQUENCES or text in ANSI_SEQUENCES
    if text.startswith(("\x1b[", "\x1bO", "\x1b\x1b")) and not is_known:
        return []
    return _parsed(text)


def _modified(code: int, modifiers: int) -> list[KeyPress]:
    """The keys that an older terminal sends for a character with modifiers."""
    if code == ord("\r") and modifiers:
        return _parsed("\n")  # an Enter with any modifier is a new line
    if code == ord("\t") and modifiers:
        return _parsed("\x1b[Z")
    if code == ord("\x1b"):
        return [_ESC]
    character = chr(code) if code <= sys.maxunicode else ""
    if not (character.isascii() or character.isprintable()):
        return []  # a key without a character, such as Caps Lock
    if modifiers & _CTRL and character.isascii() and character.isalpha():
        character = chr(ord(character.upper()) - ord("@"))
    return _parsed(("\x1b" if modifiers & _ALT else "") + character)


def _parsed(text: str) -> list[KeyPress]:
    """The keys of complete text, as prompt-toolkit names them."""
    keys: list[KeyPress] = []
    Vt100Parser(keys.append).feed_and_flush(text)
    return keys
