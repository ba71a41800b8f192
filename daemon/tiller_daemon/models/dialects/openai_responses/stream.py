"""Frames of a Responses stream as `ModelEvent`s. Pure; no request is built here.

An answer is whole when the server said so in a terminal frame; anything less is a `ModelError`.
Made for what compatible servers really send: no indices, other ids in each frame, no pieces, no
usage, an output that is empty in the last frame. What items add up to is in
`outputs`.
Format: https://platform.openai.com/docs/api-reference/responses-streaming
"""

import msgspec

from tiller_daemon.models.base import Finished, ModelError, ModelEvent, UsageReported
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.event_builder import EventBuilder
from tiller_daemon.models.dialects.openai_responses.frames import (
    DECODING_FAILS,
    DELTAS,
    Frame,
    ReportedUsage,
    WholeResponse,
    decode_frame,
    decode_item,
    decode_leniently,
    decode_part,
    decode_response,
    is_set,
)
from tiller_daemon.models.dialects.openai_responses.outputs import (
    ARGUMENTS,
    OutputAssembler,
    PartialOutput,
    StreamMismatch,
)
from tiller_daemon.models.dialects.openai_responses.request import API
from tiller_daemon.models.dialects.surrogates import SurrogateMender
from tiller_daemon.models.http.failure import Endpoint, error_from_event
from tiller_daemon.models.http.sse import EventSplitter, EventTooLong
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage

_REASONS: dict[str | None, FinishReason] = {
    None: "length",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}


