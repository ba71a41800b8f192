"""Builds the body of a Responses request from a `ModelRequest`. Pure.

The provider stores nothing, so each request contains the whole history. Opaque items, such as
encrypted reasoning and calls of hosted tools, are sent back unchanged, but only if another item of
the same response follows, because servers refuse reasoning without the item after it. For any
history, every call has one output; the outputs follow the response, in the order of the calls.
Format: https://platform.openai.com/docs/api-reference/responses/create
"""

import base64
import re
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tiller_daemon.config.request_options import RESERVED, merge_options
from tiller_daemon.models.accounts.chatgpt import (
    NAMESPACE,
    NAMESPACE_DESCRIPTION,
    REFUSED_FIELDS,
)
from tiller_daemon.models.base import ModelRequest, ToolSpec
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.schema import is_strict
from tiller_daemon.models.dialects.rendering import (
    DOCUMENT_NAME,
    CallIds,
    result_text,
    usable_arguments,
    usable_name,
)
from tiller_daemon.models.history_builder import HistoryBuilder, ModelItem
from tiller_daemon.models.history_cache import HistoryCache
from tiller_protocol.items import AssistantMessage, Image, Reasoning, ToolCall

API = "openai_responses"

ENCRYPTED_REASONING = "reasoning.encrypted_content"

INCLUDED = {
    "web_search": "web_search_call.action.sources",
    "file_search": "file_search_call.results",
    "code_interpreter": "code_interpreter_call.outputs",
}
"""Details that OpenAI's own servers add to the calls of hosted tools only on request, by tool."""

DEFAULTS: dict[str, dict[str, Any]] = {"code_interpreter": {"container": {"type": "auto"}}}
"""Required fields of hosted tools."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The variants that are sent as reasoning effort."""

OUTPUT_TOKENS_MIN_OPENAI = 16
"""OpenAI's own servers refuse a smaller `max_output_tokens`."""

PROTECTED_FIELDS = RESERVED | {
    "background",
    "conversation",
    "input",
    "instructions",
    "previous_response_id",
}
"""Fields that options can't set, because they define the conversation."""

fits_as_call_id = re.compile(r"[!-~]{1,64}").fullmatch

InputItem = dict[str, Any]


class OpaqueItem(Struct, omit_defaults=True):
    """The fields that we read from an item that is sent back unchanged.

    Of a message, only the start and the `phase` are stored; its text comes from the history.
    """

    type: str = ""
    call_id: str = ""
    phase: str = ""


_decode_items = msgspec.json.Decoder(list[Raw]).decode
_decode_opaque = msgspec.json.Decoder(OpaqueItem).decode


def build_body(
    request: ModelRequest,
    base_url: str = "",
    *,
    for_openai: bool = False,
    for_plan: bool = False,
    opaque: bool = True,
) -> bytes:
    """Return the body that requests a streamed response from the server at `base_url`.

    `for_openai` is for OpenAI's own servers. With `for_plan`, the body has nothing that they refuse
    if a user's plan pays. Without `opaque`, encrypted items are neither sent nor requested.
    """
    origin = Origin(API, base_url, request.model) if opaque else None
    cache = request.history_cache or HistoryCache()
    body: dict[str, Any] = {
        "model": request.model,
        "input": cache.encode(
            (API, for_plan), build_input(request, origin, NAMESPACE if for_plan else "")
        ),
        "stream": True,
        # The provider stores nothing, as each request carries the whole history.
        "store": False,
    }
    if request.system:
        body["instructions"] = request.system
    if opaque:
        body["include"] = [ENCRYPTED_REASONING]
    # Titles and summaries need no tools.
    hosted = request.hosted_tools if request.purpose == "turn" else {}
    if opaque and for_openai:
        body["include"] += [INCLUDED[name] for name in hosted if name in INCLUDED]
    if request.tools or hosted:
        tools = [
            {"type": name, **DEFAULTS.get(name, {}), **fields} for name, fields in hosted.items()
        ]
        own = [_tool(spec) for spec in request.tools]
        body["tools"] = [*tools, *(_in_namespace(own) if for_plan and own else own)]
    if request.max_output_tokens is not None:
        least = OUTPUT_TOKENS_MIN_OPENAI if for_openai else 1
        body["max_output_tokens"] = max(least, request.max_output_tokens)
    if for_openai:
        body["prompt_cache_key"] = request.session_id
    body = _with_options(body, request)
    if for_plan:
        body = {name: value for name, value in body.items() if name not in REFUSED_FIELDS}
    return msgspec.json.encode(body)


def build_input(
    request: ModelRequest, origin: Origin | None, namespace: str = ""
) -> list[InputItem | Raw]:
    """Return the `input` of the body. Only opaque items from `origin` are included.

    `namespace` is that of the tools, if they have one.
    """
    cache = request.history_cache or HistoryCache()
    key = (API, origin, namespace)
    return cache.builder(key, request.items, lambda: _InputBuilder(origin, namespace)).finish()


