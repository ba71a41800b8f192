"""The adapter to the Messages API: Anthropic's and every compatible server's.

Only the order of things stands here; the request is built in `request`, frames
are decoded in `stream`, HTTP is in `models.http`.
"""

from collections.abc import AsyncGenerator

from tiller_daemon.models.base import ModelError, ModelEvent, ModelRequest
from tiller_daemon.models.dialects.anthropic_messages.request import build_body
from tiller_daemon.models.dialects.anthropic_messages.stream import MessagesDecoder
from tiller_daemon.models.http.client import HttpClient

PATH = "/messages"
VERSION_PATH = "/v1"

HEADERS = {"anthropic-version": "2023-06-01"}
"""The version that every server of this wire knows. The next one, of 2026-10-21, has nothing more
for us, and refuses options such as `temperature`, which older models take."""


class AnthropicMessages:
    """A `ModelClient` for one provider.

    The base URL of `http` ends where `/messages` begins or where `/v1/messages` does. Whoever made
    it closes it, after the last stream has ended.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        has_version = http.endpoint.base_url.rstrip("/").endswith(VERSION_PATH)
        self._path = PATH if has_version else VERSION_PATH + PATH

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`."""
        built = build_body(request, self._http.endpoint.base_url)
        decoder = MessagesDecoder(self._http.endpoint, request.model, request.ordinal, built.prefix)
        try:
            async with self._http.stream(
                self._path, built.body, model=request.model, headers=HEADERS
            ) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
                    if decoder.finished:
                        break
        except ModelError:
            if not decoder.finished:
                raise
        for event in decoder.end():
            yield event
