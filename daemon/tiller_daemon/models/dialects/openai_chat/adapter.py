"""The client for the Chat Completions API.

`request` builds the request, `stream` decodes the response, and `models.http` transports both.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from tiller_daemon.models.base import ModelError, ModelEvent, ModelRequest
from tiller_daemon.models.dialects.openai_chat.request import build_body, refused_as_mistral
from tiller_daemon.models.dialects.openai_chat.stream import ChatDecoder
from tiller_daemon.models.dialects.stream_decoder import stream_events
from tiller_daemon.models.http.client import HttpClient

PATH = "/chat/completions"
OPENAI_HOST = "api.openai.com"


class OpenAIChat:
    """A `ModelClient` for one provider.

    The base URL of `http` usually ends with `/v1`. The caller must close `http` after the last
    stream has ended.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._is_openai = http.host == OPENAI_HOST
        self._of_mistral: set[str] = set()
        """The models that turned out to be Mistral's, although their names do not show it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`.

        A request that only Mistral's models refuse is sent again in their form. The history stays
        as it is, so every later request would be refused, too.
        """
        while True:
            for_mistral = request.model in self._of_mistral
            try:
                async with aclosing(self._attempt(request, for_mistral=for_mistral)) as events:
                    async for event in events:
                        yield event
                return
            except ModelError as error:
                # Such a refusal comes as an HTTP status, so no event has been yielded before it.
                if for_mistral or error.status is None or not refused_as_mistral(error.message):
                    raise
                self._of_mistral.add(request.model)

    def _attempt(self, request: ModelRequest, *, for_mistral: bool) -> AsyncGenerator[ModelEvent]:
        endpoint = self._http.endpoint
        body = build_body(
            request, endpoint.base_url, for_openai=self._is_openai, for_mistral=for_mistral
        )
        decoder = ChatDecoder(endpoint, request.model, request.ordinal)
        return stream_events(self._http.stream(PATH, body, model=request.model), decoder)
