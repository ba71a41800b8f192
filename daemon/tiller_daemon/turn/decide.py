"""Decisions of the turn that need nothing but history. Pure."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from tiller_protocol.items import Item, ToolCall, UserMessage

DOOM_REPEATS = 3
"""How often a call, or a cycle of calls, comes in a row before the user is asked."""

DOOM_CYCLE_CALLS_MAX = 4
"""Longest cycle looked for: a model that alternates between a few calls loops as well."""

CALLS_BEFORE_MAX = DOOM_REPEATS * DOOM_CYCLE_CALLS_MAX - 1
"""So many calls before one decide whether it goes in circles."""

CALL_KEYS_CACHED_MAX = 256
"""Calls whose mark is remembered: those of a few turns, as each is looked at a dozen times."""


def is_doom_loop(before: Sequence[ToolCall], call: ToolCall) -> bool:
    """Whether `call` completes the third repetition of the same one to four calls in a row."""
    marks = [_call_key(one.name, one.arguments) for one in (*before[-CALLS_BEFORE_MAX:], call)]
    return any(_repeats(marks, length) for length in range(1, DOOM_CYCLE_CALLS_MAX + 1))


def last_user_text(items: Sequence[Item]) -> str:
    """What the user said last."""
    return next((item.text for item in reversed(items) if isinstance(item, UserMessage)), "")


def recent_calls(items: Sequence[Item]) -> list[ToolCall]:
    """The newest calls, as many as decide about the next one, since the user said something.

    What the user says may well ask for a repetition.
    """
    found: list[ToolCall] = []
    for item in reversed(items):
        if isinstance(item, UserMessage) or len(found) == CALLS_BEFORE_MAX:
            break
        if isinstance(item, ToolCall) and not item.discarded:
            found.append(item)
    return found[::-1]


def _repeats(marks: Sequence[tuple[str, bytes]], length: int) -> bool:
    tail = marks[-DOOM_REPEATS * length :]
    return len(tail) == DOOM_REPEATS * length and all(
        tail[n] == tail[n % length] for n in range(len(tail))
    )


@lru_cache(CALL_KEYS_CACHED_MAX)
def _call_key(name: str, arguments: str) -> tuple[str, bytes]:
    """What makes two calls the same: the order of keys and blanks does not count."""
    try:
        ordered = msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        ordered = arguments.encode(errors="surrogatepass")
    return name.lower(), ordered
