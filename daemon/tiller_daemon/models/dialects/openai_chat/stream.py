"""Frames of a Chat Completions stream as `ModelEvent`s. Pure; no request is built here.

Made for what compatible servers really send; what a frame holds is in `frames`, how
pieces become calls in `calls`. A stream is whole when the server said so, by a finish
reason or by `[DONE]`: some send the one, some the other. Anything less is a `ModelError`, and so is
`[DONE]` in the middle of a call, which a gateway says whose own server broke off.
"""

import json
from typing import Any

import msgspec

from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.models.dialects.delta_buffer import TEXT, THINKING, DeltaBuffer
from tiller_daemon.models.dialects.openai_chat.calls import Call, Calls, arguments_of
from tiller_daemon.models.dialects.openai_chat.frames import (
    FAILED_REASONS,
    REASONS,
    CallDelta,
    Choice,
    Delta,
    Frame,
    decode_frame,
    is_named_error,
    parts_of,
    usage_of,
)
from tiller_daemon.models.dialects.openai_chat.opaque_fields import (
    Detail,
    OpaqueFields,
    join_details,
    origin_of,
    seal_fields,
)
from tiller_daemon.models.dialects.surrogates import SurrogateMender, with_whole_surrogates
from tiller_daemon.models.http.failure import Endpoint, error_from_event
from tiller_daemon.models.http.sse import EventSplitter, EventTooLong
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage

_DECODING_FAILS = (msgspec.DecodeError, ValueError, RecursionError)


