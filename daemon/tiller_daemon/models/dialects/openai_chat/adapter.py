"""The client for the Chat Completions API.

`request` builds the request, `stream` decodes the response, and `models.http` transports both.
"""

from collections.abc import AsyncGenerator, AsyncIterator

import trio

from tiller_daemon.models.base import ModelError, ModelEvent, ModelRequest
from tiller_daemon.models.dialects.openai_chat.request import build_body
from tiller_daemon.models.dialects.openai_chat.stream import ChatDecoder
from tiller_daemon.models.http.client import HttpClient

PATH = "/chat/completions"
OPENAI_HOST = "api.openai.com"

TRAILING_FRAMES_S = 5.0
"""How long to wait for usage and `[DONE]` after a finish reason. Servers send both at once, if at
all; a server that sends neither may keep the connection open."""


class OpenAIChat:
    """A `ModelClient` for one provider.

    The base URL of `http` usually ends with `/v1`. The caller must close `http` after the last
    stream has ended.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._is_openai = http.host == OPENAI_HOST

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`."""
        body = build_body(request, self._http.endpoint.base_url, for_openai=self._is_openai)
        decoder = ChatDecoder(self._http.endpoint, request.model, request.ordinal)
        try:
            async with self._http.stream(PATH, body, model=request.model) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
                    if decoder.whole:
                        break
                if not decoder.finished:
                    for event in await _trailing_events(chunks, decoder):
                        yield event
        except ModelError:
            # If the response is complete, a connection that breaks now does no harm.
            if not decoder.whole:
                raise
        for event in decoder.end():
            yield event


async def _trailing_events(chunks: AsyncIterator[bytes], decoder: ChatDecoder) -> list[ModelEvent]:
    """Return the events after the finish reason, within `TRAILING_FRAMES_S`."""
    events: list[ModelEvent] = []
    with trio.move_on_after(TRAILING_FRAMES_S):
        async for chunk in chunks:
            events += decoder.feed(chunk)
            if decoder.finished:
                break
    return events
