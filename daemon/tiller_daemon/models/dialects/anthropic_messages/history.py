"""History as the `messages` of a Messages request. Pure; the rest of the body is built elsewhere.

What is built is valid whatever the items are: roles alternate and the user begins and ends; each
call has one result, all of them first in the next message and in call order (G4); no text is blank.
A longer history begins with the same messages, so that the provider's cache holds.

Newer models refuse thinking when anything has changed before it, such as pruned output, a summary
or other tools. So each response keeps the digest of what its request held, and its thinking goes
back only as long as that stands before it.
Format: https://platform.claude.com/docs/en/api/messages
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from hashlib import sha256
from typing import Any, Literal, assert_never

import msgspec
from msgspec import Raw

from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import (
    THINKING,
    Block,
    unseal_blocks,
)
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.rendering import (
    NO_OUTPUT,
    CallIds,
    notice_text,
    result_text,
    summary_text,
    usable_name,
    user_text,
)
from tiller_daemon.models.dialects.response_splitter import ModelItem, ResponseSplitter
from tiller_daemon.models.dialects.surrogates import joined
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

CONTINUE_PROMPT = "Go on."
"""Said for a user who said nothing: the API wants a user's message first and last."""

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
IMAGE_BASE64_BYTES_MAX = 5 * 1024 * 1024
"""Images that the API takes. One that it refuses would stop the session for good: it stays."""

DIGEST_CHARS = 24

fits_as_call_id = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch

Role = Literal["user", "assistant"]

encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)


class EncodedMessage:
    """One message: its blocks, and each of them encoded, which is done once."""

    def __init__(self, role: Role, blocks: list[Block], encoded: list[bytes]) -> None:
        self.role: Role = role
        self.blocks = blocks
        self._encoded = encoded
        self._whole: Raw | None = None

    def with_block(self, block: Block, data: bytes) -> "EncodedMessage":
        """The message with one more block, encoded as `data`."""
        return EncodedMessage(self.role, [*self.blocks, block], [*self._encoded, data])

    def with_mark(self, **fields: object) -> "EncodedMessage":
        """The message with more fields in its last block."""
        block = self.blocks[-1] | fields
        return EncodedMessage(
            self.role, [*self.blocks[:-1], block], [*self._encoded[:-1], encode(block)]
        )

    @property
    def encoded(self) -> Raw:
        """As it is sent."""
        if self._whole is None:
            blocks = [Raw(data) for data in self._encoded]
            self._whole = Raw(encode({"role": self.role, "content": blocks}))
        return self._whole


class MessageHistory:
    """Messages that grow by items. `fixed` is what stands before them: tools, system prompt.

    Without `thinks` no thinking goes back; with `bound` only where nothing before it has changed.
    """

    def __init__(self, fixed: bytes, origin: Origin, *, thinks: bool, bound: bool) -> None:
        self._origin = origin
        self._thinks = thinks
        self._digest = sha256(fixed) if bound else None
        self._ids = CallIds(fits_as_call_id)
        self._row = ResponseSplitter()
        self.messages: list[EncodedMessage] = []

    def add(self, item: Item) -> None:
        """Take the next item of history."""
        match item:
            case UserMessage():
                self._add_user_blocks(_text(user_text(item)) + _images(item.images))
            case Notice():
                self._add_user_blocks(_text(notice_text(item)))
            case Compaction():
                self._add_user_blocks(_text(summary_text(item)))
            case AssistantMessage() | Reasoning():
                if item.state != "discarded":
                    self._add_response(self._row.add(item))
            case ToolCall():
                if not item.discarded:
                    self._add_response(self._row.add(item))
            case Patch():
                pass
            case _:
                assert_never(item)

    def finish(self) -> "MessageHistory":
        """What it is if nothing is added, which can be done all the same: the user speaks last."""
        whole = copy(self)
        whole._digest = self._digest and self._digest.copy()
        whole._ids = self._ids.copy()
        whole._row = self._row.copy()
        whole.messages = self.messages.copy()
        whole._add_user_blocks([])
        if whole._last_role != "user":
            whole._append("user", _text(CONTINUE_PROMPT))
        return whole

    @property
    def prefix(self) -> str:
        """The digest of all that was said so far; empty where nothing is bound to it."""
        return self._digest.hexdigest()[:DIGEST_CHARS] if self._digest else ""

    def _add_user_blocks(self, blocks: list[Block]) -> None:
        for response in self._row.end():
            self._add_response(response)
        self._append("user", blocks)

    def _add_response(self, response: list[ModelItem]) -> None:
        """Write a response and then its results."""
        calls = [item for item in response if isinstance(item, ToolCall)]
        ids = [self._ids.use(call.call_id) for call in calls]
        blocks = _sendable(list(self._blocks(response, iter(ids))))
        if blocks and not self.messages:
            self._append("user", _text(CONTINUE_PROMPT))
        self._append("assistant", blocks)
        self._append("user", [_result(call, id_) for call, id_ in zip(calls, ids, strict=True)])

    def _append(self, role: Role, blocks: list[Block]) -> None:
        """Append blocks. No message is changed, as another conversation may have it too."""
        if blocks and self._last_role != role:
            self.messages.append(EncodedMessage(role, [], []))
            self._update_digest(role.encode())
        for block in blocks:
            data = encode(block)
            self.messages[-1] = self.messages[-1].with_block(block, data)
            self._update_digest(data)

    def _update_digest(self, data: bytes) -> None:
        if self._digest:
            self._digest.update(data)

    def _blocks(self, response: Sequence[ModelItem], ids: Iterator[str]) -> Iterator[Block]:
        for item in response:
            match item:
                case AssistantMessage():
                    yield from _text(item.text)
                case Reasoning():
                    yield from self._kept_blocks(item)
                case ToolCall():
                    yield _tool_use(item, next(ids))

    def _kept_blocks(self, item: Reasoning) -> Iterator[Block]:
        kept = unseal_blocks(item, self._origin)
        if kept is None:
            return
        thinks = self._thinks and (
            self._digest is None or kept.prefix == self._prefix_of_response()
        )
        yield from (b for b in kept.blocks if thinks or b["type"] not in THINKING)

    def _prefix_of_response(self) -> str:
        """What stands before the response that is being written, if it has a message of its own."""
        return "-" if self._last_role == "assistant" else self.prefix

    @property
    def _last_role(self) -> str:
        return self.messages[-1].role if self.messages else ""


