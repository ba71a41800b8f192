"""Decodes the stream of a response, as far as all dialects do it in the same way. Pure."""

from abc import ABC, abstractmethod

from tiller_daemon.models.base import ModelError, ModelEvent
from tiller_daemon.models.dialects.delta_buffer import DeltaBuffer
from tiller_daemon.models.dialects.surrogates import SurrogateMender
from tiller_daemon.models.http.failure import Endpoint
from tiller_daemon.models.http.sse import EventSplitter, EventTooLong


class StreamDecoder(ABC):
    """Decodes one response. Call `feed` with each chunk, and `end` when the connection ends.

    Text that arrives in one chunk becomes one event.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._splitter = EventSplitter()
        self._surrogates = SurrogateMender()
        self._deltas = DeltaBuffer()
        self.finished = False
        """Whether `Finished` was returned. Later data from the server is ignored."""

    @property
    def whole(self) -> bool:
        """Whether the response is complete, although usage may still follow."""
        return self.finished

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
            raise self._broken_stream("ended the stream before the response was complete")
        return self._deltas.drain()

    @abstractmethod
    def _handle_frames(self, frames: list[bytes]) -> None:
        """Add the events of complete frames to `_deltas`, until the response has finished."""

    def _decode(self, frames: list[bytes]) -> None:
        try:
            self._handle_frames(frames)
        except RecursionError:
            raise self._broken_stream("sent a frame that is nested too deeply") from None

    def _invalid_frame(self, data: bytes) -> ModelError:
        shown = self._endpoint.quote(data.decode(errors="replace"))
        return self._broken_stream(f"sent an invalid frame: {shown}")

    def _broken_stream(self, what: str) -> ModelError:
        return ModelError("broken_stream", f"{self._endpoint} {what}.")
