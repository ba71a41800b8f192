"""A `ModelRequest` as the body of a Responses request. Pure; no frame is decoded here.

Nothing is stored at the provider: each request holds the whole conversation. What only the
provider can read (encrypted reasoning, calls of its hosted tools) goes back byte for byte, and only
with what came behind it in the same response: the servers refuse reasoning without its following
item. Whatever the items are, every call has one output, in call order, behind its response (G4).
Format: https://platform.openai.com/docs/api-reference/responses/create
"""

import base64
import re
from typing import Any, assert_never

import msgspec
from msgspec import Raw, Struct

from tiller_daemon.config.options import RESERVED, merge_options
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.schema import is_strict
from tiller_daemon.models.dialects.rendering import (
    CallIds,
    notice_text,
    result_text,
    summary_text,
    usable_arguments,
    usable_name,
    user_text,
)
from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Image,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    UserMessage,
)

API = "openai_responses"

ENCRYPTED_REASONING = "reasoning.encrypted_content"

EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
"""Variants that are sent as the effort of reasoning."""

OUTPUT_TOKENS_MIN_OPENAI = 16
"""OpenAI's own servers refuse a smaller `max_output_tokens`."""

PROTECTED_FIELDS = RESERVED | {
    "background",
    "conversation",
    "input",
    "instructions",
    "previous_response_id",
}
"""What is said of the conversation itself; no option takes its place."""

fits_as_call_id = re.compile(r"[!-~]{1,64}").fullmatch

InputItem = dict[str, Any]


class OpaqueItem(Struct, omit_defaults=True):
    """What is looked at of an item that goes back as it came.

    Of a message, which is written from history, only this much is kept: its `phase`, and that
    another one begins.
    """

    type: str = ""
    call_id: str = ""
    phase: str = ""


_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_opaque = msgspec.json.Decoder(OpaqueItem).decode


def build_body(
    request: ModelRequest, base_url: str = "", *, for_openai: bool = False, opaque: bool = True
) -> bytes:
    """The JSON body that asks the server at `base_url` for a streamed answer to `request`.

    `for_openai` is for OpenAI's own servers. Without `opaque` nothing is sent that only the server
    can read, nor asked for.
    """
    origin = Origin(API, base_url, request.model) if opaque else None
    body: dict[str, Any] = {
        "model": request.model,
        "input": build_input(request, origin),
        "stream": True,
        "store": False,
    }
    if request.system:
        body["instructions"] = request.system
    if opaque:
        body["include"] = [ENCRYPTED_REASONING]
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    if request.max_output_tokens is not None:
        least = OUTPUT_TOKENS_MIN_OPENAI if for_openai else 1
        body["max_output_tokens"] = max(least, request.max_output_tokens)
    if for_openai:
        body["prompt_cache_key"] = request.session_id
    return msgspec.json.encode(_with_options(body, request))


def build_input(request: ModelRequest, origin: Origin | None) -> list[InputItem | Raw]:
    """The `input` of the body. `origin` is where opaque things must come from to go back."""
    conversation = _InputBuilder(origin)
    for item in request.items:
        conversation.add(item)
    return conversation.finish()


def seal_items(origin: Origin, items: list[bytes]) -> str:
    """The `opaque` of a stretch of items that go back as they came; each is JSON text."""
    return origin.seal(f"[{','.join(item.decode() for item in items)}]")


