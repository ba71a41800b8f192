"""Builds the `messages` of a Messages request from a history. Pure.

The result is valid for any items. Roles alternate, and the first and the last message are the
user's. Each call has one result; the results of a message's calls are at the start of the next
message, in the order of the calls. No text is blank. A longer history begins with the same
messages, so that the provider's prompt cache can be used.

Newer models refuse earlier thinking if any content before it has changed, for example because of
pruned output, a summary or other tools. So each response is stored with the digest of its request,
and its thinking is sent again only if the same content still precedes it.
Format: https://platform.claude.com/docs/en/api/messages
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Raw

from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import (
    PAUSE,
    THINKING,
    Block,
    is_server_use,
    unseal_blocks,
)
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.rendering import NO_OUTPUT, CallIds, result_text, usable_name
from tiller_daemon.models.dialects.response_splitter import ResponseSplitter
from tiller_daemon.models.dialects.surrogates import repair_surrogates
from tiller_daemon.models.history_builder import HistoryBuilder, ModelItem
from tiller_protocol.items import AssistantMessage, Image, Reasoning, ToolCall

CONTINUE_PROMPT = "Go on."
"""The user message that is added where the API requires a user message but the history has none."""

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
IMAGE_BASE64_BYTES_MAX = 5 * 1024 * 1024
"""The images that the API accepts. Any other image is left out: it would stay in the history, and
because of it the API would refuse every later request."""

DIGEST_CHARS = 24
"""How much of a digest is stored: enough to make accidental matches impossible in practice."""

fits_as_call_id = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch

Role = Literal["user", "assistant"]

encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class EncodedMessage:
    """A message that is encoded only once. It never changes, so that histories can share it."""

    def __init__(self, role: Role, blocks: list[Block]) -> None:
        self.role: Role = role
        self.blocks = blocks

    def with_fields(self, **fields: object) -> "EncodedMessage":
        """Return the message with additional fields in its last block."""
        return EncodedMessage(self.role, [*self.blocks[:-1], self.blocks[-1] | fields])

    @cached_property
    def encoded(self) -> Raw:
        """The message as JSON."""
        return Raw(encode({"role": self.role, "content": self.blocks}))


class MessageHistory(HistoryBuilder):
    """Builds messages item by item.

    `fixed` is the content before the messages: tools and system prompt. Thinking is included only
    if `includes_thinking`; with `is_prefix_bound`, only if the content before it is unchanged, too.
    """

    def __init__(
        self, fixed: bytes, origin: Origin, *, includes_thinking: bool, is_prefix_bound: bool
    ) -> None:
        self._origin = origin
        self._includes_thinking = includes_thinking
        self._digest = sha256(fixed) if is_prefix_bound else None
        self._ids = CallIds(fits_as_call_id)
        self._responses = ResponseSplitter()
        self._is_last = False
        self._paused_at: str | None = None
        """The digest before the last response, if the API has paused in that response."""
        self.messages: list[EncodedMessage] = []

    def finish(self) -> "MessageHistory":
        """Return a copy that ends with a user message. More items can be added to the original.

        If the API has paused, the copy ends with the unchanged response, which the API continues.
        """
        # Messages are never changed, so copying the list is enough.
        snapshot = copy(self)
        snapshot._digest = self._digest and self._digest.copy()
        snapshot._ids = self._ids.copy()
        snapshot._responses = self._responses.copy()
        snapshot.messages = self.messages.copy()
        snapshot._is_last = True
        snapshot._end_turn()
        if snapshot._last_role != "user" and snapshot._paused_at is None:
            snapshot._append("user", _text(CONTINUE_PROMPT))
        return snapshot

    @property
    def prefix(self) -> str:
        """The digest of everything before the next response; empty unless `is_prefix_bound`."""
        if self._paused_at is not None:
            return self._paused_at
        return self._digest.hexdigest()[:DIGEST_CHARS] if self._digest else ""

    def _add_user_message(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._end_turn()
        self._append("user", _text(text) + _images(images))

    def _add_model_item(self, item: ModelItem) -> None:
        self._add_response(self._responses.add(item))

    def _end_turn(self) -> None:
        """Append the remaining responses, each with the results of its calls."""
        for response in self._responses.end():
            self._add_response(response)

    def _add_response(self, response: list[ModelItem]) -> None:
        """Append a response and the results of its calls."""
        calls = [item for item in response if isinstance(item, ToolCall)]
        ids = [self._ids.use(call.call_id) for call in calls]
        blocks = list(self._blocks(response, iter(ids)))
        if self._is_last and blocks and blocks[-1]["type"] == PAUSE:
            self._paused_at = self._prefix_of_response()
        blocks = _sendable(blocks, is_paused=self._paused_at is not None)
        if blocks and not self.messages:  # the first message must be a user message
            self._append("user", _text(CONTINUE_PROMPT))
        self._append("assistant", blocks)
        self._append("user", [_result(call, id_) for call, id_ in zip(calls, ids, strict=True)])

    def _append(self, role: Role, blocks: list[Block]) -> None:
        """Append blocks to the last message if it has this role, else to a new message."""
        if not blocks:
            return
        if self._digest:
            start = b"" if self._last_role == role else role.encode()
            self._digest.update(start + b"".join(map(encode, blocks)))
        before = self.messages.pop().blocks if self._last_role == role else []
        self.messages.append(EncodedMessage(role, before + blocks))

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
        opaque = unseal_blocks(item, self._origin)
        if opaque is None:
            return
        includes_thinking = self._includes_thinking and (
            self._digest is None or opaque.prefix == self._prefix_of_response()
        )
        yield from (b for b in opaque.blocks if includes_thinking or b["type"] not in THINKING)

    def _prefix_of_response(self) -> str:
        """Return the digest before the current response.

        If the response continues an assistant message, the model did not generate it in this form.
        The digest is then a value that never matches.
        """
        return "-" if self._last_role == "assistant" else self.prefix

    @property
    def _last_role(self) -> str:
        return self.messages[-1].role if self.messages else ""


def _sendable(blocks: list[Block], *, is_paused: bool) -> list[Block]:
    """Return the blocks of a response that the API accepts, with citations merged into their text.

    If the API has paused, it accepts all blocks. Otherwise, a call of a server tool needs its
    result and vice versa, and thinking must not be at the end.
    """
    accepted: list[Block] = []
    unanswered: list[Block] = []
    for block in blocks:
        if block["type"] == PAUSE:
            continue
        if block["type"] == "text" and "texts" in block:
            whole = accepted.pop()["text"] if accepted and "text" in accepted[-1] else ""
            divided = sum(chars for chars, _ in block["texts"]) == len(whole)
            accepted += _divided(whole, block["texts"]) if divided else _text(whole)
        elif block["type"] == "text" and "text" not in block:
            if accepted and accepted[-1]["type"] == "text":
                accepted[-1] |= block
        elif "tool_use_id" in block:
            use = next((u for u in unanswered if u.get("id") == block["tool_use_id"]), None)
            if use is not None:
                unanswered = [other for other in unanswered if other is not use]
                accepted.append(block)
        else:
            accepted.append(block)
            if is_server_use(block):
                unanswered.append(block)
    if is_paused:
        return accepted
    accepted = [block for block in accepted if not any(block is use for use in unanswered)]
    while accepted and accepted[-1]["type"] in THINKING:
        accepted.pop()
    return accepted


def _divided(text: str, texts: Iterable[tuple[int, list[Any]]]) -> list[Block]:
    """Divide a text into its original blocks; join a blank block to the block before it."""
    blocks: list[Block] = []
    position = 0
    for chars, citations in texts:
        part, position = text[position : position + chars], position + chars
        if blocks and not part.strip():
            blocks[-1]["text"] += part
            continue
        if blocks and not blocks[-1]["text"].strip():
            part = blocks.pop()["text"] + part
        block: Block = {"type": "text", "text": part}
        blocks.append(block | {"citations": citations} if citations else block)
    return blocks


def _text(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _images(images: Iterable[Image]) -> list[Block]:
    return [_image(image) for image in images]


def _image(image: Image) -> Block:
    data = base64.b64encode(image.data).decode()
    source = {"type": "base64", "media_type": image.media_type, "data": data}
    if image.is_document:
        return {"type": "document", "source": source}
    if image.media_type in IMAGE_TYPES and data and len(data) <= IMAGE_BASE64_BYTES_MAX:
        return {"type": "image", "source": source}
    note = f"[An image ({image.media_type}, {len(image.data)} bytes) can't be shown.]"
    return {"type": "text", "text": note}


def _tool_use(call: ToolCall, id_: str) -> Block:
    input_ = _input(call.arguments)
    return {"type": "tool_use", "id": id_, "name": usable_name(call.name), "input": input_}


def _input(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object, which is empty if the arguments are invalid.

    The result of the call tells the model why they were invalid.
    """
    try:
        return _decode_object(arguments)
    except DECODING_FAILS:
        pass
    try:
        # Models do write half a surrogate pair, which msgspec and most servers reject.
        return _decode_object(
            repair_surrogates(json.dumps(json.loads(arguments), ensure_ascii=False))
        )
    except DECODING_FAILS:
        return {}


def _result(call: ToolCall, id_: str) -> Block:
    text = result_text(call)
    shown = _images(call.images)
    content = [*_text(text if text.strip() else NO_OUTPUT), *shown]
    block: Block = {"type": "tool_result", "tool_use_id": id_, "content": content}
    # The API allows only text in an error.
    if call.error_kind is not None and all(part["type"] == "text" for part in content):
        block["is_error"] = True
    return block
