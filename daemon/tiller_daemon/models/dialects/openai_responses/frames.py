"""The shapes of a Responses stream: which frames mean something, and what is read of them. Pure.

Everything else in a frame passes. What the frames add up to is in `stream`.
Format: https://platform.openai.com/docs/api-reference/responses-streaming
"""

import json
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from tiller_daemon.models.dialects.surrogates import SurrogateMender, joined

DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)

NOTHING = Raw()

KNOWN_TYPES = frozenset(
    {
        "error",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.refusal.delta",
        "response.refusal.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.cancelled",
    }
)
"""Types of frames that mean something here. What any other tells is in an `output_item.done`."""


DELTAS = frozenset(kind for kind in KNOWN_TYPES if kind.endswith(".delta"))


class Frame(Struct, gc=False):
    """One frame of any type. `item` and `response` are read when they are wanted."""

    type: str = ""
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    name: str | None = None
    item: Raw = NOTHING
    part: Raw = NOTHING
    response: Raw = NOTHING
    error: Raw = NOTHING
    object: str | None = None

    @property
    def place(self) -> tuple[str, int | None, str | None, int | None, int | None]:
        """Of what its delta is a piece."""
        return (
            self.type,
            self.output_index,
            self.item_id,
            self.content_index,
            self.summary_index,
        )

    @property
    def is_error(self) -> bool:
        """Whether it says that the stream has failed, in any of the ways that servers have."""
        return self.type == "error" or self.object == "error" or is_set(self.error)


class Part(Struct):
    """A piece of a message's or a reasoning item's content."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None

    @property
    def whole(self) -> str:
        """What it says."""
        return self.text or self.refusal or ""


class OutputItem(Struct):
    """An item of the output, as much as the kinds that are understood have."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class InputDetails(Struct):
    """Of the tokens in."""

    cached_tokens: int | None = None


class OutputDetails(Struct):
    """Of the tokens out."""

    reasoning_tokens: int | None = None


class ReportedUsage(Struct):
    """What the response cost."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class IncompleteDetails(Struct):
    """Why a response is not complete."""

    reason: str | None = None


class WholeResponse(Struct):
    """The response as the last frame repeats it."""

    status: str | None = None
    error: Raw = NOTHING
    incomplete_details: IncompleteDetails | None = None
    output: list[Raw] | None = None
    usage: ReportedUsage | None = None


class _Typed(Struct):
    """As much as every frame should have."""

    type: str = ""


decode_item = msgspec.json.Decoder(OutputItem).decode
decode_part = msgspec.json.Decoder(Part).decode
decode_response = msgspec.json.Decoder(WholeResponse).decode
decode_frame = msgspec.json.Decoder(Frame).decode
_decode_type = msgspec.json.Decoder(_Typed).decode


def is_set(raw: Raw) -> bool:
    """Whether a field was there and is not null."""
    return bytes(raw) not in (b"", b"null")


def decode_leniently(data: bytes, halves: SurrogateMender) -> Frame:
    """A frame that `decode_frame` refuses; raises one of `DECODING_FAILS`.

    Text that was cut in UTF-16 is joined with what `halves` holds. A frame that means nothing here
    may hold anything.
    """
    mended = mend(data, halves)
    try:
        return decode_frame(mended)
    except DECODING_FAILS:
        kind = _decode_type(mended).type
        if kind in KNOWN_TYPES or not kind:
            raise
        return Frame(type=kind)


def mend(data: bytes, halves: SurrogateMender) -> bytes:
    """A JSON object with halves of surrogate pairs in it, as one that can be decoded.

    The half at the end of a delta comes with the next one of the same item. Raises one of
    `DECODING_FAILS`.
    """
    told = json.loads(data)
    if not isinstance(told, dict):
        raise ValueError("no object")
    frame = cast("dict[str, Any]", told)
    if isinstance(delta := frame.get("delta"), str):
        channel = str([frame.get(key) for key in ("type", "output_index", "item_id")])
        frame["delta"] = halves.mend(channel, delta)
    return joined(json.dumps(frame, ensure_ascii=False)).encode()
