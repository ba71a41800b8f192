"""The adapter to Chat Completions: OpenAI's and every compatible server's.

Only the order of things stands here; the request is built in `openai_chat_request`, frames are
decoded in `openai_chat_stream`, HTTP is in `http_client`.
"""

from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlsplit

from tiller_daemon.models.base import ModelError, ModelEvent, ModelRequest
from tiller_daemon.models.http_client import HttpClient, drain
from tiller_daemon.models.openai_chat_request import build_body
from tiller_daemon.models.openai_chat_stream import ChatDecoder

OPENAI_HOST = "api.openai.com"


class OpenAIChat:
    """A `ModelClient` for one provider.

    `base_url` ends where `/chat/completions` begins, usually with `/v1`. `name` is the provider's
    in the configuration, `api_key_env` the variable that its key came from; both are for messages.
    Raises `ValueError` for a base URL, a key or a header that can't be sent. Connections are
    opened when needed and closed by `aclose`, after the last stream has ended.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        headers: Mapping[str, str] | None = None,
        *,
        name: str,
        api_key_env: str = "",
    ) -> None:
        self._http = HttpClient(
            name, base_url, api_key=api_key, key_variable=api_key_env, headers=headers
        )
        self._is_openai = urlsplit(base_url).hostname == OPENAI_HOST

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`."""
        body = build_body(request, for_openai=self._is_openai)
        decoder = ChatDecoder(self._http.endpoint, request.model, request.ordinal)
        try:
            async with self._http.stream("/chat/completions", body) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        yield event
                    if decoder.finished:
                        await drain(chunks)
                        break
        except ModelError:
            if not decoder.whole:
                raise
        for event in decoder.end():
            yield event

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()
