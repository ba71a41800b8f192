"""Streams the events of a response from the connection; the same for every dialect."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager

import trio

from tiller_daemon.models.base import ModelError, ModelEvent
from tiller_daemon.models.dialects.stream_decoder import StreamDecoder

TRAILING_FRAMES_S = 5.0
"""How long to wait for usage and the end of the stream once a response is whole. Servers send both
at once, if at all; a server that sends neither may keep the connection open."""


async def stream_events(
    response: AbstractAsyncContextManager[AsyncIterator[bytes]], decoder: StreamDecoder
) -> AsyncGenerator[ModelEvent]:
    """Yield the events that `decoder` finds in the chunks of a response; see `ModelClient.stream`.

    Raises `ModelError` if the response is partial.
    """
    try:
        async with response as chunks:
            async for chunk in chunks:
                for event in decoder.feed(chunk):
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


async def _trailing_events(
    chunks: AsyncIterator[bytes], decoder: StreamDecoder
) -> list[ModelEvent]:
    """Return the events after the response is whole, within `TRAILING_FRAMES_S`."""
    events: list[ModelEvent] = []
    with trio.move_on_after(TRAILING_FRAMES_S):
        async for chunk in chunks:
            events += decoder.feed(chunk)
            if decoder.finished:
                break
    return events
