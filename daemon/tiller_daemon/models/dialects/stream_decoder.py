"""Turns the bytes of a response into events, as far as all dialects do it in the same way.

Only `stream_events` does I/O.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import trio

from tiller_daemon.models.base import (
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from tiller_daemon.models.dialects.surrogates import SurrogateMender
from tiller_daemon.models.http.failure import Endpoint
from tiller_daemon.models.http.sse import EventSplitter, EventTooLong

TRAILING_FRAMES_S = 5.0
"""How long to wait for usage and the end of the stream once a response is whole. Servers send both
at once, if at all; a server that sends neither may keep the connection open."""

LARGE_BYTES = 256 * 1024
"""The size from which an event is decoded in a thread. Smaller events take about a millisecond."""

TEXT = -1
THINKING = -2
"""Kinds of pieces. Any other kind is the number of a call, to whose arguments the piece belongs."""


class StreamDecoder(ABC):
    """Decodes one response. Call `feed` with each chunk, and `end` when the connection ends.

    Text that arrives in one chunk becomes one event.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._splitter = EventSplitter()
        self._surrogates = SurrogateMender()
        self._deltas = DeltaBuffer()
        self._skipped = b""
        self.finished = False
        """Whether `Finished` was returned. Later data from the server is ignored."""

    @property
    def whole(self) -> bool:
        """Whether the response is complete, although usage may still follow."""
        return self.finished

    @property
    def pending_bytes(self) -> int:
        """The size of the event that has arrived only in part."""
        return self._splitter.pending_bytes

    @property
    def has_data(self) -> bool:
        """Whether an event has arrived in part that is more than a comment."""
        return self._splitter.has_data

    def feed(self, chunk: bytes) -> list[ModelEvent]:
        """Decode the next bytes. Raises `ModelError` for an invalid frame or an error frame."""
        try:
            frames = self._splitter.feed(chunk)
        except EventTooLong as error:
            raise self._broken_stream(f"sent {error}") from None
        self._decode(frames)
        return self._deltas.drain()

    def end(self) -> list[ModelEvent]:
        """Decode the rest when the connection ends. Raises `ModelError` for a partial response."""
        self._decode(self._splitter.end())
        if not self.finished:
            end = "ended the stream before the response was complete"
            shown = self._endpoint.quote(self._skipped.decode(errors="replace"))
            raise self._broken_stream(f"{end}. It had sent {shown}" if shown else end)
        return self._deltas.drain()

    @abstractmethod
    def _handle_frames(self, frames: list[bytes]) -> None:
        """Add the events of complete frames to `_deltas`, until the response has finished."""

    def _decode(self, frames: list[bytes]) -> None:
        try:
            self._handle_frames(frames)
        except RecursionError:
            raise self._broken_stream("sent a frame that is nested too deeply") from None

    def _skips(self, data: bytes) -> bool:
        """Whether to skip a frame that can't be decoded, since it is no JSON object: a ping."""
        if data.lstrip().startswith((b"{", b"[")):
            return False
        self._skipped = data
        return True

    def _invalid_frame(self, data: bytes) -> ModelError:
        shown = self._endpoint.quote(data.decode(errors="replace"))
        return self._broken_stream(f"sent an invalid frame: {shown}")

    def _broken_stream(self, what: str) -> ModelError:
        return ModelError("broken_stream", f"{self._endpoint} {what}.")


class DeltaBuffer:
    """Collects events until they are drained; joins consecutive pieces of the same text into one.

    A chunk of a fast stream contains many pieces, and the turn spends more time on an event than
    the decoder spends on a piece.
    """

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._run: list[str] = []
        self._run_kind = TEXT

    def drain(self) -> list[ModelEvent]:
        """Return and remove the events collected so far."""
        self._end_run()
        events, self._events = self._events, []
        return events

    def add_event(self, event: ModelEvent) -> None:
        """Append an event unchanged."""
        self._end_run()
        self._events.append(event)

    def add_text(self, kind: int, piece: str) -> None:
        """Append a piece of text, which must not be empty."""
        if self._run_kind != kind:
            self._end_run()
            self._run_kind = kind
        self._run.append(piece)

    def _end_run(self) -> None:
        if not self._run:
            return
        text, self._run = "".join(self._run), []
        if self._run_kind == TEXT:
            self._events.append(TextDelta(text))
        elif self._run_kind == THINKING:
            self._events.append(ReasoningDelta(text))
        else:
            self._events.append(ToolCallDelta(self._run_kind, text))


class Chunks(Protocol):
    """The body of a response as it arrives."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the chunks."""
        ...

    def note_progress(self) -> None:
        """Note that a piece of the answer has arrived, so that the time limit begins again."""
        ...


async def stream_events(
    response: AbstractAsyncContextManager[Chunks], decoder: StreamDecoder
) -> AsyncGenerator[ModelEvent]:
    """Yield the events that `decoder` finds in the chunks of a response; see `ModelClient.stream`.

    Raises `ModelError` if the response is partial.
    """
    try:
        async with response as chunks:
            async for chunk in chunks:
                events = await _decoded(decoder, chunk)
                # Comments and pings are no sign that an answer will come.
                if events or decoder.has_data:
                    chunks.note_progress()
                for event in events:
                    yield event
                if decoder.whole:
                    break
            if decoder.whole and not decoder.finished:
                for event in await _trailing_events(chunks, decoder):
                    yield event
    except ModelError:
        # If the response is complete, a connection that breaks now does no harm.
        if not decoder.whole:
            raise
    for event in decoder.end():
        yield event


async def _decoded(decoder: StreamDecoder, chunk: bytes) -> list[ModelEvent]:
    """Feed the next bytes. While a large event is decoded, the daemon goes on with other work."""
    if decoder.pending_bytes + len(chunk) < LARGE_BYTES:
        return decoder.feed(chunk)
    return await trio.to_thread.run_sync(decoder.feed, chunk, abandon_on_cancel=True)


async def _trailing_events(chunks: Chunks, decoder: StreamDecoder) -> list[ModelEvent]:
    """Return the events after the response is whole, within `TRAILING_FRAMES_S`."""
    events: list[ModelEvent] = []
    with trio.move_on_after(TRAILING_FRAMES_S):
        async for chunk in chunks:
            events += await _decoded(decoder, chunk)
            if decoder.finished:
                break
    return events
