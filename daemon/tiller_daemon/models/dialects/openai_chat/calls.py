"""The tool calls of a Chat stream in the making: which piece is of which call, and its name. Pure.

Servers repeat names, cut them, send calls without ids or numbers, all under number 0, or several
at the same time.
"""

from typing import Any

import msgspec

from tiller_daemon.models.dialects.openai_chat.frames import CallDelta, Function

_DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)


class Call:
    """One call. `sent_id` is the server's own id, `number` its place among those that were said.

    It is `started` once it was said, which waits for the first of its arguments: until then its
    name may go on. `extra` is what the provider wants back with it.
    """

    def __init__(self, sent_id: str) -> None:
        self.number = -1
        self.sent_id = sent_id
        self.name = ""
        self.pieces: list[str] = []
        self.extra: Any = None
        self.started = False
        self.done = False

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a whole JSON object, to which nothing can be added."""
        try:
            msgspec.json.decode(self.arguments, type=dict[str, msgspec.Raw])
        except _DECODING_FAILS:
            return False
        return True

    def take(self, delta: CallDelta, piece: str) -> None:
        """Take a piece of the arguments, and whatever else a delta has."""
        if not self.started:
            self.name = _name_with(self.name, (delta.function or Function()).name or "")
        self.sent_id = self.sent_id or delta.id or ""
        if delta.extra_content is not None:
            self.extra = delta.extra_content
        if piece:
            self.pieces.append(piece)


class Calls:
    """The calls of one response, in the order in which they begin."""

    def __init__(self) -> None:
        self.all: list[Call] = []
        self._by_index: dict[int | None, Call] = {}

    def find(self, delta: CallDelta, piece: str) -> tuple[Call, bool]:
        """The call that a delta is for, and whether it has just begun."""
        call = self._by_index.get(delta.index)
        if call is not None and not _begins_another(call, delta, piece):
            return call, False
        call = self._by_index[delta.index] = Call(delta.id or "")
        self.all.append(call)
        return call, True


def arguments_of(delta: CallDelta) -> str:
    """The piece of arguments in a delta; some servers send the object itself."""
    arguments = delta.function.arguments if delta.function else None
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""


def _name_with(name: str, piece: str) -> str:
    """A name that may come once, again, longer each time, or in pieces."""
    return piece if piece.startswith(name) else name + piece


def _begins_another(call: Call, delta: CallDelta, piece: str) -> bool:
    """Whether a delta with the index of `call`, or with none, is for a new call after all.

    Some servers give every call of a response index 0, some none.
    """
    if not (delta.function and delta.function.name):
        return False
    is_other = delta.id != call.sent_id if delta.id else delta.index is None and piece != ""
    return is_other and call.is_complete
