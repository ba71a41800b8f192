"""The adapter to Chat Completions: OpenAI's and every compatible server's.

Only the order of things stands here; the request is built in `request`, frames are
decoded in `stream`, HTTP is in `models.http`.
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
"""How long usage and `[DONE]` are awaited behind a finish reason: a server that sends neither may
keep the connection open. Those that do send them do so at once."""


class OpenAIChat:
    """A `ModelClient` for one provider.

    The base URL of `http` ends where `/chat/completions` begins, usually with `/v1`. Whoever made
    it closes it, after the last stream has ended.
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
                    for event in await _rest(chunks, decoder):
                        yield event
        except ModelError:
            if not decoder.whole:
                raise
        for event in decoder.end():
            yield event


async def _rest(chunks: AsyncIterator[bytes], decoder: ChatDecoder) -> list[ModelEvent]:
    """What comes behind the finish reason, within `TRAILING_FRAMES_S`."""
    events: list[ModelEvent] = []
    with trio.move_on_after(TRAILING_FRAMES_S):
        async for chunk in chunks:
            events += decoder.feed(chunk)
            if decoder.finished:
                break
    return events
