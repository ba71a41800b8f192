"""Decodes a Chat Completions stream to `ModelEvent`s, as compatible servers really send it. Pure.

A stream is complete at a finish reason or at `[DONE]`, since some servers send only one of these.
If the stream ends earlier, the decoder raises a `ModelError`. A `[DONE]` within a call also raises
this error, because gateways send that when the server behind them fails.
"""

import json
from typing import Any

import msgspec

from tiller_daemon.models.base import (
    Cited,
    Finished,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.openai_chat.calls import Call, Calls, arguments_of
from tiller_daemon.models.dialects.openai_chat.frames import (
    FAILED_REASONS,
    REASONS,
    CallDelta,
    Choice,
    Delta,
    Frame,
    citations_of,
    decode_frame,
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
from tiller_daemon.models.dialects.stream_decoder import TEXT, THINKING, StreamDecoder
from tiller_daemon.models.dialects.surrogates import repair_json
from tiller_daemon.models.http.failure import Endpoint, error_from_event
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage


class ChatDecoder(StreamDecoder):
    """Decodes one response.

    A call without an id gets an id made from `ordinal`, the number of the request in its session.
    """

    def __init__(self, endpoint: Endpoint, model: str, ordinal: int) -> None:
        super().__init__(endpoint)
        self._origin = origin_of(endpoint.base_url, model)
        self._ordinal = ordinal
        self._calls = Calls()
        self._call_ids: list[str] = []
        self._thinking_field = ""
        self._details: list[Detail] = []
        self._extra: Any = None
        self._is_in_text = False
        self._usage: Usage | None = None
        self._reason: FinishReason | None = None

    @property
    def whole(self) -> bool:
        """Whether the response is complete, although usage may still follow."""
        return self.finished or self._reason is not None

    def end(self) -> list[ModelEvent]:
        """Decode the rest when the connection ends. Raises `ModelError` for a partial response."""
        try:
            self._decode(self._splitter.end())
        except ModelError:
            # Frames after the finish reason are dispensable.
            if not self.whole:
                raise
        if self.whole:
            self._finish()
        return super().end()

    def _handle_frames(self, frames: list[bytes]) -> None:
        for data in frames:
            if self.finished:
                return
            # The cheap test comes first, because this runs for every delta.
            if data.startswith(b"[") and data.strip() == b"[DONE]":
                self._finish()
            else:
                self._handle_frame(data)

    def _handle_frame(self, data: bytes) -> None:
        try:
            frame = decode_frame(data)
        except DECODING_FAILS:
            if self._skips(data):
                return
            frame = self._decode_leniently(data)
        if frame.error is not None or (frame.choices is None and frame.object == "error"):
            raise error_from_event(self._endpoint, data)
        if frame.usage is not None:
            self._usage = usage_of(frame.usage)
        for choice in frame.choices or ():
            if not choice.index:
                self._handle_choice(choice)

    def _handle_choice(self, choice: Choice) -> None:
        if choice.error is not None:
            raise error_from_event(self._endpoint, msgspec.json.encode({"error": choice.error}))
        if choice.usage is not None:
            self._usage = usage_of(choice.usage)
        if choice.delta is not None:
            self._handle_delta(choice.delta)
        if choice.finish_reason and choice.finish_reason != "null":
            self._handle_finish_reason(choice.finish_reason)

    def _decode_leniently(self, data: bytes) -> Frame:
        """Decode a frame with half a surrogate pair, since some servers split text in UTF-16."""
        try:
            frame = msgspec.convert(json.loads(data), Frame)
        except DECODING_FAILS:
            raise self._invalid_frame(data) from None
        for choice in frame.choices or ():
            if choice.delta is not None:
                self._mend(choice.delta)
        return msgspec.convert(repair_json(msgspec.to_builtins(frame)), Frame)

    def _mend(self, delta: Delta) -> None:
        """Join the surrogate pairs that are split between the texts of two deltas."""
        for field in ("content", "reasoning_content", "reasoning"):
            if isinstance(text := getattr(delta, field), str) and text:
                setattr(delta, field, self._surrogates.mend(field, text))
        for call in delta.tool_calls or ():
            if call.function and isinstance(call.function.arguments, str):
                arguments = self._surrogates.mend(call.index, call.function.arguments)
                call.function.arguments = arguments

    def _handle_delta(self, delta: Delta) -> None:
        text, thought = delta.content, ""
        if isinstance(text, list):
            text, thought = parts_of(text)
        if delta.reasoning_content:
            self._add_thinking(delta.reasoning_content, "reasoning_content")
        elif delta.reasoning or thought:
            self._add_thinking(delta.reasoning or thought, "reasoning" if delta.reasoning else "")
        if delta.reasoning_details:
            join_details(self._details, delta.reasoning_details)
        if answer := text or delta.refusal:
            self._add_text(answer)
        for citation in citations_of(delta.annotations):
            self._deltas.add_event(Cited(citation))
        if delta.extra_content is not None:
            self._extra = delta.extra_content
        for call in delta.tool_calls or ():
            self._handle_call_delta(call)

    def _add_text(self, piece: str) -> None:
        if not self._is_in_text:
            self._flush_opaque()
        self._is_in_text = True
        self._deltas.add_text(TEXT, piece)

    def _add_thinking(self, piece: str, field: str) -> None:
        self._thinking_field, self._is_in_text = field, False
        self._deltas.add_text(THINKING, piece)

    def _flush_opaque(self, calls: dict[str, Any] | None = None) -> None:
        """Report the fields that the provider wants back so far. Must not be called within text."""
        if self._thinking_field or self._details or self._extra is not None or calls:
            after = self._call_ids[-1] if self._call_ids else ""
            fields = OpaqueFields(
                self._thinking_field, tuple(self._details), self._extra, calls or {}, after
            )
            self._deltas.add_event(ReasoningDelta("", seal_fields(self._origin, fields)))
            self._thinking_field, self._details, self._extra = "", [], None

    def _handle_call_delta(self, delta: CallDelta) -> None:
        piece = arguments_of(delta)
        call, is_new = self._calls.find(delta, piece)
        if is_new:
            # A complete call can run while the next one is streamed.
            for earlier in self._calls.all:
                if earlier.started and not earlier.done and earlier.is_complete:
                    self._complete_call(earlier)
        if call.done:
            if piece.strip():
                raise self._broken_stream("continued a tool call whose arguments were complete")
            return
        call.add_delta(delta, piece)
        if call.started:
            self._add_arguments(call, piece)
        elif call.name and call.arguments.strip():
            self._start_calls_until(call)

    def _start_calls_until(self, call: Call) -> None:
        """Report the start of all earlier calls and then of `call`, because the order matters."""
        for earlier in self._calls.all[: self._calls.all.index(call)]:
            if earlier.name and not earlier.started:
                self._start_call(earlier)
        self._start_call(call)

    def _start_call(self, call: Call) -> None:
        call_id, call.number = call.sent_id, len(self._call_ids)
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{self._ordinal}_{call.number}"
        self._flush_opaque({call_id: call.extra} if call.extra is not None else None)
        self._call_ids.append(call_id)
        call.started, self._is_in_text = True, False
        self._deltas.add_event(ToolCallStarted(call.number, call_id, call.name))
        self._add_arguments(call, call.arguments)

    def _add_arguments(self, call: Call, piece: str) -> None:
        if piece:
            self._deltas.add_text(call.number, piece)

    def _complete_call(self, call: Call) -> None:
        if not call.arguments.strip():
            self._add_arguments(call, "{}")
        call.done = True
        self._deltas.add_event(ToolCallDone(call.number))

    def _handle_finish_reason(self, reason: str) -> None:
        reason = reason.lower()
        for word, kind in FAILED_REASONS.items():
            if word in reason:
                message = f"{self._endpoint} gave up in the middle of its response ({reason})."
                raise ModelError(kind, message)
        self._reason = REASONS.get(reason, "unknown")
        self._complete_all()

    def _complete_all(self) -> None:
        for call in self._calls.all:
            if not call.name:
                raise self._broken_stream("sent a tool call without a name")
            if not call.started:
                self._start_call(call)
            if not call.done:
                self._complete_call(call)

    def _finish(self) -> None:
        if self.finished:
            return
        if self._reason is None and any(_is_cut_off(call) for call in self._calls.all):
            raise self._broken_stream("ended the response in the middle of a tool call")
        self._complete_all()
        self._flush_opaque()
        if self._usage is not None:
            self._deltas.add_event(UsageReported(self._usage))
        self._deltas.add_event(Finished(self._reason or "unknown"))
        self.finished = True


def _is_cut_off(call: Call) -> bool:
    return bool(call.arguments.strip()) and not call.is_complete
