"""Builds the body of a Chat Completions request from a `ModelRequest`. Pure.

The result is valid for any items: every call has one result; the results of a message's calls
directly follow the message, in the order of the calls. There are never two user messages in a row,
which the chat templates of many local models refuse.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

import base64
import re
from collections.abc import Iterator
from copy import copy
from typing import Any

import msgspec

from tiller_daemon.config.request_options import RESERVED
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.openai_chat.opaque_fields import (
    API,
    OpaqueFields,
    origin_of,
    unseal_fields,
)
from tiller_daemon.models.dialects.rendering import (
    DOCUMENT_NAME,
    CallIds,
    result_text,
    usable_arguments,
    usable_name,
)
from tiller_daemon.models.dialects.response_splitter import ResponseSplitter
from tiller_daemon.models.history_builder import HistoryBuilder, ModelItem
from tiller_daemon.models.history_cache import HistoryCache
from tiller_protocol.items import AssistantMessage, Image, Reasoning, ToolCall

fits_as_call_id = re.compile(r"[!-~]{1,128}").fullmatch
fits_as_call_id_at_openai = re.compile(r"[!-~]{1,40}").fullmatch
fits_as_call_id_of_mistral = re.compile(r"[a-zA-Z0-9]{9}").fullmatch
"""Whether a call id can be sent. OpenAI's own servers accept only shorter ids than other servers
make, and Mistral's models accept only ids in their own format."""

is_mistral = re.compile(r"(mi|mini|dev|magi|code)stral|pixtral", re.IGNORECASE).search
"""Whether a model is one of Mistral's, whichever server runs it. The chat templates of these models
refuse the same requests as Mistral's own API. A gateway may hide the model behind another name."""

refused_as_mistral = re.compile(
    r"unexpected role '?user'? after role '?tool|conversation roles must alternate"
    r"|tool call id .* must be a-z, A-Z, 0-9",
    re.IGNORECASE,
).search
"""Whether an error shows that the model is one of Mistral's: its API and its chat templates refuse
a user message right after results, and call ids of other models."""

RESULTS_READ = "I have read the results."
"""The assistant message that Mistral's models need between results and a user message."""

