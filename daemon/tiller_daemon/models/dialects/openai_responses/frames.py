"""The frames of a Responses stream. Pure.

Only the fields that we use are defined.
Format: https://platform.openai.com/docs/api-reference/responses-streaming
"""

import json
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from tiller_daemon.models.accounts.chatgpt import NAMESPACE
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.surrogates import SurrogateMender, repair_surrogates

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
"""The types of frames that we use. An `output_item.done` repeats the content of all other types."""


DELTAS = frozenset(kind for kind in KNOWN_TYPES if kind.endswith(".delta"))


class Frame(Struct, gc=False):
    """One frame of any type. `Raw` fields are decoded when they are needed."""

    type: str = ""
    """Determines which other fields are present."""

    item_id: str | None = None
    """The item's id; some servers use a new id in each frame."""

    output_index: int | None = None
    """The item's place in the output."""

    content_index: int | None = None
    """The place of a part in the item's content."""

    summary_index: int | None = None
    """The place of a part in the summary of the item's reasoning."""

    delta: str | None = None
    """The next piece of a text."""

    text: str | None = None
    """The complete text of a part."""

    refusal: str | None = None
    """The complete text of a part in which the model refuses to answer."""

    arguments: str | None = None
    """The complete arguments of a call."""

    name: str | None = None
    """The name of the called function."""

    item: Raw = NOTHING
    """An `OutputItem`."""

    part: Raw = NOTHING
    """A `Part`."""

    response: Raw = NOTHING
    """A `WholeResponse`."""

    error: Raw = NOTHING
    """An error; servers use various forms."""

    object: str | None = None
    """Has the value `error` in the errors of some servers."""

    @property
    def place(self) -> tuple[str, int | None, str | None, int | None, int | None]:
        """Identifies the text to which the delta belongs."""
        return (
            self.type,
            self.output_index,
            self.item_id,
            self.content_index,
            self.summary_index,
        )

    @property
    def is_error(self) -> bool:
        """Whether the stream has failed, in any of the forms that servers use."""
        return self.type == "error" or self.object == "error" or is_set(self.error)


class Part(Struct):
    """A part of the content of a message or a reasoning item."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None

    @property
    def whole(self) -> str:
        """The text of the part."""
        return self.text or self.refusal or ""


class OutputItem(Struct):
    """An item of the output."""

    type: str = ""
    """The kind of the item, such as `message`, `reasoning` or `function_call`."""

    id: str | None = None
    """The id of the item."""

    status: str | None = None
    """`incomplete` if the item was cut off."""

    phase: str | None = None
    """Whether a message is a commentary or the final answer."""

    content: list[Part] | None = None
    """The text of a message or of reasoning."""

    summary: list[Part] | None = None
    """The summary of reasoning."""

    encrypted_content: str | None = None
    """Reasoning that only the provider can read."""

    call_id: str | None = None
    """The id of a call, to be sent with its result."""

    name: str | None = None
    """The name of the called function."""

    namespace: str | None = None
    """The namespace of the called function, if it has one."""

    arguments: str | None = None
    """The arguments of a call."""

    @property
    def tool(self) -> str | None:
        """The name of the called tool. In a namespace that is not ours, there is no such tool."""
        is_ours = self.namespace in (None, "", NAMESPACE)
        return self.name if is_ours or not self.name else f"{self.namespace}.{self.name}"


class IncompleteDetails(Struct):
    """Why a response is not complete."""

    reason: str | None = None


class WholeResponse(Struct):
    """The complete response, as repeated in the last frame."""

    status: str | None = None
    """`completed`, `incomplete`, `failed` or `cancelled`."""

    error: Raw = NOTHING
    """Why the response failed."""

    incomplete_details: IncompleteDetails | None = None
    """Why the response is incomplete."""

    output: list[Raw] | None = None
    """All items of the output; empty from some servers."""

    usage: Any = None
    """Token counts."""


class _Typed(Struct):
    """The type of a frame; all other fields are ignored."""

    type: str = ""


decode_item = msgspec.json.Decoder(OutputItem).decode
decode_part = msgspec.json.Decoder(Part).decode
decode_response = msgspec.json.Decoder(WholeResponse).decode
decode_frame = msgspec.json.Decoder(Frame).decode
_decode_type = msgspec.json.Decoder(_Typed).decode


def is_set(raw: Raw) -> bool:
    """Whether a field is present and not null."""
    return bytes(raw) not in (b"", b"null")


def decode_leniently(data: bytes, surrogates: SurrogateMender) -> Frame:
    """Decode a frame that `decode_frame` refuses. Raises one of `DECODING_FAILS`.

    Split surrogate pairs are joined with the help of `surrogates`. Frames of types that we do not
    use may have any content.
    """
    mended = mend(data, surrogates)
    try:
        return decode_frame(mended)
    except DECODING_FAILS:
        kind = _decode_type(mended).type
        if kind in KNOWN_TYPES or not kind:
            raise
        return Frame(type=kind)


def mend(data: bytes, surrogates: SurrogateMender) -> bytes:
    """Repair the surrogate pairs in a JSON object, so that `msgspec` can decode it.

    Half a pair at the end of a delta is moved to the next delta of the same item. Raises one of
    `DECODING_FAILS`.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("not an object")
    frame = cast("dict[str, Any]", content)
    if isinstance(delta := frame.get("delta"), str):
        channel = str([frame.get(key) for key in ("type", "output_index", "item_id")])
        frame["delta"] = surrogates.mend(channel, delta)
    return repair_surrogates(json.dumps(frame, ensure_ascii=False)).encode()
