"""Frames of a Chat Completions stream as `ModelEvent`s. Pure; no request is built here.

Made for what compatible servers really send: names repeated in each delta, calls without ids or
indices, thinking under two names, no usage, no `[DONE]`. A stream is whole when the server said
so, by a finish reason or by `[DONE]`; anything less is a `ModelError`.
Format: https://platform.openai.com/docs/api-reference/chat-streaming
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
from tiller_daemon.models.http_failure import Endpoint, error_in_stream
from tiller_daemon.models.openai_chat_request import REASONING_FIELDS, reasoning_tags
from tiller_daemon.models.pieces import TEXT, THINKING, Pieces
from tiller_daemon.models.sse import EventSplitter, EventTooLong
from tiller_daemon.models.surrogates import HalfPairs
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(Struct):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _InputDetails(Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Frame(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Named(Struct):
    object: str | None = None


_decode = msgspec.json.Decoder(_Frame).decode
_decode_name = msgspec.json.Decoder(_Named).decode
_DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)


class _Call:
    """A tool call in the making. `sent_id` is the server's own id.

    `number` is its place among the calls that have begun.
    """

    def __init__(self, sent_id: str) -> None:
        self.number = -1
        self.sent_id = sent_id
        self.name = ""
        self.pieces: list[str] = []
        self.started = False
        self.done = False

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a whole JSON object, to which nothing can be added."""
        try:
            msgspec.json.decode("".join(self.pieces), type=dict[str, msgspec.Raw])
        except _DECODING_FAILS:
            return False
        return True


