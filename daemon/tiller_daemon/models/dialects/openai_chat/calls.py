"""Assembles the tool calls of a Chat stream. Pure.

Servers repeat names or split them, and send calls without ids, without indices, all with index 0,
or interleaved.
"""

from typing import Any

import msgspec

from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.openai_chat.frames import CallDelta, Function


class Call:
    """One call.

    `sent_id` is the server's id, `number` the place among the reported calls. A call is reported
    (`started`) with its first arguments, because its name may be incomplete until then. `extra` is
    data that the provider wants back with the call.
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
        """The arguments received so far."""
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a complete JSON object."""
        try:
            msgspec.json.decode(self.arguments, type=dict[str, msgspec.Raw])
        except DECODING_FAILS:
            return False
        return True

    def add_delta(self, delta: CallDelta, piece: str) -> None:
        """Add a piece of the arguments, and the other fields of `delta`."""
        if not self.started:
            self.name = _extend_name(self.name, (delta.function or Function()).name or "")
        self.sent_id = self.sent_id or delta.id or ""
        if delta.extra_content is not None:
            self.extra = delta.extra_content
        if piece:
            self.pieces.append(piece)


class Calls:
    """The calls of one response in the order of their first deltas."""

    def __init__(self) -> None:
        self.all: list[Call] = []
        self._by_index: dict[int | None, Call] = {}
        self._by_id: dict[str, Call] = {}

    def find(self, delta: CallDelta, piece: str) -> tuple[Call, bool]:
        """Return the call to which a delta belongs, and whether the call is new."""
        call = self._by_index.get(delta.index)
        # Some servers send the rest of a call with its id, but under another index.
        named = self._by_id.get(delta.id or "")
        is_other = named is not None and (call is None or call.sent_id != delta.id)
        if named is not None and is_other and _continues(named, delta, piece):
            return named, False
        if call is not None and not _begins_another(call, delta, piece):
            return call, False
        call = self._by_index[delta.index] = Call(delta.id or "")
        if delta.id:
            self._by_id[delta.id] = call
        self.all.append(call)
        return call, True


def arguments_of(delta: CallDelta) -> str:
    """Return the arguments in a delta as text. Some servers send them as an object."""
    arguments = delta.function.arguments if delta.function else None
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""


def _extend_name(name: str, piece: str) -> str:
    """Extend a name by a piece, which may repeat the whole name so far."""
    return piece if piece.startswith(name) else name + piece


def _continues(call: Call, delta: CallDelta, piece: str) -> bool:
    """Whether a delta with the id of `call` belongs to it, as ids are also used twice."""
    name = delta.function.name if delta.function else None
    return not name or (name == call.name and bool(piece) and not call.is_complete)


def _begins_another(call: Call, delta: CallDelta, piece: str) -> bool:
    """Whether a delta starts a new call, although the delta has the index of `call`.

    Some servers use index 0 or no index for every call of a response.
    """
    if not (delta.function and delta.function.name):
        return False
    is_other = delta.id != call.sent_id if delta.id else delta.index is None and piece != ""
    return is_other and call.is_complete
