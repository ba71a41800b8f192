"""Decodes a Responses stream to `ModelEvent`s. Pure.

A response is complete at a terminal frame. If the stream ends earlier, the decoder raises a
`ModelError`. Compatible servers may send no indices, a new id in each frame, no deltas, no usage,
or no output in the last frame. `outputs` assembles the items.
Format: https://platform.openai.com/docs/api-reference/responses-streaming
"""

import msgspec

from tiller_daemon.models.base import Finished, ModelError, UsageReported
from tiller_daemon.models.decoding import DECODING_FAILS
from tiller_daemon.models.dialects.counts import token_count
from tiller_daemon.models.dialects.opaque import Origin
from tiller_daemon.models.dialects.openai_responses.event_builder import EventBuilder
from tiller_daemon.models.dialects.openai_responses.frames import (
    DELTAS,
    Frame,
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
from tiller_daemon.models.dialects.stream_decoder import StreamDecoder
from tiller_daemon.models.http.failure import Endpoint, error_from_event
from tiller_protocol.events import FinishReason
from tiller_protocol.items import Usage

_REASONS: dict[str | None, FinishReason] = {
    None: "length",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}


class ResponsesDecoder(StreamDecoder):
    """Decodes one response.

    A call without an id gets an id made from `ordinal`, the number of the request in its session.
    `output_tokens_max` is the limit in the request, if there is one.
    """

    def __init__(
        self, endpoint: Endpoint, model: str, ordinal: int, output_tokens_max: int | None = None
    ) -> None:
        super().__init__(endpoint)
        self._output_tokens_max = output_tokens_max
        self._deltas = EventBuilder(Origin(API, endpoint.base_url, model))
        self._outputs = OutputAssembler(self._deltas, ordinal)
        self._run_place: tuple[object, ...] | None = None
        self._run_output = PartialOutput("")
        self._run_part = ARGUMENTS
        """The part to which the current run of deltas belongs, in the item `_run_output`."""

    def _handle_frames(self, frames: list[bytes]) -> None:
        # For speed, consecutive deltas of one text are joined.
        pieces: list[str] = []
        for data in frames:
            if self.finished:
                return
            try:
                frame = decode_frame(data)
            except DECODING_FAILS:
                if self._skips(data):
                    continue
                frame = self._decode_leniently(data)
            if frame.delta and frame.type in DELTAS:
                place = frame.place
                if place != self._run_place:
                    self._end_run(pieces)
                    self._start_run(frame)
                    self._run_place = place
                pieces.append(frame.delta)
                continue
            self._end_run(pieces)
            self._run_place = None
            self._handle(frame, data)
        self._end_run(pieces)

    def _start_run(self, frame: Frame) -> None:
        """Start a run of deltas: determine the item and the part to which the deltas belong."""
        match frame.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._run_output = self._find(frame, "message")
                self._run_part = ("text", frame.content_index or 0)
            case "response.function_call_arguments.delta":
                self._run_output = self._find(frame, "function_call")
                self._run_part = ARGUMENTS
            case _:
                self._run_output = self._find(frame, "reasoning")
                self._run_part = _part_of_thinking(frame)

    def _end_run(self, pieces: list[str]) -> None:
        """End a run of deltas: pass on its text."""
        if not pieces:
            return
        piece = "".join(pieces)
        pieces.clear()
        if self._run_output.kind == "message":
            self._outputs.add_text(self._run_output, self._run_part, piece)
        elif self._run_output.kind == "reasoning":
            self._outputs.add_thinking(self._run_output, self._run_part, piece)
        else:
            try:
                self._outputs.add_arguments(self._run_output, piece)
            except StreamMismatch as missing:
                raise self._broken_stream(str(missing)) from None

    def _decode_leniently(self, data: bytes) -> Frame:
        try:
            return decode_leniently(data, self._surrogates)
        except DECODING_FAILS:
            if data.strip() == b"[DONE]":
                return Frame()
            raise self._invalid_frame(data) from None

    def _handle(self, frame: Frame, data: bytes) -> None:
        try:
            self._handle_frame(frame, data)
        except StreamMismatch as missing:
            raise self._broken_stream(str(missing)) from None
        except DECODING_FAILS:
            raise self._invalid_frame(data) from None

    def _handle_frame(self, frame: Frame, data: bytes) -> None:
        match frame.type:
            case "response.completed" | "response.incomplete":
                self._finish(frame)
            case "response.failed" | "response.cancelled":
                raise self._failure(frame)
            case _:
                if frame.is_error:
                    raise error_from_event(self._endpoint, data)
                self._handle_item_frame(frame)

    def _handle_item_frame(self, frame: Frame) -> None:
        """Handle a frame that starts or completes an item or a part."""
        match frame.type:
            case "response.output_item.added":
                item = decode_item(frame.item)
                output = self._outputs.open(item.type, frame.output_index, item.id, item.call_id)
                output.phase = item.phase or ""
                if output.kind == "function_call":
                    self._outputs.start_call(output, item.call_id, item.tool)
                self._outputs.start_hosted_call(output, item)
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

    def _finish(self, frame: Frame) -> None:
        response = decode_response(frame.response) if is_set(frame.response) else WholeResponse()
        if response.status in ("failed", "cancelled"):
            raise self._failure(frame)
        self._outputs.complete_all(response.output or [])
        reason = self._reason(frame, response)
        for call in self._outputs.calls:
            self._outputs.start_call(call, None, None)
            # For any other reason, the last call may be cut off, so it must not run.
            if reason == "tool_calls" or not call.is_started:
                self._outputs.complete_call(call)
        if response.usage is not None:
            self._deltas.add_event(UsageReported(_usage_of(response.usage)))
        self._deltas.add_event(Finished(reason))
        self.finished = True

    def _reason(self, frame: Frame, response: WholeResponse) -> FinishReason:
        """Return the finish reason.

        Some servers report `completed` even if the limit has cut off the response.
        """
        if "incomplete" in (response.status, frame.type.removeprefix("response.")):
            details = response.incomplete_details
            return _REASONS.get(details.reason if details else None, "unknown")
        spent = token_count(response.usage, "output_tokens")
        if spent and self._output_tokens_max and spent >= self._output_tokens_max:
            return "length"
        return "tool_calls" if self._outputs.calls else "stop"

    def _failure(self, frame: Frame) -> ModelError:
        response = decode_response(frame.response) if is_set(frame.response) else WholeResponse()
        if is_set(response.error):
            return error_from_event(self._endpoint, msgspec.json.encode({"error": response.error}))
        return ModelError("server", f"{self._endpoint} gave up in the middle of its response.")


def _part_of_thinking(frame: Frame) -> tuple[str, int]:
    if frame.type.startswith("response.reasoning_summary"):
        return "summary", frame.summary_index or 0
    return "content", frame.content_index or 0


def _usage_of(usage: object) -> Usage:
    return Usage(
        token_count(usage, "input_tokens") or 0,
        token_count(usage, "input_tokens_details", "cached_tokens") or 0,
        token_count(usage, "output_tokens") or 0,
        token_count(usage, "output_tokens_details", "reasoning_tokens") or 0,
    )
