"""The items of one Responses output in the making: what was said so far, held against the whole.

Text comes three times: in pieces, whole when its part or item is done, and whole again in the last
frame. Pieces are handed on as they come; what was missing is added at the end where it can be, else
the stream is broken. Pure; frames are read in `stream`.
"""

import json

import msgspec
from msgspec import Raw

from tiller_daemon.models.dialects.openai_responses.event_builder import EventBuilder
from tiller_daemon.models.dialects.openai_responses.frames import (
    DECODING_FAILS,
    OutputItem,
    decode_item,
    mend,
)
from tiller_daemon.models.dialects.surrogates import SurrogateMender


class StreamMismatch(ValueError):
    """What was streamed is not what the server says that it was; says what of."""


class PartialOutput:
    """One item. `phase` is that of a message, `number` a call's place among those that began."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.phase = ""
        self.pieces: dict[tuple[str, int], list[str]] = {}
        """Text by channel and part; the arguments of a call are a channel too."""
        self.whole: set[tuple[str, int]] = set()
        """The parts of `pieces` that were held against the whole."""
        self.is_done = False
        self.number = -1
        self.name = ""
        self.call_id = ""
        self.is_started = False
        self.is_complete = False

    def said(self, part: tuple[str, int]) -> str:
        """The text of a part so far."""
        return "".join(self.pieces.get(part, ()))

    def add(self, part: tuple[str, int], piece: str) -> None:
        """Take the next piece of a part."""
        if part in self.pieces:
            self.pieces[part].append(piece)
        else:
            self.pieces[part] = [piece]


ARGUMENTS = ("arguments", 0)


class OutputAssembler:
    """All items so far, in order. Raises `StreamMismatch`, and one of `DECODING_FAILS`.

    `ordinal` is the number of the request in its session, for calls without an id.
    """

    def __init__(self, answer: EventBuilder, ordinal: int) -> None:
        self._answer = answer
        self._ordinal = ordinal
        self._all: list[PartialOutput] = []
        self._places: dict[int | str, PartialOutput] = {}
        self._call_ids: set[str] = set()

    @property
    def calls(self) -> list[PartialOutput]:
        """The calls, in order."""
        return [output for output in self._all if output.kind == "function_call"]

    def open(self, kind: str, *places: int | str | None) -> PartialOutput:
        """A new item; from now on it is the one at that place, and under those ids."""
        output = PartialOutput(kind)
        self._all.append(output)
        for place in places:
            if place is not None:
                self._places[place] = output
        return output

    def find(self, kind: str, *places: int | str | None) -> PartialOutput:
        """The item at a place, else under an id, without any the last one; else a new one.

        Some servers send no indices, some another id with each frame, some both.
        """
        told = [place for place in places if place is not None]
        known = [self._places[place] for place in told if place in self._places]
        if not told:
            known = self._all[-1:]
        if known and known[0].kind == kind:
            return known[0]
        return self.open(kind, *places)

    def find_done(self, index: int | None, item: OutputItem) -> PartialOutput:
        """The item that is done now: not one that was done before under another id."""
        output = self.find(item.type, index, item.id, item.call_id)
        if output.is_done and item.id is not None and self._places.get(item.id) is not output:
            return self.open(item.type, index, item.id, item.call_id)
        return output

    def complete_all(self, output: list[Raw]) -> None:
        """Hold the items of the last frame against what was streamed, each kind in its order."""
        waiting = list(self._all)
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
        """An item is done: add what its pieces left out, and keep it where it goes back."""
        if output.is_done:
            return
        output.is_done = True
        match output.kind:
            case "message":
                output.phase = output.phase or item.phase or ""
                for index, part in enumerate(item.content or ()):
                    self.complete_text(output, ("text", index), part.whole)
            case "function_call":
                self.start_call(output, item.call_id, item.name)
                self.complete_arguments(output, item.arguments or "")
                if item.status != "incomplete":
                    self.complete_call(output)
            case "reasoning":
                for channel, parts in (("summary", item.summary), ("content", item.content)):
                    for index, part in enumerate(parts or ()):
                        self.complete_thinking(output, (channel, index), part.whole)
                if item.status != "incomplete" and (item.encrypted_content or item.content):
                    self._answer.keep(_clean(raw))
            case _:
                if item.status != "incomplete":
                    self._answer.keep(_clean(raw))

    def say(self, output: PartialOutput, part: tuple[str, int], piece: str) -> None:
        """The next piece of a message."""
        output.add(part, piece)
        self._answer.say(output, output.phase, piece)

    def complete_text(self, output: PartialOutput, part: tuple[str, int], whole: str) -> None:
        """A part of a message is whole."""
        if not whole or part in output.whole:
            return
        output.whole.add(part)
        said = output.said(part)
        if whole.startswith(said):
            if rest := whole[len(said) :]:
                self.say(output, part, rest)
        elif len(whole) > len(said):
            raise StreamMismatch("sent text of which pieces are missing")

    def think(self, output: PartialOutput, part: tuple[str, int], piece: str) -> None:
        """The next piece of thinking: in full or as a summary, whichever the item begins with."""
        if any(channel != part[0] for channel, _ in output.pieces):
            return
        output.add(part, piece)
        self._answer.think((output, part), piece)

    def complete_thinking(self, output: PartialOutput, part: tuple[str, int], whole: str) -> None:
        """A part of thinking is whole; it is for people, so nothing depends on it."""
        said = output.said(part)
        is_elsewhere = any(whole == output.said(other) for other in output.pieces)
        if len(whole) > len(said) and whole.startswith(said) and not is_elsewhere:
            self.think(output, part, whole[len(said) :])

    def start_call(self, output: PartialOutput, call_id: str | None, name: str | None) -> None:
        """A call begins as soon as it has a name."""
        output.name = output.name or name or ""
        output.call_id = output.call_id or call_id or ""
        if output.is_started or not output.name:
            return
        output.is_started = True
        output.number = len(self._call_ids)
        if not output.call_id or output.call_id in self._call_ids:
            output.call_id = f"call_{self._ordinal}_{output.number}"
        self._call_ids.add(output.call_id)
        self._answer.start_call(output.number, output.call_id, output.name)
        if said := output.said(ARGUMENTS):
            self._answer.argue(output.number, said)

    def argue(self, output: PartialOutput, piece: str) -> None:
        """The next piece of a call's arguments."""
        if ARGUMENTS in output.whole:
            if piece.strip():
                raise StreamMismatch("went on with a tool call after its arguments were complete")
            return
        output.add(ARGUMENTS, piece)
        if output.is_started:
            self._answer.argue(output.number, piece)

    def complete_arguments(self, output: PartialOutput, whole: str) -> None:
        """The arguments of a call are what they will be, which is not yet to say that it counts."""
        if ARGUMENTS in output.whole:
            return
        said = output.said(ARGUMENTS)
        if whole.startswith(said):
            if rest := whole[len(said) :]:
                self.argue(output, rest)
        elif whole.strip() and not _is_same_json(said, whole):
            raise StreamMismatch("sent a tool call of which pieces are missing")
        output.whole.add(ARGUMENTS)

    def complete_call(self, output: PartialOutput) -> None:
        """A call counts: it can run."""
        if not output.is_started:
            raise StreamMismatch("sent a tool call without a name")
        if output.is_complete:
            return
        output.is_complete = True
        output.whole.add(ARGUMENTS)
        if not output.said(ARGUMENTS).strip():
            self._answer.argue(output.number, "{}")
        self._answer.complete_call(output.number)


def _is_same_json(one: str, other: str) -> bool:
    try:
        return json.loads(one) == json.loads(other)
    except (ValueError, RecursionError):
        return False


def _clean(raw: Raw) -> bytes:
    """An item as it came; only what nobody could decode again is mended."""
    item = bytes(raw)
    try:
        msgspec.json.decode(item)
    except DECODING_FAILS:
        return mend(item, SurrogateMender())
    return item
