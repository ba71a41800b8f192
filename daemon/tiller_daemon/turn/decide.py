"""Decisions of the turn that need nothing but history. Pure."""

import json
from collections.abc import Iterable, Sequence

from tiller_protocol.items import Item, ToolCall, UserMessage

DOOM_REPEATS = 3
"""How often a call, or a cycle of calls, comes in a row before the user is asked."""

DOOM_CYCLE_CALLS_MAX = 4
"""Longest cycle looked for: a model that alternates between a few calls loops as well."""


def is_doom_loop(before: Iterable[ToolCall], call: ToolCall) -> bool:
    """Whether `call` completes the third repetition of the same one to four calls in a row."""
    marks = [_mark(one) for one in (*list(before)[1 - DOOM_REPEATS * DOOM_CYCLE_CALLS_MAX :], call)]
    return any(_repeats(marks, length) for length in range(1, DOOM_CYCLE_CALLS_MAX + 1))


def calls_since_input(items: Sequence[Item]) -> list[ToolCall]:
    """The calls since the user last said something, which may well ask for a repetition."""
    found: list[ToolCall] = []
    for item in reversed(items):
        if isinstance(item, UserMessage):
            break
        if isinstance(item, ToolCall) and not item.discarded:
            found.append(item)
    return found[::-1]


def _repeats(marks: Sequence[tuple[str, str]], length: int) -> bool:
    tail = marks[-DOOM_REPEATS * length :]
    return len(tail) == DOOM_REPEATS * length and all(
        tail[n] == tail[n % length] for n in range(len(tail))
    )


def _mark(call: ToolCall) -> tuple[str, str]:
    """What makes two calls the same: the order of keys and blanks does not count."""
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return call.name.lower(), arguments