WEB_SEARCH = "web_search"
"""The hosted tool that has its own field in a request and is not among the tools."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
"""The variants that are sent as `reasoning_effort`."""

Message = dict[str, Any]


def build_body(
    request: ModelRequest,
    base_url: str = "",
    *,
    for_openai: bool = False,
    for_mistral: bool = False,
) -> bytes:
    """Return the body that requests a streamed response from the server at `base_url`.

    `for_openai` is for OpenAI's own servers, which are stricter than compatible servers and have
    renamed `max_tokens`. `for_mistral` is for a model of Mistral's that its name does not show.
    """
    cache = request.history_cache or HistoryCache()
    messages = build_messages(request, base_url, for_openai=for_openai, for_mistral=for_mistral)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": cache.encode(API, messages),
        "stream": True,
        # Without this option, a stream does not report its usage.
        "stream_options": {"include_usage": True},
    }
    # Titles and summaries need no tools.
    hosted = request.hosted_tools if request.purpose == "turn" else {}
    typed = [dict(fields) for fields in hosted.values() if "type" in fields]
    if request.tools or typed:
        body["tools"] = [*typed, *(_tool(spec) for spec in request.tools)]
    if (search := hosted.get(WEB_SEARCH)) is not None and "type" not in search:
        body["web_search_options"] = search
    if request.max_output_tokens is not None:
        body["max_completion_tokens" if for_openai else "max_tokens"] = request.max_output_tokens
    if request.variant in EFFORTS:
        body["reasoning_effort"] = request.variant
    if request.output_schema is not None:
        schema = {"name": "answer", "schema": request.output_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return msgspec.json.encode(_with_options(body, request))


def _with_options(body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
    """Return the body, overridden by the configured options except for the reserved fields."""
    options = {name: value for name, value in request.options.items() if name not in RESERVED}
    if request.variant in EFFORTS:
        options.pop("reasoning_effort", None)
    return body | options


def build_messages(
    request: ModelRequest,
    base_url: str = "",
    *,
    for_openai: bool = False,
    for_mistral: bool = False,
) -> list[Message]:
    """Return the `messages` of the body, with the system prompt first; see `build_body`."""
    for_mistral = for_mistral or bool(is_mistral(request.model))
    key = (API, request.system, request.model, base_url, for_openai, for_mistral)

    def create() -> _MessageHistory:
        if for_mistral:
            ids = CallIds(fits_as_call_id_of_mistral, "{:09}".format)
        else:
            ids = CallIds(fits_as_call_id_at_openai if for_openai else fits_as_call_id)
        return _MessageHistory(request, base_url, ids, for_mistral=for_mistral)

    cache = request.history_cache or HistoryCache()
    return cache.builder(key, request.items, create).finish()


class _MessageHistory(HistoryBuilder):
    """Builds messages item by item.

    Messages are replaced, never changed, because earlier requests may share them. A response is
    held back until it is complete, because later items may still belong to its message.
    """

    def __init__(
        self, request: ModelRequest, base_url: str, ids: CallIds, *, for_mistral: bool
    ) -> None:
        self._origin = origin_of(base_url, request.model)
        self._for_mistral = for_mistral
        self._ids = ids
        self._messages: list[Message] = []
        if request.system:
            self._messages.append({"role": "system", "content": request.system})
        self._responses = ResponseSplitter()
        self._fields_by_call: dict[str, tuple[tuple[OpaqueFields, str], ...]] = {}

    def finish(self) -> list[Message]:
        """Return all messages. More items can be added afterwards."""
        snapshot = copy(self)
        snapshot._ids = self._ids.copy()
        snapshot._messages = self._messages.copy()
        snapshot._responses = self._responses.copy()
        snapshot._fields_by_call = self._fields_by_call.copy()
        snapshot._end_turn()
        return snapshot._messages

    def _add_user_message(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._end_turn()
        # Some servers refuse blank texts.
        parts: list[Message] = [{"type": "text", "text": text}] if text.strip() else []
        self._add_user_parts(parts + [_image_part(image) for image in images])

    def _add_user_parts(self, parts: list[Message]) -> None:
        if self._last_role() == "user":
            self._messages[-1] = _user_message(_parts_of(self._messages[-1]) + parts)
            return
        if parts and self._for_mistral and self._last_role() == "tool":
            self._messages.append({"role": "assistant", "content": RESULTS_READ})
        if parts:
            self._messages.append(_user_message(parts))

    def _add_model_item(self, item: ModelItem) -> None:
        if isinstance(item, Reasoning):
            self._add_thinking(item)
        elif isinstance(item, ToolCall) or item.text.strip():
            self._add_response(self._responses.add(item))

    def _add_thinking(self, item: Reasoning) -> None:
        """Add thinking to send back. Thinking after a call belongs to the message of that call."""
        opaque = unseal_fields(item, self._origin)
        if opaque and opaque.after:
            self._fields_by_call[opaque.after] = (
                *self._fields_by_call.get(opaque.after, ()),
                (opaque, item.text),
            )
        elif opaque:
            self._add_response(self._responses.add(item))

    def _end_turn(self) -> None:
        """Append the remaining responses, each with the results of its calls."""
        for response in self._responses.end():
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
        fields, extras = self._opaque_fields_of(response)
        made = [
            _tool_call(call, id_, extras.get(call.call_id))
            for call, id_ in zip(calls, ids, strict=True)
        ]
        self._messages.append(message | fields | {"tool_calls": made})
        for call, id_ in zip(calls, ids, strict=True):
            result = {"role": "tool", "tool_call_id": id_, "content": result_text(call)}
            self._messages.append(result)
        shown = [_image_part(image) for call in calls for image in call.images]
        if shown:
            note = {"type": "text", "text": "Images that the calls above returned:"}
            self._add_user_parts([note, *shown])

    def _opaque_fields_of(self, response: list[ModelItem]) -> tuple[Message, dict[str, Any]]:
        """Return the opaque fields of a message, and the opaque field of each call by its id."""
        fields: Message = {}
        details: list[Any] = []
        extras: dict[str, Any] = {}
        for opaque, text in self._stored_fields(response):
            if opaque.field and text:
                fields[opaque.field] = fields.get(opaque.field, "") + text
            if opaque.extra is not None:
                fields["extra_content"] = opaque.extra
            details += opaque.details
            extras |= opaque.calls
        if details:
            # The details include the thinking, which must not be sent twice.
            fields = {k: v for k, v in fields.items() if k == "extra_content"}
            fields["reasoning_details"] = details
        return fields, extras

    def _stored_fields(self, response: list[ModelItem]) -> Iterator[tuple[OpaqueFields, str]]:
        for item in response:
            if isinstance(item, Reasoning) and (opaque := unseal_fields(item, self._origin)):
                yield opaque, item.text
            elif isinstance(item, ToolCall):
                yield from self._fields_by_call.get(item.call_id, ())

    def _last_role(self) -> str:
        return self._messages[-1]["role"] if self._messages else ""


def _user_message(parts: list[Message]) -> Message:
    """Make a user message. A message without images is plain text, which every server accepts."""
    if all(part["type"] == "text" for part in parts):
        return {"role": "user", "content": "\n\n".join(part["text"] for part in parts)}
    return {"role": "user", "content": parts}


def _parts_of(message: Message) -> list[Message]:
    content: str | list[Message] = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _image_part(image: Image) -> Message:
    data = base64.b64encode(image.data).decode()
    url = f"data:{image.media_type};base64,{data}"
    if image.is_document:
        return {"type": "file", "file": {"filename": DOCUMENT_NAME, "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}}


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
