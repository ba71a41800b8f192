"""A `ModelRequest` as the body of a Chat Completions request. Pure; no frame is decoded here.

What is built is valid whatever the items are: every call has one result, right after the message
that made it and in call order (G4); user messages never stand side by side, which the chat
templates of many local models refuse.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

import base64
import re
from copy import copy
from typing import Any, assert_never

import msgspec

from tiller_daemon.config.options import RESERVED
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.growing import conversation_of, encode_messages
from tiller_daemon.models.opaque import Origin
from tiller_daemon.models.wording import (
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

fits_as_call_id = re.compile(r"[!-~]{1,128}").fullmatch
fits_as_call_id_at_openai = re.compile(r"[!-~]{1,40}").fullmatch
"""Call ids that are sent back: OpenAI's own servers refuse longer ones, which others make."""

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""The names under which servers of this dialect send thinking, and take it back."""

EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
"""Variants that are sent as `reasoning_effort`."""

Message = dict[str, Any]


def build_body(request: ModelRequest, base_url: str = "", *, for_openai: bool = False) -> bytes:
    """The JSON body that asks the server at `base_url` for a streamed answer to `request`.

    Only thinking that came from there goes back. `for_openai` is for OpenAI's own servers, which
    are stricter than the compatible ones and have renamed `max_tokens`.
    """
    messages = build_messages(request, base_url, for_openai=for_openai)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": encode_messages(request, "openai_chat", messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    if request.max_output_tokens is not None:
        body["max_completion_tokens" if for_openai else "max_tokens"] = request.max_output_tokens
    if request.variant in EFFORTS:
        body["reasoning_effort"] = request.variant
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": request.output_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return msgspec.json.encode(_with_options(body, request))


def _with_options(body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
    """The body with the options over it, but for what is said of the conversation itself."""
    options = {name: value for name, value in request.options.items() if name not in RESERVED}
    if request.variant in EFFORTS:
        options.pop("reasoning_effort", None)
    return body | options


def build_messages(
    request: ModelRequest, base_url: str = "", *, for_openai: bool = False
) -> list[Message]:
    """The `messages` of the body, the system prompt first."""
    fixed = ("openai_chat", request.system, request.model, base_url, for_openai)

    def begin() -> _Conversation:
        ids = CallIds(fits_as_call_id_at_openai if for_openai else fits_as_call_id)
        return _Conversation(request, reasoning_tags(base_url, request.model), ids)

    return conversation_of(request, fixed, begin).finish()


def reasoning_tags(base_url: str, model: str) -> dict[str, str]:
    """The `opaque` of reasoning that came under each field: so it goes back."""
    origin = Origin("openai_chat", base_url, model)
    return {field: origin.seal(field) for field in REASONING_FIELDS}


class _Conversation:
    """Messages so far, and the response whose results have not been written yet."""

    def __init__(self, request: ModelRequest, reasoning_tags: dict[str, str], ids: CallIds) -> None:
        self._ids = ids
        self._messages: list[Message] = []
        if request.system:
            self._messages.append({"role": "system", "content": request.system})
        self._fields = {tag: field for field, tag in reasoning_tags.items()}
        self._reasoning: dict[str, str] = {}
        self._calls: list[ToolCall] = []

    def add(self, item: Item) -> None:
        """Take the next item of history."""
        match item:
            case UserMessage():
                self._say_as_user(user_text(item), item.images)
            case Notice():
                self._say_as_user(notice_text(item))
            case Compaction():
                self._say_as_user(summary_text(item))
            case AssistantMessage():
                if item.state != "discarded" and item.text:
                    self._say_as_assistant(item.text)
            case Reasoning():
                if item.state != "discarded":
                    self._think(item)
            case ToolCall():
                if not item.discarded:
                    self._call(item)
            case Patch():
                pass
            case _:
                assert_never(item)

    def finish(self) -> list[Message]:
        """The whole list as it is now; more items can be added all the same."""
        whole = copy(self)
        whole._ids = self._ids.copy()
        whole._messages = self._messages.copy()
        whole._calls = self._calls.copy()
        whole._reasoning = self._reasoning.copy()
        whole._write_results()
        return whole._messages

    def _say_as_user(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._write_results()
        self._reasoning.clear()
        parts: list[Message] = [{"type": "text", "text": text}] if text else []
        parts += [_image_part(image) for image in images]
        if self._last_role() == "user":
            self._messages[-1] = _user_message(_parts_of(self._messages[-1]) + parts)
        elif parts:
            self._messages.append(_user_message(parts))

    def _say_as_assistant(self, text: str) -> None:
        self._write_results()
        if self._last_role() == "assistant":
            said = self._messages[-1]
            self._messages[-1] = said | {"content": f"{said['content']}\n\n{text}"}
        else:
            self._messages.append({"role": "assistant", "content": text})

    def _think(self, item: Reasoning) -> None:
        self._write_results()
        field = self._fields.get(item.opaque)
        if field is not None and item.text:
            self._reasoning[field] = self._reasoning.get(field, "") + item.text

    def _call(self, call: ToolCall) -> None:
        if self._calls and self._calls[-1].ordinal != call.ordinal:
            self._write_results()
        self._calls.append(call)

    def _write_results(self) -> None:
        """Write the calls of the response that just ended, and then their results."""
        if not self._calls:
            return
        if self._last_role() != "assistant":
            self._messages.append({"role": "assistant", "content": None})
        ids = [self._ids.use(call.call_id) for call in self._calls]
        self._messages[-1] = (
            self._messages[-1]
            | self._reasoning
            | {
                "tool_calls": [
                    _tool_call(call, id_) for call, id_ in zip(self._calls, ids, strict=True)
                ]
            }
        )
        for call, id_ in zip(self._calls, ids, strict=True):
            self._messages.append(
                {"role": "tool", "tool_call_id": id_, "content": result_text(call)}
            )
        shown = [_image_part(image) for call in self._calls for image in call.images]
        if shown:
            note = {"type": "text", "text": "Images that the calls above returned:"}
            self._messages.append(_user_message([note, *shown]))
        self._calls.clear()

    def _last_role(self) -> str:
        return self._messages[-1]["role"] if self._messages else ""


def _user_message(parts: list[Message]) -> Message:
    """A user message: plain text as long as there is nothing else, which every server takes."""
    if all(part["type"] == "text" for part in parts):
        return {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}
    return {"role": "user", "content": parts}


def _parts_of(message: Message) -> list[Message]:
    content: str | list[Message] = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _image_part(image: Image) -> Message:
    data = base64.b64encode(image.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}


def _tool(spec: ToolSpec) -> Message:
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
    }
    return {"type": "function", "function": function}


def _tool_call(call: ToolCall, call_id: str) -> Message:
    function = {"name": usable_name(call.name), "arguments": usable_arguments(call.arguments)}
    return {"id": call_id, "type": "function", "function": function}
