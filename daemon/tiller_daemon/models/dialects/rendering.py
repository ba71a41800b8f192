"""Renders calls as the text, names and ids of a request. Pure, and the same for every dialect."""

import re
from collections.abc import Callable

import msgspec

from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_protocol.items import ToolCall

NO_RESULT = "This call has no result: it did not finish."
NO_OUTPUT = "(no output)"

DOCUMENT_NAME = "document.pdf"
"""The file name given to PDF documents, whose own names are not known."""

NAME_CHARS_MAX = 64
"""The longest function name that OpenAI's own servers accept."""

# Created only once, because every call in the history uses this decoder.
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def result_text(call: ToolCall) -> str:
    """Return the result of a call, which is never blank."""
    if call.state in ("pending", "running"):
        return f"{NO_RESULT}\n{call.output}".rstrip()
    if call.output.strip():
        return call.output
    return f"error: {call.error_kind}" if call.error_kind else NO_OUTPUT


def usable_name(name: str) -> str:
    """Return `name` in a form that servers accept. Models invent names such as `functions.read`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:NAME_CHARS_MAX] or "unknown"


def usable_arguments(arguments: str) -> str:
    """Return `arguments` if they are a JSON object, perhaps as text; else an empty object."""
    for _ in range(2):
        try:
            _decode_object(arguments)
        except DECODING_FAILS:
            arguments = _text_in(arguments)
        else:
            return arguments
    return "{}"


def _text_in(value: str) -> str:
    """Return the text that a JSON value is; empty for any other value."""
    try:
        return msgspec.json.decode(value, type=str)
    except DECODING_FAILS:
        return ""


class CallIds:
    """Makes the call ids of one request unique and valid.

    `fits` returns a true value for a valid id. `make` returns a valid id for a number.
    """

    def __init__(
        self, fits: Callable[[str], object], make: Callable[[int], str] = "call_{}".format
    ) -> None:
        self._fits = fits
        self._make = make
        self._used: set[str] = set()

    def copy(self) -> "CallIds":
        """Return an independent copy."""
        other = CallIds(self._fits, self._make)
        other._used = self._used.copy()
        return other

    def use(self, call_id: str) -> str:
        """Return `call_id` if it is valid and unused, else a new id.

        A new id depends only on the ids before it, so that a longer history begins with the same
        messages and the provider's prompt cache can be used.
        """
        number = len(self._used)
        while call_id in self._used or not self._fits(call_id):
            call_id, number = self._make(number), number + 1
        self._used.add(call_id)
        return call_id
