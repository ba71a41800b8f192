"""Decodes a Messages stream to `ModelEvent`s. Pure.

A stream is complete at `message_stop`. If it ends earlier, the decoder raises a `ModelError`.
Unknown events, blocks and deltas are ignored, as the API's documentation requires.
Format: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
from typing import Any, cast

import msgspec

from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
    ReasoningDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.anthropic_messages.frames import (
    Delta,
    Frame,
    decode_frame,
    decode_object,
)
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import (
    PAUSE,
    Block,
    origin_of,
    seal_blocks,
)
from tiller_daemon.models.dialects.anthropic_messages.server_tools import (
    cited,
    finished_call,
    sendable_citation,
    started_call,
)
from tiller_daemon.models.dialects.counts import token_count
from tiller_daemon.models.dialects.stream_decoder import TEXT, THINKING, StreamDecoder
from tiller_daemon.models.dialects.surrogates import repair_json
from tiller_daemon.models.http.failure import Endpoint, error_from_event
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "pause_turn": "paused",
}
"""Finish reasons. `pause_turn` is for slow server tools: the next request continues their work."""


class _OpenBlock:
    """A block that is not complete. `call` is the number of a tool call, else None."""

    def __init__(self, start: Block) -> None:
        self.kind = start.get("type")
        self.start = start
        self.pieces: list[str] = []
        self.chars = 0
        """The length of the text in a text block."""
        self.signature = str(start.get("signature") or "")
        citations = start.get("citations")
        self.citations: list[Any] = [*citations] if isinstance(citations, list) else []
        self.call: int | None = None

    @property
    def text(self) -> str:
        """The text received so far."""
        return "".join(self.pieces)


class MessagesDecoder(StreamDecoder):
    """Decodes one response.

    A call without an id gets an id made from `ordinal`, the number of the request in its session.
    `prefix` is the digest of the request.
    """

    def __init__(self, endpoint: Endpoint, model: str, ordinal: int, prefix: str) -> None:
        super().__init__(endpoint)
        self._origin = origin_of(endpoint.base_url, model)
        self._ordinal = ordinal
        self._prefix = prefix
        self._blocks: dict[int, _OpenBlock] = {}
        self._opaque_blocks: list[Block] = []
        self._texts: list[tuple[int, list[Any]]] = []
        """The length and the citations of each block of the current text."""
        self._hosted: dict[str, HostedCall] = {}
        """The calls of server tools, by their ids."""
        self._call_ids: list[str] = []
        self._usage: dict[str, object] = {}
        self._reason: FinishReason = "unknown"

    def _handle_frames(self, frames: list[bytes]) -> None:
        for data in frames:
            if self.finished:
                return
            self._handle_frame(data)

    def _handle_frame(self, data: bytes) -> None:
        try:
            frame = decode_frame(data)
        except DECODING_FAILS:
            if self._skips(data):
                return
            frame = self._decode_leniently(data)
        if frame.error is not None or frame.type == "error":
            raise error_from_event(self._endpoint, data)
        match frame.type:
            case "content_block_delta" if frame.delta is not None:
                self._extend_block(frame.index, frame.delta)
            case "message_start" if frame.message is not None:
                self._update_usage(frame.message.usage)
            case "content_block_start" if frame.content_block is not None:
                self._start_block(frame.index, frame.content_block)
            case "content_block_stop":
                self._stop_block(frame.index)
            case "message_delta":
                self._update_usage(frame.usage)
                if frame.delta is not None and frame.delta.stop_reason:
                    self._reason = _REASONS.get(frame.delta.stop_reason, "unknown")
            case "message_stop":
                self._finish()
            case _:
                pass

    def _decode_leniently(self, data: bytes) -> Frame:
        """Decode a frame with half a surrogate pair, since some servers split text in UTF-16."""
        try:
            frame = msgspec.convert(json.loads(data), Frame)
        except DECODING_FAILS:
            raise self._invalid_frame(data) from None
        if frame.delta is not None:
            for field in ("text", "thinking", "partial_json"):
                if text := getattr(frame.delta, field):
                    setattr(frame.delta, field, self._surrogates.mend((frame.index, field), text))
        return msgspec.convert(repair_json(msgspec.to_builtins(frame)), Frame)

    def _update_usage(self, usage: object) -> None:
        """Update the token counts, which are cumulative. An absent count has not changed."""
        if isinstance(usage, dict):
            known = cast("dict[str, object]", usage)
            self._usage |= {name: one for name, one in known.items() if one is not None}

    def _start_block(self, index: int, start: Block) -> None:
        self._stop_block(index)
        block = self._blocks[index] = _OpenBlock(start)
        if block.kind != "text":
            self._end_text()
        match block.kind:
            case "text":
                self._append(block, str(start.get("text") or ""))
            case "thinking":
                self._add_thinking(block, str(start.get("thinking") or ""))
            case "tool_use":
                self._start_call(block)
            case str() if call := started_call(start):
                self._opaque_blocks.clear()
                self._add_hosted(call)
            case _:
                pass

    def _extend_block(self, index: int, delta: Delta) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise self._broken_stream("sent part of a block that was not started")
        if delta.type == "text_delta":
            if block.kind == "text":
                self._append(block, delta.text or "")
            return
        match delta.type, block.kind:
            case "citations_delta", "text":
                block.citations.append(delta.citation)
            case "thinking_delta", "thinking":
                self._add_thinking(block, delta.thinking or "")
            case "signature_delta", "thinking":
                block.signature = delta.signature or ""
            case "input_json_delta", "tool_use":
                self._add_arguments(block, delta.partial_json or "")
            case "input_json_delta", _:
                block.pieces.append(delta.partial_json or "")
            case _:
                pass

    def _stop_block(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        match block.kind:
            case "text":
                self._texts.append((block.chars, [*map(sendable_citation, block.citations)]))
                for citation in block.citations:
                    self._deltas.add_event(Cited(cited(citation)))
            case "thinking":
                thought = {"thinking": block.text, "signature": block.signature}
                self._add_opaque({"type": "thinking", **thought})
            case "tool_use":
                self._complete_call(block)
            case str():
                self._add_server_block(block)
            case _:
                pass

    def _append(self, block: _OpenBlock, piece: str) -> None:
        if not piece:
            return
        block.chars += len(piece)
        self._opaque_blocks.clear()
        self._deltas.add_text(TEXT, piece)

    def _add_thinking(self, block: _OpenBlock, piece: str) -> None:
        if not piece:
            return
        block.pieces.append(piece)
        self._deltas.add_text(THINKING, piece)

    def _add_opaque(self, block: Block) -> None:
        """Store a block in one item with the other blocks since the last text or call."""
        self._opaque_blocks.append(block)
        self._deltas.add_event(
            ReasoningDelta("", seal_blocks(self._origin, self._prefix, self._opaque_blocks))
        )

    def _end_text(self) -> None:
        """Store the division into blocks of the text so far, if the text has citations.

        For the turn, the text is one item, but the API wants the original blocks back.
        """
        texts, self._texts = self._texts, []
        if any(citations for _, citations in texts):
            self._add_opaque({"type": "text", "texts": texts})

    def _add_hosted(self, call: HostedCall) -> None:
        self._hosted[call.call_id] = call
        self._deltas.add_event(call)

    def _add_server_block(self, block: _OpenBlock) -> None:
        """Store a block that only the provider understands, such as a call of a server tool."""
        whole = block.start
        if block.pieces:
            try:
                whole = whole | {"input": decode_object(block.text)}
            except DECODING_FAILS:
                return
        if call := started_call(whole) or finished_call(whole, self._hosted):
            self._add_hosted(call)
        self._add_opaque(whole)

    def _start_call(self, block: _OpenBlock) -> None:
        name, call_id = block.start.get("name"), block.start.get("id")
        if not name or not isinstance(name, str):
            raise self._broken_stream("sent a tool call without a name")
        block.call = len(self._call_ids)
        if not call_id or not isinstance(call_id, str) or call_id in self._call_ids:
            call_id = f"call_{self._ordinal}_{block.call}"
        self._call_ids.append(call_id)
        self._opaque_blocks.clear()
        self._deltas.add_event(ToolCallStarted(block.call, call_id, name))

    def _add_arguments(self, block: _OpenBlock, piece: str) -> None:
        if not piece or block.call is None:
            return
        block.pieces.append(piece)
        self._deltas.add_text(block.call, piece)

    def _complete_call(self, block: _OpenBlock) -> None:
        if not block.text.strip():
            # Most servers start with an empty input and send deltas. Some send all input at once.
            self._add_arguments(block, msgspec.json.encode(block.start.get("input") or {}).decode())
        if block.call is not None:
            self._deltas.add_event(ToolCallDone(block.call))

    def _finish(self) -> None:
        for index, block in list(self._blocks.items()):
            if block.kind == "tool_use" and not _is_object(block.text or "{}"):
                raise self._broken_stream("ended the response in the middle of a tool call")
            self._stop_block(index)
        self._end_text()
        if self._reason == "paused":
            self._add_opaque({"type": PAUSE})
        if self._usage:
            self._deltas.add_event(UsageReported(_usage_of(self._usage)))
        self._deltas.add_event(Finished(self._reason))
        self.finished = True


def _is_object(text: str) -> bool:
    try:
        decode_object(text)
    except DECODING_FAILS:
        return False
    return True


def _usage_of(usage: object) -> Usage:
    """Convert the token counts. In `Usage`, unlike in the API, input includes cached tokens."""
    cached = token_count(usage, "cache_read_input_tokens") or 0
    written = token_count(usage, "cache_creation_input_tokens") or 0
    return Usage(
        (token_count(usage, "input_tokens") or 0) + written + cached,
        cached,
        token_count(usage, "output_tokens") or 0,
        token_count(usage, "output_tokens_details", "thinking_tokens") or 0,
        written,
    )