def _sendable(blocks: list[Block]) -> list[Block]:
    """What of the blocks of a response is taken back.

    A server's tool goes with its result or not at all, citations with their text; thinking that
    led to nothing does not.
    """
    kept: list[Block] = []
    waiting: list[Block] = []
    for block in blocks:
        if block["type"] == "text" and "text" not in block:
            if kept and kept[-1]["type"] == "text":
                kept[-1] |= block
        elif "tool_use_id" in block:
            use = next((u for u in waiting if u.get("id") == block["tool_use_id"]), None)
            if use is not None:
                waiting = [other for other in waiting if other is not use]
                kept.append(block)
        else:
            kept.append(block)
            if _is_server_use(block):
                waiting.append(block)
    kept = [block for block in kept if not any(block is use for use in waiting)]
    while kept and kept[-1]["type"] in THINKING:
        kept.pop()
    return kept


def _is_server_use(block: Block) -> bool:
    kind: str = block["type"]
    return kind != "tool_use" and kind.endswith("tool_use")


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _images(images: Iterable[Image]) -> list[Block]:
    return [_image(image) for image in images]


def _image(image: Image) -> Block:
    data = base64.b64encode(image.data).decode()
    if image.media_type in IMAGE_TYPES and data and len(data) <= IMAGE_BASE64_BYTES_MAX:
        source = {"type": "base64", "media_type": image.media_type, "data": data}
        return {"type": "image", "source": source}
    note = f"[An image of {len(image.data)} bytes of type {image.media_type} can't be shown.]"
    return {"type": "text", "text": note}


def _tool_use(call: ToolCall, id_: str) -> Block:
    input_ = _input(call.arguments)
    return {"type": "tool_use", "id": id_, "name": usable_name(call.name), "input": input_}


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as an object; an empty one if they are none, the error result says why."""
    try:
        return _decode_object(arguments)
    except _DECODING_FAILS:
        pass
    try:
        # Half a surrogate pair, which models do write, is no JSON to most servers.
        return _decode_object(joined(json.dumps(json.loads(arguments), ensure_ascii=False)))
    except _DECODING_FAILS:
        return {}


def _result(call: ToolCall, id_: str) -> Block:
    text = result_text(call)
    shown = _images(call.images)
    content = [*_text(text if text.strip() else NO_OUTPUT), *shown]
    block: Block = {"type": "tool_result", "tool_use_id": id_, "content": content}
    # An error may hold nothing but text.
    if call.error_kind is not None and all(part["type"] == "text" for part in content):
        block["is_error"] = True
    return block
