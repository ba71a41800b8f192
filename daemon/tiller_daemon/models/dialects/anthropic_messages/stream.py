"""Frames of a Messages stream as `ModelEvent`s. Pure; no request is built here.

A stream is whole when the server has said `message_stop`; anything less is a `ModelError`. Events,
blocks and deltas that are not known yet are passed over, as the API asks of its clients.
Format: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
from typing import Any

import msgspec
from msgspec import Struct

from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.models.dialects.anthropic_messages.opaque_blocks import (
    Block,
    origin_of,
    seal_blocks,
)
from tiller_daemon.models.dialects.delta_buffer import TEXT, THINKING, DeltaBuffer
from tiller_daemon.models.dialects.surrogates import SurrogateMender, with_whole_surrogates
from tiller_daemon.models.http.failure import Endpoint, error_from_event
from tiller_daemon.models.http.sse import EventSplitter, EventTooLong
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""`pause_turn` is none of these: a server's tool wants more time, and nobody asks for one here."""


class _UsageFrame(Struct, gc=False):
    """What is counted; None where a frame says nothing of it."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: dict[str, Any] | None = None


class _Message(Struct):
    usage: _UsageFrame | None = None


class _Delta(Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Any = None
    stop_reason: str | None = None


class _Frame(Struct):
    type: str | None = None
    index: int = 0
    message: _Message | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: _UsageFrame | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Frame).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)


class _OpenBlock:
    """A block of content in the making. `call` is the number of a tool call, else None."""

    def __init__(self, start: Block) -> None:
        self.kind = start.get("type")
        self.start = start
        self.pieces: list[str] = []
        self.signature = str(start.get("signature") or "")
        citations = start.get("citations")
        self.citations: list[Any] = [*citations] if isinstance(citations, list) else []
        self.call: int | None = None

    @property
    def text(self) -> str:
        """All pieces."""
        return "".join(self.pieces)


class MessagesDecoder:
    """Decodes one response. `feed` it bytes as they arrive; `end` it when the connection ends.

    Text that arrives in one chunk comes out as one event. Calls without an id get one made of
    `ordinal`, the number of the request in its session; `prefix` is the digest of that request.
    """

    def __init__(self, endpoint: Endpoint, model: str, ordinal: int, prefix: str) -> None:
        self._endpoint = endpoint
        self._origin = origin_of(endpoint.base_url, model)
        self._ordinal = ordinal
        self._prefix = prefix
        self._splitter = EventSplitter()
        self._halves = SurrogateMender()
        self._pieces = DeltaBuffer()
        self._blocks: dict[int, _OpenBlock] = {}
        self._kept: list[Block] = []
        self._call_ids: list[str] = []
        self._usage = _UsageFrame()
        self._reason: FinishReason = "unknown"
        self.finished = False
        """Whether `Finished` was returned; what the server sends after that is ignored."""

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """Take the next bytes; raises `ModelError` for a broken frame or an error event."""
        try:
            frames = self._splitter.feed(chunk)
        except EventTooLong as error:
            raise self._broken(f"sent {error}") from None
        return self._taken(frames)

    def end(self) -> list[ModelEvent]:
        """The connection has ended; raises `ModelError` unless the response is whole."""
        events = [] if self.finished else self._taken(self._splitter.end())
        if not self.finished:
            raise self._broken("ended the stream before the answer was whole")
        return events

    def _taken(self, frames: list[bytes]) -> list[ModelEvent]:
        for data in frames:
            if not self.finished:
                try:
                    self._frame(data)
                except RecursionError:
                    raise self._broken("sent a frame that is nested too deeply") from None
        return self._pieces.taken()

    def _frame(self, data: bytes) -> None:
        try:
            frame = _decode(data)
        except _DECODING_FAILS:
            frame = self._decode_leniently(data)
        if frame.error is not None or frame.type == "error":
            raise error_from_event(self._endpoint, data)
        match frame.type:
            case "content_block_delta" if frame.delta is not None:
                self._extend(frame.index, frame.delta)
            case "message_start" if frame.message is not None:
                self._count(frame.message.usage)
            case "content_block_start" if frame.content_block is not None:
                self._begin(frame.index, frame.content_block)
            case "content_block_stop":
                self._stop(frame.index)
            case "message_delta":
                self._count(frame.usage)
                if frame.delta is not None and frame.delta.stop_reason:
                    self._reason = _REASONS.get(frame.delta.stop_reason, "unknown")
            case "message_stop":
                self._finish()
            case _:
                pass

    def _decode_leniently(self, data: bytes) -> _Frame:
        """Decode a frame with half a surrogate pair in it: some servers cut text in UTF-16."""
        try:
            frame = msgspec.convert(json.loads(data), _Frame)
        except _DECODING_FAILS:
            shown = self._endpoint.quote(data.decode(errors="replace"))
            raise self._broken(f"sent a frame that is none of this dialect: {shown}") from None
        frame.content_block = with_whole_surrogates(frame.content_block)
        if frame.delta is not None:
            frame.delta.citation = with_whole_surrogates(frame.delta.citation)
            frame.delta.signature = with_whole_surrogates(frame.delta.signature)
            for field in ("text", "thinking", "partial_json"):
                if text := getattr(frame.delta, field):
                    setattr(frame.delta, field, self._halves.mend((frame.index, field), text))
        return frame

    def _count(self, usage: _UsageFrame | None) -> None:
        """Take counts over: they are of the whole response, and what is not said stays."""
        for field in _UsageFrame.__struct_fields__:
            if (value := getattr(usage, field, None)) is not None:
                setattr(self._usage, field, value)

    def _begin(self, index: int, start: Block) -> None:
        self._stop(index)
        block = self._blocks[index] = _OpenBlock(start)
        match block.kind:
            case "text":
                self._append(str(start.get("text") or ""))
            case "thinking":
                self._think(block, str(start.get("thinking") or ""))
            case "tool_use":
                self._call(block)
            case _:
                pass

    def _extend(self, index: int, delta: _Delta) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise self._broken("sent a piece of a block that was not begun")
        if delta.type == "text_delta":
            if block.kind == "text":
                self._append(delta.text or "")
            return
        match delta.type, block.kind:
            case "citations_delta", "text":
                block.citations.append(delta.citation)
            case "thinking_delta", "thinking":
                self._think(block, delta.thinking or "")
            case "signature_delta", "thinking":
                block.signature = delta.signature or ""
            case "input_json_delta", "tool_use":
                self._argue(block, delta.partial_json or "")
            case "input_json_delta", _:
                block.pieces.append(delta.partial_json or "")
            case _:
                pass

    def _stop(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        match block.kind:
            case "text":
                if block.citations:
                    self._keep({"type": "text", "citations": block.citations})
            case "thinking":
                thought = {"thinking": block.text, "signature": block.signature}
                self._keep({"type": "thinking", **thought})
            case "tool_use":
                self._complete(block)
            case str():
                self._keep_opaque(block)
            case _:
                pass

    def _append(self, piece: str) -> None:
        if not piece:
            return
        self._kept.clear()
        self._pieces.add(TEXT, piece)

    def _think(self, block: _OpenBlock, piece: str) -> None:
        if not piece:
            return
        block.pieces.append(piece)
        self._pieces.add(THINKING, piece)

    def _keep(self, block: Block) -> None:
        """Have a block kept, beside those since the last text or call: one item has them all."""
        self._kept.append(block)
        self._pieces.put(ReasoningDelta("", seal_blocks(self._origin, self._prefix, self._kept)))

    def _keep_opaque(self, block: _OpenBlock) -> None:
        """Keep a block that only its provider understands, such as what a server's tool did."""
        whole = block.start
        if block.pieces:
            try:
                whole = whole | {"input": _decode_object(block.text)}
            except _DECODING_FAILS:
                return
        self._keep(whole)

    def _call(self, block: _OpenBlock) -> None:
        name, call_id = block.start.get("name"), block.start.get("id")
        if not name or not isinstance(name, str):
            raise self._broken("sent a tool call without a name")
        block.call = len(self._call_ids)
        if not call_id or not isinstance(call_id, str) or call_id in self._call_ids:
            call_id = f"call_{self._ordinal}_{block.call}"
        self._call_ids.append(call_id)
        self._kept.clear()
        self._pieces.put(ToolCallStarted(block.call, call_id, name))

    def _argue(self, block: _OpenBlock, piece: str) -> None:
        if not piece or block.call is None:
            return
        block.pieces.append(piece)
        self._pieces.add(block.call, piece)

    def _complete(self, block: _OpenBlock) -> None:
        if not block.text.strip():
            # Most begin with an empty input and send pieces; some send it whole at once.
            self._argue(block, msgspec.json.encode(block.start.get("input") or {}).decode())
        if block.call is not None:
            self._pieces.put(ToolCallDone(block.call))

    def _finish(self) -> None:
        for index, block in list(self._blocks.items()):
            if block.kind == "tool_use" and not _is_object(block.text or "{}"):
                raise self._broken("ended the answer in the middle of a tool call")
            self._stop(index)
        if self._usage != _UsageFrame():
            self._pieces.put(UsageReported(_usage_of(self._usage)))
        self._pieces.put(Finished(self._reason))
        self.finished = True

    def _broken(self, what: str) -> ModelError:
        return ModelError("broken_stream", f"{self._endpoint} {what}.")


def _is_object(text: str) -> bool:
    try:
        _decode_object(text)
    except _DECODING_FAILS:
        return False
    return True


def _usage_of(usage: _UsageFrame) -> Usage:
    """The API counts what it reads from its cache and what it writes there apart from the rest."""
    cached = usage.cache_read_input_tokens or 0
    written = usage.cache_creation_input_tokens or 0
    thought = (usage.output_tokens_details or {}).get("thinking_tokens")
    return Usage(
        (usage.input_tokens or 0) + written + cached,
        cached,
        usage.output_tokens or 0,
        thought if isinstance(thought, int) else 0,
        written,
    )
