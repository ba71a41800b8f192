"""A large event is decoded in a thread, so that the daemon can go on with other work."""

import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import trio

from support.each import each
from support.providers import fixed_key
from tiller_daemon.models.base import Finished, ModelEvent, TextDelta
from tiller_daemon.models.dialects.openai_chat.stream import ChatDecoder
from tiller_daemon.models.dialects.stream_decoder import LARGE_BYTES, stream_events
from tiller_daemon.models.http.failure import Endpoint

CHUNK = 64 * 1024
ENDPOINT = Endpoint("local", "http://127.0.0.1:1/v1", fixed_key("sk-secret"))


class WatchedDecoder(ChatDecoder):
    """Records in which threads frames were decoded."""

    def __init__(self) -> None:
        super().__init__(ENDPOINT, "m", 0)
        self.threads: set[int] = set()

    def _handle_frame(self, data: bytes) -> None:
        self.threads.add(threading.get_ident())
        super()._handle_frame(data)


class Body:
    """A body that arrives in chunks."""

    def __init__(self, body: bytes) -> None:
        self._chunks = iter(body[n : n + CHUNK] for n in range(0, len(body), CHUNK))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration

    def note_progress(self) -> None:
        """There is no time limit."""


@asynccontextmanager
async def response(body: bytes) -> AsyncGenerator[Body]:
    await trio.lowlevel.checkpoint()
    yield Body(body)


@each("text", ["x", "\U0001f600", "\n", "\ud83d"])
@each("size", [1, LARGE_BYTES // 20, LARGE_BYTES * 2])
async def test_only_large_events_are_decoded_in_a_thread(text: str, size: int) -> None:
    choices = [{"index": 0, "delta": {"content": text * size}, "finish_reason": "stop"}]
    body = f"data: {json.dumps({'choices': choices})}\n\ndata: [DONE]\n\n".encode()
    decoder, events = WatchedDecoder(), list[ModelEvent]()
    async for event in stream_events(response(body), decoder):
        events.append(event)
    assert (threading.get_ident() not in decoder.threads) is (size > LARGE_BYTES)
    assert isinstance(events[-1], Finished)
    texts = "".join(event.text for event in events if isinstance(event, TextDelta))
    # The last half of a pair waits for its other half.
    assert len(texts) in (size, size - 1)
    assert set(texts) <= {text, "\ufffd"}
