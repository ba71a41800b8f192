"""Assembles the items of a Responses output. Pure.

A server sends each text three times: in pieces, complete at the end of its part and item, and again
in the last frame. Pieces are passed on as they arrive. If the pieces lack the end of a text, it is
added; any other difference is a stream error.
"""

import json
from collections import defaultdict

import msgspec
from msgspec import Raw

from tiller_daemon.models.base import Cited, HostedCall, ToolCallDone
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.openai_responses.event_builder import EventBuilder
from tiller_daemon.models.dialects.openai_responses.frames import (
    OutputItem,
    decode_item,
    mend,
)
from tiller_daemon.models.dialects.openai_responses.hosted_calls import (
    KINDS,
    citation_of,
    finished_call,
)
from tiller_daemon.models.dialects.surrogates import SurrogateMender


class StreamMismatch(ValueError):
    """The pieces don't match the complete item.

    The message is a predicate whose subject is the server, such as "left out parts of a text".
    """


class PartialOutput:
    """An item that is being streamed.

    `phase` is for messages. `number` is a call's place among the reported calls.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.phase = ""
        self.pieces: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        """The pieces of text by channel and part. The arguments of a call are a channel, too."""
        self.whole: set[tuple[str, int]] = set()
        """The parts that have been compared with the complete text."""
        self.is_done = False
        self.number = -1
        self.name = ""
        self.call_id = ""
        self.is_started = False
        self.is_complete = False
        self.hosted: HostedCall | None = None
        """The hosted call, once it has started."""

    def text_of(self, part: tuple[str, int]) -> str:
        """Return the text of a part as received so far."""
        return "".join(self.pieces.get(part, ()))


ARGUMENTS = ("arguments", 0)


class OutputAssembler:
    """All items received so far, in order. Methods raise `StreamMismatch` and `DECODING_FAILS`.

    `ordinal` is the number of the request in its session, for calls without an id.
    """

    def __init__(self, events: EventBuilder, ordinal: int) -> None:
        self._events = events
        self._ordinal = ordinal
        self._outputs: list[PartialOutput] = []
        self._places: dict[int | str, PartialOutput] = {}
        self._call_ids: set[str] = set()

    @property
    def calls(self) -> list[PartialOutput]:
        """The calls in order."""
        return [output for output in self._outputs if output.kind == "function_call"]

    def open(self, kind: str, *places: int | str | None) -> PartialOutput:
        """Add a new item, which replaces any other item with the same index or ids."""
        output = PartialOutput(kind)
        self._outputs.append(output)
        for place in places:
            if place is not None:
                self._places[place] = output
        return output

    def find(self, kind: str, *places: int | str | None) -> PartialOutput:
        """Return the item with this index or one of these ids; without either, the last item.

        If there is no such item, or it has another kind, a new item is added. Some servers send no
        indices, some send a new id in each frame, and some do both.
        """
        given = [place for place in places if place is not None]
        known = [self._places[place] for place in given if place in self._places]
        if not given:
            known = self._outputs[-1:]
        if known and known[0].kind == kind:
            return known[0]
        return self.open(kind, *places)

    def find_done(self, index: int | None, item: OutputItem) -> PartialOutput:
        """Return the item that is complete now.

        If the item at its index is already complete and has another id, a new item is added,
        because some servers use the same index for all items.
        """
        output = self.find(item.type, index, item.id, item.call_id)
        if output.is_done and item.id is not None and self._places.get(item.id) is not output:
            return self.open(item.type, index, item.id, item.call_id)
        return output

    def start_hosted_call(self, output: PartialOutput, item: OutputItem) -> None:
        """Report the start of a hosted call, unless it was already reported."""
        if output.kind not in KINDS or output.hosted is not None:
            return
        call_id = item.id or f"hosted_{self._ordinal}_{self._outputs.index(output)}"
        name = item.name or output.kind.removesuffix("_call")
        output.hosted = HostedCall(call_id, name, "running")
        self._events.add_hosted_call(output.hosted)

    def complete_all(self, output: list[Raw]) -> None:
        """Complete all items from the last frame, matched by call id or by order within a kind."""
        waiting = list(self._outputs)
        for raw in output:
            item = decode_item(raw)
            streamed = [one for one in waiting if one.kind == item.type]
            same = [one for one in streamed if item.call_id and one.call_id == item.call_id]
            if found := (same or streamed):
                waiting.remove(found[0])
                self.complete(found[0], item, raw)
            else:
                self.complete(self.open(item.type, item.id), item, raw)

    def complete(self, output: PartialOutput, item: OutputItem, raw: Raw) -> None:
        """Complete an item: add missing text, and store the item if it must be sent back."""
        if output.is_done:
            return
        output.is_done = True
        match output.kind:
            case "message":
                output.phase = output.phase or item.phase or ""
                for index, part in enumerate(item.content or ()):
                    self.complete_text(output, ("text", index), part.whole)
                    for annotation in part.annotations or ():
                        if citation := citation_of(annotation):
                            self._events.add_event(Cited(citation))
            case "function_call":
                self.start_call(output, item.call_id, item.tool)
                self.complete_arguments(output, item.arguments or "")
                if item.status != "incomplete":
                    self.complete_call(output)
            case "reasoning":
                for channel, parts in (("summary", item.summary), ("content", item.content)):
                    for index, part in enumerate(parts or ()):
                        self.complete_thinking(output, (channel, index), part.whole)
                if item.status != "incomplete" and (item.encrypted_content or item.content):
                    self._events.add_opaque(_clean(raw))
            case _:
                self.start_hosted_call(output, item)
                if output.hosted is not None:
                    self._events.add_hosted_call(finished_call(output.kind, output.hosted, raw))
                if item.status != "incomplete":
                    self._events.add_opaque(_clean(raw))

    def add_text(self, output: PartialOutput, part: tuple[str, int], piece: str) -> None:
        """Add a piece of a message."""
        output.pieces[part].append(piece)
        self._events.add_message_text(output, output.phase, piece)

    def complete_text(self, output: PartialOutput, part: tuple[str, int], whole: str) -> None:
        """Complete a part of a message."""
        if not whole or part in output.whole:
            return
        output.whole.add(part)
        so_far = output.text_of(part)
        if whole.startswith(so_far):
            if rest := whole[len(so_far) :]:
                self.add_text(output, part, rest)
        elif len(whole) > len(so_far):
            raise StreamMismatch("left out parts of a text")

    def add_thinking(self, output: PartialOutput, part: tuple[str, int], piece: str) -> None:
        """Add a piece of thinking. If both full text and a summary come, only the first is used."""
        if any(channel != part[0] for channel, _ in output.pieces):
            return
        output.pieces[part].append(piece)
        self._events.add_thinking((output, part), piece)

    def complete_thinking(self, output: PartialOutput, part: tuple[str, int], whole: str) -> None:
        """Complete a part of thinking. Thinking is only displayed, so a mismatch is ignored."""
        so_far = output.text_of(part)
        is_elsewhere = any(whole == output.text_of(other) for other in output.pieces)
        if len(whole) > len(so_far) and whole.startswith(so_far) and not is_elsewhere:
            self.add_thinking(output, part, whole[len(so_far) :])

    def start_call(self, output: PartialOutput, call_id: str | None, name: str | None) -> None:
        """Report the start of a call as soon as its name is known."""
        output.name = output.name or name or ""
        output.call_id = output.call_id or call_id or ""
        if output.is_started or not output.name:
            return
        output.is_started = True
        output.number = len(self._call_ids)
        if not output.call_id or output.call_id in self._call_ids:
            output.call_id = f"call_{self._ordinal}_{output.number}"
        self._call_ids.add(output.call_id)
        self._events.start_call(output.number, output.call_id, output.name)
        if so_far := output.text_of(ARGUMENTS):
            self._events.add_text(output.number, so_far)

    def add_arguments(self, output: PartialOutput, piece: str) -> None:
        """Add a piece of a call's arguments."""
        if ARGUMENTS in output.whole:
            if piece.strip():
                raise StreamMismatch("continued a tool call whose arguments were complete")
            return
        output.pieces[ARGUMENTS].append(piece)
        if output.is_started:
            self._events.add_text(output.number, piece)

    def complete_arguments(self, output: PartialOutput, whole: str) -> None:
        """Complete the arguments of a call. The call itself may still turn out incomplete."""
        if ARGUMENTS in output.whole:
            return
        so_far = output.text_of(ARGUMENTS)
        if whole.startswith(so_far):
            if rest := whole[len(so_far) :]:
                self.add_arguments(output, rest)
        elif whole.strip() and not _is_same_json(so_far, whole):
            raise StreamMismatch("left out parts of a tool call")
        output.whole.add(ARGUMENTS)

    def complete_call(self, output: PartialOutput) -> None:
        """Report the end of a call, so that the call can run."""
        if not output.is_started:
            raise StreamMismatch("sent a tool call without a name")
        if output.is_complete:
            return
        output.is_complete = True
        output.whole.add(ARGUMENTS)
        if not output.text_of(ARGUMENTS).strip():
            self._events.add_text(output.number, "{}")
        self._events.add_event(ToolCallDone(output.number))


def _is_same_json(one: str, other: str) -> bool:
    try:
        return json.loads(one) == json.loads(other)
    except (ValueError, RecursionError):
        return False


def _clean(raw: Raw) -> bytes:
    """Return an item unchanged, or repaired if it could not be decoded again."""
    item = bytes(raw)
    try:
        msgspec.json.decode(item)
    except DECODING_FAILS:
        return mend(item, SurrogateMender())
    return item