def seal_items(origin: Origin, items: list[bytes]) -> str:
    """Return the `opaque` for consecutive items, each given as JSON."""
    return origin.seal(f"[{','.join(item.decode() for item in items)}]")


def _with_options(body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
    """Return the body, overridden by the configured options, then by the fields of the request."""
    options = {
        name: value for name, value in request.options.items() if name not in PROTECTED_FIELDS
    }
    asked: dict[str, Any] = {}
    if request.variant in EFFORTS:
        asked["reasoning"] = {"effort": request.variant}
    if (schema := request.output_schema) is not None:
        form = {"type": "json_schema", "name": "answer", "schema": schema}
        asked["text"] = {"format": form | {"strict": is_strict(schema)}}
    merged = merge_options(body, options, asked)
    if "include" not in body and ENCRYPTED_REASONING in merged.get("include", ()):
        merged["include"] = [one for one in merged["include"] if one != ENCRYPTED_REASONING]
    return merged


class _InputBuilder(HistoryBuilder):
    """Builds the input item by item; the outputs of calls follow at the end of their response.

    Items of the input are replaced, never changed, because earlier requests may share them.
    """

    def __init__(self, origin: Origin | None, namespace: str) -> None:
        self._origin = origin
        self._named = {"namespace": namespace} if namespace else {}
        self._items: list[InputItem | Raw] = []
        self._ids = CallIds(fits_as_call_id)
        self._pending: list[tuple[OpaqueItem, Raw]] = []
        """Opaque items that are written as soon as another item of their response follows."""
        self._outputs: list[InputItem] = []
        self._ordinal = -1
        self._after_calls: list[AssistantMessage | Reasoning] = []
        """Items after a call. They precede the next call if that belongs to the same response."""

    def finish(self) -> list[InputItem | Raw]:
        """Return all input items. More items of the history can be added afterwards."""
        snapshot = copy(self)
        snapshot._ids = self._ids.copy()
        snapshot._items = self._items.copy()
        snapshot._pending = self._pending.copy()
        snapshot._end_response()
        return snapshot._items

    def _add_user_message(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._end_response()
        self._pending.clear()  # no more items of their response follow
        parts: list[InputItem] = [{"type": "input_text", "text": text}] if text else []
        parts += [_image_part(image) for image in images]
        if last := self._last_message("user"):
            self._items[-1] = last | {"content": last["content"] + parts}
        elif parts:
            self._items.append({"type": "message", "role": "user", "content": parts})

    def _add_model_item(self, item: ModelItem) -> None:
        if isinstance(item, ToolCall):
            self._add_call(item)
        elif self._outputs:
            self._after_calls.append(item)
        else:
            self._write_item(item)

    def _write_item(self, item: AssistantMessage | Reasoning) -> None:
        if isinstance(item, Reasoning):
            if item.state == "completed":
                self._pending += self._unsealed(item.opaque)
        elif item.text:
            phase = self._flush_pending()
            if (last := self._last_message("assistant")) and last.get("phase", "") == phase == "":
                self._items[-1] = last | {"content": f"{last['content']}\n\n{item.text}"}
            else:
                message = {"type": "message", "role": "assistant", "content": item.text}
                self._items.append(message | ({"phase": phase} if phase else {}))

    def _add_call(self, call: ToolCall) -> None:
        if call.ordinal != self._ordinal:
            self._end_response()
        later, self._after_calls = self._after_calls, []
        for item in later:
            self._write_item(item)
        self._flush_pending()
        self._ordinal = call.ordinal
        call_id = self._ids.use(call.call_id)
        self._items.append(
            {
                "type": "function_call",
                "call_id": call_id,
                "name": usable_name(call.name),
                "arguments": usable_arguments(call.arguments),
                **self._named,
            }
        )
        self._outputs.append(
            {"type": "function_call_output", "call_id": call_id, "output": _output(call)}
        )

    def _end_response(self) -> None:
        """Write the outputs of a response, and then the items after its last call."""
        self._items += self._outputs
        self._outputs = []
        later, self._after_calls = self._after_calls, []
        for item in later:
            self._write_item(item)

    def _flush_pending(self) -> str:
        """Write the pending opaque items; return the phase of the message that follows.

        A hosted call is written only with its output, and vice versa.
        """
        phase = ""
        calls = {
            stored.call_id for stored, _ in self._pending if not stored.type.endswith("_output")
        }
        outputs = {stored.call_id for stored, _ in self._pending if stored.type.endswith("_output")}
        for stored, raw in self._pending:
            if stored.type == "message":
                phase = stored.phase
            elif not stored.call_id or stored.call_id in calls & outputs:
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
    if image.is_document:
        # The name is required, and the model may mention it.
        return {"type": "input_file", "filename": DOCUMENT_NAME, "file_data": url}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _in_namespace(tools: list[InputItem]) -> list[InputItem]:
    return [
        {
            "type": "namespace",
            "name": NAMESPACE,
            "description": NAMESPACE_DESCRIPTION,
            "tools": tools,
        }
    ]


def _tool(spec: ToolSpec) -> InputItem:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": False,
    }
