"""What a request says of an item, and under which names, alike in every dialect. Pure.

How a dialect arranges it is the business of its own module.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from tiller_protocol.items import Compaction, Notice, ToolCall, UserMessage

NO_RESULT = "This call has no result: it did not run to its end."
NO_OUTPUT = "(no output)"

NAME_CHARS_MAX = 64
"""Longest function name that OpenAI's own servers take."""

NAMES_CACHED_MAX = 256
"""Names of functions whose usable form is remembered; more than there are tools."""

# Made once: every call of a session's history goes through it with every request.
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def user_text(item: UserMessage) -> str:
    """What the user said, and the files that they named."""
    if not item.files:
        return item.text
    names = "\n".join(f"- {name}" for name in item.files)
    return f"{item.text}\n\nFiles to look at:\n{names}"


def notice_text(item: Notice) -> str:
    """A notice of the daemon; told as the user."""
    return f'<notice code="{item.code}">\n{item.text}\n</notice>'


def summary_text(item: Compaction) -> str:
    """The summary of what is gone; told as the user."""
    return f"<summary>\n{item.summary}\n</summary>"


def result_text(call: ToolCall) -> str:
    """The result of a call, which is never empty."""
    if call.state in ("pending", "running"):
        return f"{NO_RESULT}\n{call.output}".rstrip()
    if call.output:
        return call.output
    return f"error: {call.error_kind}" if call.error_kind else NO_OUTPUT


@lru_cache(NAMES_CACHED_MAX)
def usable_name(name: str) -> str:
    """Models invent names that no server takes back, such as `functions.read`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:NAME_CHARS_MAX] or "unknown"


def usable_arguments(arguments: str) -> str:
    """The arguments if they are a JSON object, else an empty one."""
    try:
        _decode_object(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "{}"
    return arguments


class CallIds:
    """The ids of the calls of one request: unique, and such that `fits` says something of each.

    `make` gives an id that fits for each number.
    """

    def __init__(
        self, fits: Callable[[str], object], make: Callable[[int], str] = "call_{}".format
    ) -> None:
        self._fits = fits
        self._make = make
        self._used: set[str] = set()

    def copy(self) -> "CallIds":
        """Ids that go on from here by themselves."""
        other = CallIds(self._fits, self._make)
        other._used = self._used.copy()
        return other

    def use(self, call_id: str) -> str:
        """`call_id` where it fits, else one that depends on what came before alone."""
        number = len(self._used)
        while call_id in self._used or not self._fits(call_id):
            call_id, number = self._make(number), number + 1
        self._used.add(call_id)
        return call_id
