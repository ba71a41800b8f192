"""A `ModelRequest` as the body of a Chat Completions request. Pure; no frame is decoded here.

What is built is valid whatever the items are: every call has one result, right after the message
that made it and in call order (G4); user messages never stand side by side, which the chat
templates of many local models refuse.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

import base64
import re
from collections.abc import Iterator
from copy import copy
from typing import Any, assert_never

import msgspec

from tiller_daemon.config.options import RESERVED
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.openai_chat.opaque_fields import (
    API,
    OpaqueFields,
    origin_of,
    unseal_fields,
)
from tiller_daemon.models.dialects.rendering import (
    CallIds,
    notice_text,
    result_text,
    summary_text,
    usable_arguments,
    usable_name,
    user_text,
)
from tiller_daemon.models.dialects.response_splitter import ModelItem, ResponseSplitter
from tiller_daemon.models.history_cache import HistoryCache
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
fits_as_call_id_of_mistral = re.compile(r"[a-zA-Z0-9]{9}").fullmatch
"""Call ids that are sent back: OpenAI's own servers refuse longer ones, which others make, and
Mistral's models all but their own kind."""

is_mistral = re.compile(r"(mi|mini|dev|magi|code)stral|pixtral", re.IGNORECASE).search
"""Whether a model's name is one of Mistral's, wherever it is served: what its format refuses, its
template refuses too."""

RESULTS_READ = "I have read the results."
"""Said for a Mistral model between results and the user's words: it wants them apart."""

EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
"""Variants that are sent as `reasoning_effort`."""

Message = dict[str, Any]


def build_body(request: ModelRequest, base_url: str = "", *, for_openai: bool = False) -> bytes:
    """The JSON body that asks the server at `base_url` for a streamed answer to `request`.

    Only thinking that came from there goes back. `for_openai` is for OpenAI's own servers, which
    are stricter than the compatible ones and have renamed `max_tokens`.
    """
    cache = request.history_cache or HistoryCache()
    messages = build_messages(request, base_url, for_openai=for_openai)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": cache.encode(API, messages),
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
    key = (API, request.system, request.model, base_url, for_openai)

    def create() -> _MessageHistory:
        if is_mistral(request.model):
            ids = CallIds(fits_as_call_id_of_mistral, "{:09}".format)
        else:
            ids = CallIds(fits_as_call_id_at_openai if for_openai else fits_as_call_id)
        return _MessageHistory(request, base_url, ids)

    cache = request.history_cache or HistoryCache()
    return cache.builder(key, request.items, create).finish()


class _MessageHistory:
    """Messages so far, none of which is changed any more, and what was spoken behind them."""

    def __init__(self, request: ModelRequest, base_url: str, ids: CallIds) -> None:
        self._origin = origin_of(base_url, request.model)
        self._is_mistral = bool(is_mistral(request.model))
        self._ids = ids
        self._messages: list[Message] = []
        if request.system:
            self._messages.append({"role": "system", "content": request.system})
        self._row = ResponseSplitter()
        self._fields_by_call: dict[str, tuple[tuple[OpaqueFields, str], ...]] = {}

    def add(self, item: Item) -> None:
        """Take the next item of history."""
        match item:
            case UserMessage():
                self._add_user_text(user_text(item), item.images)
            case Notice():
                self._add_user_text(notice_text(item))
            case Compaction():
                self._add_user_text(summary_text(item))
            case AssistantMessage():
                if item.state != "discarded" and item.text:
                    self._add_response(self._row.add(item))
            case Reasoning():
                self._add_thinking(item)
            case ToolCall():
                if not item.discarded:
                    self._add_response(self._row.add(item))
            case Patch():
                pass
            case _:
                assert_never(item)

    def finish(self) -> list[Message]:
        """The whole list as it is now; more items can be added all the same."""
        whole = copy(self)
        whole._ids = self._ids.copy()
        whole._messages = self._messages.copy()
        whole._row = self._row.copy()
        whole._fields_by_call = self._fields_by_call.copy()
        whole._end_turn()
        return whole._messages

    def _add_user_text(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._end_turn()
        parts: list[Message] = [{"type": "text", "text": text}] if text else []
        self._add_user_parts(parts + [_image_part(image) for image in images])

    def _add_user_parts(self, parts: list[Message]) -> None:
        if self._last_role() == "user":
            self._messages[-1] = _user_message(_parts_of(self._messages[-1]) + parts)
            return
        if parts and self._is_mistral and self._last_role() == "tool":
            self._messages.append({"role": "assistant", "content": RESULTS_READ})
        if parts:
            self._messages.append(_user_message(parts))

    def _add_thinking(self, item: Reasoning) -> None:
        """Take thinking that goes back; what came behind a call is of that call's message."""
        kept = None if item.state == "discarded" else unseal_fields(item, self._origin)
        if kept and kept.after:
            self._fields_by_call[kept.after] = (
                *self._fields_by_call.get(kept.after, ()),
                (kept, item.text),
            )
        elif kept:
            self._add_response(self._row.add(item))

    def _end_turn(self) -> None:
        """Write the responses that just ended, each with its results."""
        for response in self._row.end():
            self._add_response(response)
        self._fields_by_call.clear()

    def _add_response(self, response: list[ModelItem]) -> None:
        text = "\n\n".join(item.text for item in response if isinstance(item, AssistantMessage))
        calls = [item for item in response if isinstance(item, ToolCall)]
        if not text and not calls:
            return
        message: Message = {"role": "assistant", "content": text or None}
        if self._last_role() == "assistant":
            before = self._messages.pop()
            texts = [one for one in (before["content"], text) if one]
            message = before | {"content": "\n\n".join(texts) or None}
        if not calls:
            self._messages.append(message)
            return
        ids = [self._ids.use(call.call_id) for call in calls]
        beside, extras = self._kept_beside(response)
        made = [
            _tool_call(call, id_, extras.get(call.call_id))
            for call, id_ in zip(calls, ids, strict=True)
        ]
        self._messages.append(message | beside | {"tool_calls": made})
        for call, id_ in zip(calls, ids, strict=True):
            result = {"role": "tool", "tool_call_id": id_, "content": result_text(call)}
            self._messages.append(result)
        shown = [_image_part(image) for call in calls for image in call.images]
        if shown:
            note = {"type": "text", "text": "Images that the calls above returned:"}
            self._add_user_parts([note, *shown])

    def _kept_beside(self, response: list[ModelItem]) -> tuple[Message, dict[str, Any]]:
        """What goes back with a message that has calls, and what with each of them."""
        beside: Message = {}
        details: list[Any] = []
        extras: dict[str, Any] = {}
        for kept, text in self._kept_of(response):
            if kept.field and text:
                beside[kept.field] = beside.get(kept.field, "") + text
            if kept.extra is not None:
                beside["extra_content"] = kept.extra
            details += kept.details
            extras |= kept.calls
        if details:
            beside = {k: v for k, v in beside.items() if k == "extra_content"}
            beside["reasoning_details"] = details
        return beside, extras

    def _kept_of(self, response: list[ModelItem]) -> Iterator[tuple[OpaqueFields, str]]:
        for item in response:
            if isinstance(item, Reasoning) and (kept := unseal_fields(item, self._origin)):
                yield kept, item.text
            elif isinstance(item, ToolCall):
                yield from self._fields_by_call.get(item.call_id, ())

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


def _tool_call(call: ToolCall, call_id: str, extra: object) -> Message:
    function = {"name": usable_name(call.name), "arguments": usable_arguments(call.arguments)}
    made: Message = {"id": call_id, "type": "function", "function": function}
    return made if extra is None else made | {"extra_content": extra}