class ChatDecoder:
    """Decodes one response. `feed` it bytes as they arrive; `end` it when the connection ends.

    Text that arrives in one chunk comes out as one event. Calls without an id get one made of
    `ordinal`, the number of the request in its session.
    """

    def __init__(self, endpoint: Endpoint, model: str, ordinal: int) -> None:
        self._endpoint = endpoint
        self._reasoning_tags = reasoning_tags(endpoint.base_url, model)
        self._ordinal = ordinal
        self._splitter = EventSplitter()
        self._pieces = Pieces()
        self._calls: dict[int | None, _Call] = {}
        self._all_calls: list[_Call] = []
        self._call_ids: set[str] = set()
        self._halves = HalfPairs()
        self._usage: Usage | None = None
        self._reason: FinishReason | None = None
        self._is_thinking = False
        self._is_done = False
        self.finished = False
        """Whether `Finished` was returned; what the server sends after that is ignored."""

    @property
    def whole(self) -> bool:
        """Whether the server has said that the response is complete."""
        return self._is_done or self._reason is not None

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """Take the next bytes; raises `ModelError` for a broken frame or an error object."""
        try:
            frames = self._splitter.feed(chunk)
        except EventTooLong as error:
            raise self._broken(f"sent {error}") from None
        self._take(frames)
        return self._pieces.taken()

    def end(self) -> list[ModelEvent]:
        """The connection has ended; raises `ModelError` unless the response is whole."""
        try:
            self._take(self._splitter.end())
        except ModelError:
            if not self.whole:
                raise
        if not self.whole:
            raise self._broken("ended the stream before the answer was whole")
        self._finish()
        return self._pieces.taken()

    def _take(self, frames: list[bytes]) -> None:
        for data in frames:
            if self._is_done:
                break
            if data.startswith(b"[") and data.strip() == b"[DONE]":
                self._is_done = True
                self._finish()
            else:
                self._frame(data)

    def _frame(self, data: bytes) -> None:
        try:
            frame = _decode(data)
        except _DECODING_FAILS:
            frame = self._decode_leniently(data)
        if frame.error is not None or (frame.choices is None and _is_error(data)):
            raise error_in_stream(self._endpoint, data)
        if frame.usage is not None:
            self._usage = _usage_of(frame.usage)
        for choice in frame.choices or ():
            if choice.index:
                continue
            if choice.delta is not None:
                self._delta(choice.delta)
            if choice.finish_reason:
                self._stop(choice.finish_reason)

    def _decode_leniently(self, data: bytes) -> _Frame:
        """Decode a frame with half a surrogate pair in it: some servers cut text in UTF-16."""
        try:
            frame = msgspec.convert(json.loads(data), _Frame)
        except _DECODING_FAILS:
            shown = self._endpoint.quote(data.decode(errors="replace"))
            raise self._broken(f"sent a frame that is none of this dialect: {shown}") from None
        for choice in frame.choices or ():
            for field in ("content", *REASONING_FIELDS):
                if text := getattr(choice.delta, field, None):
                    setattr(choice.delta, field, self._halves.mend(field, text))
            for call in (choice.delta.tool_calls if choice.delta else None) or ():
                if call.function and isinstance(call.function.arguments, str):
                    call.function.arguments = self._halves.mend(call.index, call.function.arguments)
        return frame

    def _delta(self, delta: _Delta) -> None:
        if delta.reasoning_content:
            self._think(delta.reasoning_content, "reasoning_content")
        elif delta.reasoning:
            self._think(delta.reasoning, "reasoning")
        if text := delta.content or delta.refusal:
            self._is_thinking = False
            self._pieces.add(TEXT, text)
        if delta.tool_calls:
            self._is_thinking = False
            for call in delta.tool_calls:
                self._call_delta(call, call.function or _Function())

    def _think(self, piece: str, field: str) -> None:
        if self._is_thinking:
            self._pieces.add(THINKING, piece)
        else:
            self._pieces.put(ReasoningDelta(piece, self._reasoning_tags[field]))
        self._is_thinking = True

    def _call_delta(self, delta: _CallDelta, function: _Function) -> None:
        piece = function.arguments or ""
        if isinstance(piece, dict):
            piece = msgspec.json.encode(piece).decode()
        call = self._calls.get(delta.index)
        if call is None or _begins_another(call, delta, function.name, piece):
            call = self._begin_call(delta)
        if call.done:
            if piece.strip():
                raise self._broken("went on with a tool call after its arguments were complete")
            return
        call.name = call.name or function.name or ""
        if piece:
            call.pieces.append(piece)
        if call.started:
            self._argue(call, piece)
        elif call.name:
            self._start(call)

    def _begin_call(self, delta: _CallDelta) -> _Call:
        """A new call: whatever was complete before it can run while this one streams."""
        for earlier in self._all_calls:
            if earlier.started and not earlier.done and earlier.is_complete:
                self._complete(earlier)
        call = _Call(delta.id or "")
        self._calls[delta.index] = call
        self._all_calls.append(call)
        return call

    def _start(self, call: _Call) -> None:
        call_id, call.number = call.sent_id, len(self._call_ids)
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{self._ordinal}_{call.number}"
        self._call_ids.add(call_id)
        call.started = True
        self._pieces.put(ToolCallStarted(call.number, call_id, call.name))
        self._argue(call, "".join(call.pieces))

    def _argue(self, call: _Call, piece: str) -> None:
        if piece:
            self._pieces.add(call.number, piece)

    def _complete(self, call: _Call) -> None:
        if not "".join(call.pieces).strip():
            self._argue(call, "{}")
        call.done = True
        self._pieces.put(ToolCallDone(call.number))

    def _stop(self, reason: str) -> None:
        if reason == "error":
            raise ModelError("server", f"{self._endpoint} gave up in the middle of its answer.")
        self._reason = _REASONS.get(reason, "unknown")
        self._complete_all()

    def _complete_all(self) -> None:
        for call in self._all_calls:
            if not call.started:
                raise self._broken("sent a tool call without a name")
            if not call.done:
                self._complete(call)

    def _finish(self) -> None:
        if self.finished:
            return
        self._complete_all()
        if self._usage is not None:
            self._pieces.put(UsageReported(self._usage))
        self._pieces.put(Finished(self._reason or "unknown"))
        self.finished = True

    def _broken(self, what: str) -> ModelError:
        return ModelError("broken_stream", f"{self._endpoint} {what}.")


def _is_error(data: bytes) -> bool:
    """Whether a frame without choices is an error that says so by its name."""
    try:
        return _decode_name(data).object == "error"
    except _DECODING_FAILS:
        return False


def _begins_another(call: _Call, delta: _CallDelta, name: str | None, piece: str) -> bool:
    """Whether a delta with the index of `call`, or with none, is for a new call after all.

    Some servers give every call of a response index 0, some none.
    """
    if not name:
        return False
    is_other = delta.id != call.sent_id if delta.id else delta.index is None and piece != ""
    return is_other and call.is_complete


def _usage_of(usage: _Usage) -> Usage:
    cached = usage.prompt_tokens_details
    reasoning = usage.completion_tokens_details
    return Usage(
        usage.prompt_tokens or 0,
        (cached.cached_tokens if cached else 0) or 0,
        usage.completion_tokens or 0,
        (reasoning.reasoning_tokens if reasoning else 0) or 0,
    )