class ChatDecoder:
    """Decodes one response. `feed` it bytes as they arrive; `end` it when the connection ends.

    Text that arrives in one chunk comes out as one event. Calls without an id get one made of
    `ordinal`, the number of the request in its session.
    """

    def __init__(self, endpoint: Endpoint, model: str, ordinal: int) -> None:
        self._endpoint = endpoint
        self._origin = origin_of(endpoint.base_url, model)
        self._ordinal = ordinal
        self._splitter = EventSplitter()
        self._pieces = DeltaBuffer()
        self._calls = Calls()
        self._call_ids: list[str] = []
        self._halves = SurrogateMender()
        self._field = ""
        self._details: list[Detail] = []
        self._extra: Any = None
        self._speaks = False
        self._usage: Usage | None = None
        self._reason: FinishReason | None = None
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
                try:
                    self._frame(data)
                except RecursionError:
                    raise self._broken("sent a frame that is nested too deeply") from None

    def _frame(self, data: bytes) -> None:
        try:
            frame = decode_frame(data)
        except _DECODING_FAILS:
            frame = self._decode_leniently(data)
        if frame.error is not None or (frame.choices is None and is_named_error(data)):
            raise error_from_event(self._endpoint, data)
        if frame.usage is not None:
            self._usage = usage_of(frame.usage)
        for choice in frame.choices or ():
            if not choice.index:
                self._choice(choice)

    def _choice(self, choice: Choice) -> None:
        if choice.error is not None:
            raise error_from_event(self._endpoint, msgspec.json.encode({"error": choice.error}))
        if choice.usage is not None:
            self._usage = usage_of(choice.usage)
        if choice.delta is not None:
            self._delta(choice.delta)
        if choice.finish_reason and choice.finish_reason != "null":
            self._stop(choice.finish_reason)

    def _decode_leniently(self, data: bytes) -> Frame:
        """Decode a frame with half a surrogate pair in it: some servers cut text in UTF-16."""
        try:
            frame = msgspec.convert(json.loads(data), Frame)
        except _DECODING_FAILS:
            shown = self._endpoint.quote(data.decode(errors="replace"))
            raise self._broken(f"sent a frame that is none of this dialect: {shown}") from None
        for choice in frame.choices or ():
            if choice.delta is not None:
                self._mend(choice.delta)
        return frame

    def _mend(self, delta: Delta) -> None:
        """Join the halves of cut pairs in whatever of a delta is kept."""
        for field in ("content", "reasoning_content", "reasoning"):
            if isinstance(text := getattr(delta, field), str) and text:
                setattr(delta, field, self._halves.mend(field, text))
        delta.content = with_whole_surrogates(delta.content)
        delta.reasoning_details = with_whole_surrogates(delta.reasoning_details)
        delta.extra_content = with_whole_surrogates(delta.extra_content)
        for call in delta.tool_calls or ():
            call.id = with_whole_surrogates(call.id)
            call.extra_content = with_whole_surrogates(call.extra_content)
            if function := call.function:
                function.name = with_whole_surrogates(function.name)
                if isinstance(function.arguments, str):
                    function.arguments = self._halves.mend(call.index, function.arguments)
                else:
                    function.arguments = with_whole_surrogates(function.arguments)

    def _delta(self, delta: Delta) -> None:
        said, thought = delta.content, ""
        if isinstance(said, list):
            said, thought = parts_of(said)
        if delta.reasoning_content:
            self._add_thinking(delta.reasoning_content, "reasoning_content")
        elif delta.reasoning or thought:
            self._add_thinking(delta.reasoning or thought, "reasoning" if delta.reasoning else "")
        if delta.reasoning_details:
            join_details(self._details, delta.reasoning_details)
        if text := said or delta.refusal:
            self._say(text)
        if delta.extra_content is not None:
            self._extra = delta.extra_content
        for call in delta.tool_calls or ():
            self._call_delta(call)

    def _say(self, piece: str) -> None:
        if not self._speaks:
            self._end_thinking()
        self._speaks = True
        self._pieces.add(TEXT, piece)

    def _add_thinking(self, piece: str, field: str) -> None:
        self._field, self._speaks = field, False
        self._pieces.add(THINKING, piece)

    def _end_thinking(self, calls: dict[str, Any] | None = None) -> None:
        """Say what the provider wants back of what came so far, but not amid a text."""
        if self._field or self._details or self._extra is not None or calls:
            after = self._call_ids[-1] if self._call_ids else ""
            kept = OpaqueFields(self._field, tuple(self._details), self._extra, calls or {}, after)
            self._pieces.put(ReasoningDelta("", seal_fields(self._origin, kept)))
            self._field, self._details, self._extra = "", [], None

    def _call_delta(self, delta: CallDelta) -> None:
        piece = arguments_of(delta)
        call, is_new = self._calls.find(delta, piece)
        if is_new:
            # What was complete before it can run while this one streams.
            for earlier in self._calls.all:
                if earlier.started and not earlier.done and earlier.is_complete:
                    self._complete(earlier)
        if call.done:
            if piece.strip():
                raise self._broken("went on with a tool call after its arguments were complete")
            return
        call.take(delta, piece)
        if call.started:
            self._argue(call, piece)
        elif call.name and call.arguments.strip():
            self._start_until(call)

    def _start_until(self, call: Call) -> None:
        """Say that a call has begun, and before it those that began earlier: their order counts."""
        for earlier in self._calls.all[: self._calls.all.index(call)]:
            if earlier.name and not earlier.started:
                self._start(earlier)
        self._start(call)

    def _start(self, call: Call) -> None:
        call_id, call.number = call.sent_id, len(self._call_ids)
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{self._ordinal}_{call.number}"
        self._end_thinking({call_id: call.extra} if call.extra is not None else None)
        self._call_ids.append(call_id)
        call.started, self._speaks = True, False
        self._pieces.put(ToolCallStarted(call.number, call_id, call.name))
        self._argue(call, call.arguments)

    def _argue(self, call: Call, piece: str) -> None:
        if piece:
            self._pieces.add(call.number, piece)

    def _complete(self, call: Call) -> None:
        if not call.arguments.strip():
            self._argue(call, "{}")
        call.done = True
        self._pieces.put(ToolCallDone(call.number))

    def _stop(self, reason: str) -> None:
        reason = reason.lower()
        for word, kind in FAILED_REASONS.items():
            if word in reason:
                message = f"{self._endpoint} gave up in the middle of its answer ({reason})."
                raise ModelError(kind, message)
        self._reason = REASONS.get(reason, "unknown")
        self._complete_all()

    def _complete_all(self) -> None:
        for call in self._calls.all:
            if not call.name:
                raise self._broken("sent a tool call without a name")
            if not call.started:
                self._start(call)
            if not call.done:
                self._complete(call)

    def _finish(self) -> None:
        if self.finished:
            return
        if self._reason is None and any(_is_half(call) for call in self._calls.all):
            raise self._broken("ended the answer in the middle of a tool call")
        self._complete_all()
        self._end_thinking()
        if self._usage is not None:
            self._pieces.put(UsageReported(self._usage))
        self._pieces.put(Finished(self._reason or "unknown"))
        self.finished = True

    def _broken(self, what: str) -> ModelError:
        return ModelError("broken_stream", f"{self._endpoint} {what}.")


def _is_half(call: Call) -> bool:
    return bool(call.arguments.strip()) and not call.is_complete