def _with_options(body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
    """The body with the options over it, but for what the turn itself asks."""
    options = {
        name: value for name, value in request.options.items() if name not in PROTECTED_FIELDS
    }
    asked: dict[str, Any] = {}
    if request.variant in EFFORTS:
        asked["reasoning"] = {"effort": request.variant}
    if request.output_schema is not None:
        asked["text"] = {"format": _format(request.output_schema)}
    merged = merge_options(body, options, asked)
    if "include" not in body and ENCRYPTED_REASONING in merged.get("include", ()):
        merged["include"] = [one for one in merged["include"] if one != ENCRYPTED_REASONING]
    return merged


class _InputBuilder:
    """Input items so far, and the response whose outputs have not been written yet."""

    def __init__(self, origin: Origin | None) -> None:
        self._origin = origin
        self._items: list[InputItem | Raw] = []
        self._ids = CallIds(fits_as_call_id)
        self._pending: list[tuple[OpaqueItem, Raw]] = []
        """What goes back as soon as something follows it in its response."""
        self._outputs: list[InputItem] = []
        self._ordinal = -1
        self._after_calls: list[AssistantMessage | Reasoning] = []
        """What came behind calls: of the same response if more of its calls follow."""

    def add(self, item: Item) -> None:
        """Take the next item of history."""
        match item:
            case UserMessage():
                self._add_user_message(user_text(item), item.images)
            case Notice():
                self._add_user_message(notice_text(item))
            case Compaction():
                self._add_user_message(summary_text(item))
            case AssistantMessage() | Reasoning():
                if self._outputs:
                    self._after_calls.append(item)
                else:
                    self._add_model_item(item)
            case ToolCall():
                if not item.discarded:
                    self._add_call(item)
            case Patch():
                pass
            case _:
                assert_never(item)

    def finish(self) -> list[InputItem | Raw]:
        """The whole list."""
        self._end_response()
        return self._items

    def _add_user_message(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._end_response()
        self._pending.clear()
        parts: list[InputItem] = [{"type": "input_text", "text": text}] if text else []
        parts += [_image_part(image) for image in images]
        if last := self._last_message("user"):
            last["content"] += parts
        elif parts:
            self._items.append({"type": "message", "role": "user", "content": parts})

    def _add_model_item(self, item: AssistantMessage | Reasoning) -> None:
        if isinstance(item, Reasoning):
            if item.state == "completed":
                self._pending += self._unsealed(item.opaque)
        elif item.text and item.state != "discarded":
            phase = self._flush_pending()
            if (last := self._last_message("assistant")) and last.get("phase", "") == phase == "":
                last["content"] += f"\n\n{item.text}"
            else:
                message = {"type": "message", "role": "assistant", "content": item.text}
                self._items.append(message | ({"phase": phase} if phase else {}))

    def _add_call(self, call: ToolCall) -> None:
        if call.ordinal != self._ordinal:
            self._end_response()
        later, self._after_calls = self._after_calls, []
        for item in later:
            self._add_model_item(item)
        self._flush_pending()
        self._ordinal = call.ordinal
        call_id = self._ids.use(call.call_id)
        self._items.append(
            {
                "type": "function_call",
                "call_id": call_id,
                "name": usable_name(call.name),
                "arguments": usable_arguments(call.arguments),
            }
        )
        self._outputs.append(
            {"type": "function_call_output", "call_id": call_id, "output": _output(call)}
        )

    def _end_response(self) -> None:
        """Write the outputs of the response that just ended, and what came behind it."""
        self._items += self._outputs
        self._outputs = []
        later, self._after_calls = self._after_calls, []
        for item in later:
            self._add_model_item(item)

    def _flush_pending(self) -> str:
        """Write what goes back as it came; returns the phase of the message that follows.

        A hosted call goes with its output or not at all: nobody here can give it one.
        """
        phase = ""
        calls = {kept.call_id for kept, _ in self._pending if not kept.type.endswith("_output")}
        outputs = {kept.call_id for kept, _ in self._pending if kept.type.endswith("_output")}
        for kept, raw in self._pending:
            if kept.type == "message":
                phase = kept.phase
            elif not kept.call_id or kept.call_id in calls & outputs:
                self._items.append(raw)
        self._pending.clear()
        return phase

    def _unsealed(self, opaque: str) -> list[tuple[OpaqueItem, Raw]]:
        content = self._origin.unseal(opaque) if self._origin else None
        return [(_decode_opaque(raw), raw) for raw in _decode_items(content)] if content else []

    def _last_message(self, role: str) -> InputItem | None:
        last = self._items[-1] if self._items else None
        return last if isinstance(last, dict) and last.get("role") == role else None


def _output(call: ToolCall) -> str | list[InputItem]:
    text = result_text(call)
    if not call.images:
        return text
    return [{"type": "input_text", "text": text}, *map(_image_part, call.images)]


def _image_part(image: Image) -> InputItem:
    data = base64.b64encode(image.data).decode()
    url = f"data:{image.media_type};base64,{data}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _tool(spec: ToolSpec) -> InputItem:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": False,
    }


def _format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}
