"""A `ModelRequest` as the body of a Chat Completions request. Pure; no frame is decoded here.

What is built is valid whatever the items are: every call has one result, right after the message
that made it and in call order (G4); user messages never stand side by side, which the chat
templates of many local models refuse.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

import base64
import re
from functools import lru_cache
from typing import Any, assert_never

import msgspec

from tiller_daemon.config.options import RESERVED
from tiller_daemon.models.base import ModelRequest, ToolSpec
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

NO_RESULT = "This call has no result: it did not run to its end."
NO_OUTPUT = "(no output)"

NAME_CHARS_MAX = 64
"""Longest function name that OpenAI's own servers take."""

CALL_ID_CHARS_MAX = 128
CALL_ID_CHARS_MAX_OPENAI = 40
"""Longest call id sent back: OpenAI's own servers refuse longer ones, which other servers make."""

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""The names under which servers of this dialect send thinking, and take it back."""

EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
"""Variants that are sent as `reasoning_effort`."""

NAMES_KEPT_MAX = 256
"""Names of functions whose usable form is remembered; more than there are tools."""

Message = dict[str, Any]

# Made once: every call of a session's history goes through these with every request.
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_is_printable = re.compile(r"[!-~]+").fullmatch


def build_body(request: ModelRequest, *, for_openai: bool = False) -> bytes:
    """The JSON body that asks for a streamed answer to `request`.

    `for_openai` is for OpenAI's own servers, which are stricter than the compatible ones and have
    renamed `max_tokens`.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": build_messages(request, for_openai=for_openai),
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


def build_messages(request: ModelRequest, *, for_openai: bool = False) -> list[Message]:
    """The `messages` of the body, the system prompt first."""
    id_chars_max = CALL_ID_CHARS_MAX_OPENAI if for_openai else CALL_ID_CHARS_MAX
    conversation = _Conversation(request, id_chars_max)
    for item in request.items:
        conversation.add(item)
    return conversation.finish()


def reasoning_tag(field: str, model: str) -> str:
    """The `opaque` of reasoning that came under `field`: only the same model gets it back."""
    return f"{field} {model}"


class _Conversation:
    """Messages so far, and the response whose results have not been written yet."""

    def __init__(self, request: ModelRequest, id_chars_max: int) -> None:
        self._id_chars_max = id_chars_max
        self._messages: list[Message] = []
        if request.system:
            self._messages.append({"role": "system", "content": request.system})
        self._reasoning_tags = {reasoning_tag(f, request.model): f for f in REASONING_FIELDS}
        self._reasoning: dict[str, str] = {}
        self._calls: list[ToolCall] = []
        self._used_ids: set[str] = set()

    def add(self, item: Item) -> None:
        """Take the next item of history."""
        match item:
            case UserMessage():
                self._say_as_user(_user_text(item), item.images)
            case Notice():
                self._say_as_user(f'<notice code="{item.code}">\n{item.text}\n</notice>')
            case Compaction():
                self._say_as_user(f"<summary>\n{item.summary}\n</summary>")
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
        """The whole list."""
        self._write_results()
        return self._messages

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
            self._messages[-1]["content"] += f"\n\n{text}"
        else:
            self._messages.append({"role": "assistant", "content": text})

    def _think(self, item: Reasoning) -> None:
        self._write_results()
        field = self._reasoning_tags.get(item.opaque)
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
        ids = [self._usable_id(call.call_id) for call in self._calls]
        self._messages[-1] |= self._reasoning | {
            "tool_calls": [
                _tool_call(call, id_) for call, id_ in zip(self._calls, ids, strict=True)
            ]
        }
        for call, id_ in zip(self._calls, ids, strict=True):
            self._messages.append({"role": "tool", "tool_call_id": id_, "content": _result(call)})
        shown = [_image_part(image) for call in self._calls for image in call.images]
        if shown:
            note = {"type": "text", "text": "Images that the calls above returned:"}
            self._messages.append(_user_message([note, *shown]))
        self._calls.clear()
        self._reasoning.clear()

    def _usable_id(self, call_id: str) -> str:
        """`call_id` where a server takes it, else one that depends on what came before alone."""
        number = len(self._used_ids)
        usable = len(call_id) <= self._id_chars_max and _is_printable(call_id)
        while not usable or call_id in self._used_ids:
            call_id, usable, number = f"call_{number}", True, number + 1
        self._used_ids.add(call_id)
        return call_id

    def _last_role(self) -> str:
        return self._messages[-1]["role"] if self._messages else ""


def _user_text(item: UserMessage) -> str:
    if not item.files:
        return item.text
    names = "\n".join(f"- {name}" for name in item.files)
    return f"{item.text}\n\nFiles to look at:\n{names}"


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
    function = {"name": _usable_name(call.name), "arguments": _usable_arguments(call.arguments)}
    return {"id": call_id, "type": "function", "function": function}


@lru_cache(NAMES_KEPT_MAX)
def _usable_name(name: str) -> str:
    """Models invent names that no server takes back, such as `functions.read`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:NAME_CHARS_MAX] or "unknown"


def _usable_arguments(arguments: str) -> str:
    try:
        _decode_object(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "{}"
    return arguments


def _result(call: ToolCall) -> str:
    if call.state in ("pending", "running"):
        return f"{NO_RESULT}\n{call.output}".rstrip()
    if call.output:
        return call.output
    return f"error: {call.error_kind}" if call.error_kind else NO_OUTPUT
