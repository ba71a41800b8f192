"""Decisions of the turn that depend only on history. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from tiller_protocol.items import AssistantMessage, Item, ToolCall, UserMessage

DOOM_REPEATS = 3
"""When a call, or a cycle of calls, comes this many times in a row, the user is asked."""

DOOM_LOOP: Final = "doom_loop"
"""Names the permission to repeat a call, the kind of request, and the code of the ending."""

SUBJECT_CHARS_MAX = 200
"""Longer arguments are cut in a subject and followed by their hash, because a subject is shown on
one line and stored in rules."""

DOOM_CYCLE_CALLS_MAX = 4
"""Length of the longest cycle that is detected: a model may also loop through several calls."""

CALLS_BEFORE_MAX = DOOM_REPEATS * DOOM_CYCLE_CALLS_MAX - 1
"""How many earlier calls are compared to detect whether a call completes a loop."""

CALL_KEYS_CACHED_MAX = 256
"""Size of the key cache, enough for a few turns. Each call's key is needed a dozen times."""


def is_doom_loop(before: Sequence[ToolCall], call: ToolCall) -> bool:
    """Whether `call` completes a sequence of one to four calls for the third time in a row."""
    keys = [_call_key(one.name, one.arguments) for one in (*before[-CALLS_BEFORE_MAX:], call)]
    return any(_repeats(keys, length) for length in range(1, DOOM_CYCLE_CALLS_MAX + 1))


def repetition_subject(call: ToolCall) -> str:
    """Return the subject of rules about repetitions of `call`: its tool and arguments."""
    _, key = _call_key(call.name, call.arguments)
    arguments = key.decode(errors="replace")
    if len(arguments) > SUBJECT_CHARS_MAX:
        arguments = f"{arguments[:SUBJECT_CHARS_MAX]}… {sha256(key).hexdigest()[:16]}"
    return f"{call.name} {arguments}"


def last_user_text(items: Sequence[Item]) -> str:
    """Return the text of the user's latest message; empty without a message."""
    return next((item.text for item in reversed(items) if isinstance(item, UserMessage)), "")


def is_answered(items: Sequence[Item]) -> bool:
    """Whether history ends with a complete message of the model, or has nothing to answer.

    Notices, summaries and the user's own commands don't count, as they need no answer.
    """
    for item in reversed(items):
        match item:
            case AssistantMessage(text=text, state=state) if text and state != "discarded":
                return state == "completed"
            case UserMessage() | ToolCall(by_user=False, discarded=False):
                return False
            case _:
                pass
    return True


def recent_calls(items: Sequence[Item]) -> list[ToolCall]:
    """Return the calls since the user's latest message, at most `CALLS_BEFORE_MAX`, oldest first.

    Earlier calls don't count, because the message may ask for a repetition.
    """
    calls: list[ToolCall] = []
    for item in reversed(items):
        if isinstance(item, UserMessage) or len(calls) == CALLS_BEFORE_MAX:
            break
        if isinstance(item, ToolCall) and not (item.discarded or item.by_provider):
            calls.append(item)
    return calls[::-1]


def _repeats(keys: Sequence[tuple[str, bytes]], length: int) -> bool:
    tail = keys[-DOOM_REPEATS * length :]
    return len(tail) == DOOM_REPEATS * length and all(
        tail[n] == tail[n % length] for n in range(len(tail))
    )


@lru_cache(CALL_KEYS_CACHED_MAX)
def _call_key(name: str, arguments: str) -> tuple[str, bytes]:
    """Return a key by which to compare calls; arguments may differ in key order and whitespace."""
    try:
        ordered = msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        ordered = arguments.encode(errors="surrogatepass")
    return name.lower(), ordered