class ResponsesDecoder:
    """Decodes one response. `feed` it bytes as they arrive; `end` it when the connection ends.

    Text that arrives in one chunk comes out as one event. `ordinal` is the number of the request in
    its session, for calls without an id. `output_tokens_max` is what the request allowed.
    """

    def __init__(
        self, endpoint: Endpoint, model: str, ordinal: int, output_tokens_max: int | None = None
    ) -> None:
        self._endpoint = endpoint
        self._output_tokens_max = output_tokens_max
        self._splitter = EventSplitter()
        self._halves = SurrogateMender()
        self._answer = EventBuilder(Origin(API, endpoint.base_url, model))
        self._outputs = OutputAssembler(self._answer, ordinal)
        self._place: tuple[object, ...] | None = None
        self._of = PartialOutput("")
        self._part = ARGUMENTS
        """Where the last frame belonged, if it was a delta: to which part of which item."""
        self.finished = False
        """Whether `Finished` was returned; what the server sends after that is ignored."""

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """Take the next bytes; raises `ModelError` for a broken frame or an error object."""
        try:
            frames = self._splitter.feed(chunk)
        except EventTooLong as error:
            raise self._broken(f"sent {error}") from None
        self._take(frames)
        return self._answer.taken()

    def end(self) -> list[ModelEvent]:
        """The connection has ended; raises `ModelError` unless the response is whole."""
        self._take(self._splitter.end())
        if not self.finished:
            raise self._broken("ended the stream before the answer was whole")
        return self._answer.taken()

    def _take(self, chunk: list[bytes]) -> None:
        """Take the frames of a chunk; pieces of the same text that follow each other are joined."""
        pieces: list[str] = []
        for data in chunk:
            if self.finished:
                return
            try:
                frame = decode_frame(data)
            except DECODING_FAILS:
                frame = self._decode_leniently(data)
            if frame.delta and frame.type in DELTAS:
                place = frame.place
                if place != self._place:
                    self._end_pieces(pieces)
                    self._begin_pieces(frame)
                    self._place = place
                pieces.append(frame.delta)
                continue
            self._end_pieces(pieces)
            self._place = None
            self._meet(frame, data)
        self._end_pieces(pieces)

    def _begin_pieces(self, frame: Frame) -> None:
        """Find out of what the pieces to come are."""
        match frame.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._of = self._find(frame, "message")
                self._part = ("text", frame.content_index or 0)
            case "response.function_call_arguments.delta":
                self._of = self._find(frame, "function_call")
                self._part = ARGUMENTS
            case _:
                self._of = self._find(frame, "reasoning")
                self._part = _part_of_thinking(frame)

    def _end_pieces(self, pieces: list[str]) -> None:
        """Hand on the pieces so far."""
        if not pieces:
            return
        piece = "".join(pieces)
        pieces.clear()
        if self._of.kind == "message":
            self._outputs.say(self._of, self._part, piece)
        elif self._of.kind == "reasoning":
            self._outputs.think(self._of, self._part, piece)
        else:
            try:
                self._outputs.argue(self._of, piece)
            except StreamMismatch as missing:
                raise self._broken(str(missing)) from None

    def _decode_leniently(self, data: bytes) -> Frame:
        try:
            return decode_leniently(data, self._halves)
        except DECODING_FAILS:
            if data.strip() == b"[DONE]":
                return Frame()
            raise self._alien(data) from None

    def _meet(self, frame: Frame, data: bytes) -> None:
        try:
            self._frame(frame, data)
        except StreamMismatch as missing:
            raise self._broken(str(missing)) from None
        except DECODING_FAILS:
            raise self._alien(data) from None

    def _frame(self, frame: Frame, data: bytes) -> None:
        match frame.type:
            case "response.completed" | "response.incomplete":
                self._end_with(frame)
            case "response.failed" | "response.cancelled":
                raise self._failure(frame)
            case _:
                if frame.is_error:
                    raise error_from_event(self._endpoint, data)
                self._done(frame)

    def _done(self, frame: Frame) -> None:
        """Something began, or is whole."""
        match frame.type:
            case "response.output_item.added":
                item = decode_item(frame.item)
                output = self._outputs.open(item.type, frame.output_index, item.id, item.call_id)
                output.phase = item.phase or ""
                if output.kind == "function_call":
                    self._outputs.start_call(output, item.call_id, item.name)
            case "response.output_item.done":
                item = decode_item(frame.item)
                output = self._outputs.find_done(frame.output_index, item)
                self._outputs.complete(output, item, frame.item)
            case "response.output_text.done" | "response.refusal.done":
                whole = frame.text or frame.refusal or ""
                part = ("text", frame.content_index or 0)
                self._outputs.complete_text(self._find(frame, "message"), part, whole)
            case "response.content_part.done":
                whole = decode_part(frame.part)
                if whole.type in ("output_text", "refusal"):
                    part = ("text", frame.content_index or 0)
                    self._outputs.complete_text(self._find(frame, "message"), part, whole.whole)
            case "response.reasoning_summary_text.done" | "response.reasoning_text.done":
                self._outputs.complete_thinking(
                    self._find(frame, "reasoning"), _part_of_thinking(frame), frame.text or ""
                )
            case "response.function_call_arguments.done":
                output = self._find(frame, "function_call")
                output.name = output.name or frame.name or ""
                self._outputs.complete_arguments(output, frame.arguments or "")
            case _:
                pass

    def _find(self, frame: Frame, kind: str) -> PartialOutput:
        return self._outputs.find(kind, frame.output_index, frame.item_id)

    def _end_with(self, frame: Frame) -> None:
        response = decode_response(frame.response) if is_set(frame.response) else WholeResponse()
        if response.status in ("failed", "cancelled"):
            raise self._failure(frame)
        self._outputs.complete_all(response.output or [])
        reason = self._reason(frame, response)
        for call in self._outputs.calls:
            self._outputs.start_call(call, None, None)
            if reason == "tool_calls" or not call.is_started:
                self._outputs.complete_call(call)
        if response.usage is not None:
            self._answer.put(UsageReported(_usage_of(response.usage)))
        self._answer.put(Finished(reason))
        self.finished = True

    def _reason(self, frame: Frame, response: WholeResponse) -> FinishReason:
        """Why the answer ended. Some servers call one complete that their limit has cut."""
        if "incomplete" in (response.status, frame.type.removeprefix("response.")):
            details = response.incomplete_details
            return _REASONS.get(details.reason if details else None, "unknown")
        spent = response.usage.output_tokens if response.usage else None
        if spent and self._output_tokens_max and spent >= self._output_tokens_max:
            return "length"
        return "tool_calls" if self._outputs.calls else "stop"

    def _failure(self, frame: Frame) -> ModelError:
        response = decode_response(frame.response) if is_set(frame.response) else WholeResponse()
        if is_set(response.error):
            told = msgspec.json.encode({"error": response.error})
            return error_from_event(self._endpoint, told)
        return ModelError("server", f"{self._endpoint} gave up in the middle of its answer.")

    def _alien(self, data: bytes) -> ModelError:
        shown = self._endpoint.quote(data.decode(errors="replace"))
        return self._broken(f"sent a frame that is none of this dialect: {shown}")

    def _broken(self, what: str) -> ModelError:
        return ModelError("broken_stream", f"{self._endpoint} {what}.")


def _part_of_thinking(frame: Frame) -> tuple[str, int]:
    if frame.type.startswith("response.reasoning_summary"):
        return "summary", frame.summary_index or 0
    return "content", frame.content_index or 0


def _usage_of(usage: ReportedUsage) -> Usage:
    cached = usage.input_tokens_details
    reasoning = usage.output_tokens_details
    return Usage(
        usage.input_tokens or 0,
        (cached.cached_tokens if cached else 0) or 0,
        usage.output_tokens or 0,
        (reasoning.reasoning_tokens if reasoning else 0) or 0,
    )
