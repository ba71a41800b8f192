"""The adapter to Responses: OpenAI's and every compatible server's.

Only the order of things stands here; the request is built in `request`, frames are
decoded in `stream`, HTTP is in `models.http`.
"""

import re
from collections.abc import AsyncGenerator

from tiller_daemon.models.base import ModelError, ModelEvent, ModelRequest
from tiller_daemon.models.dialects.openai_responses.request import build_body
from tiller_daemon.models.dialects.openai_responses.stream import ResponsesDecoder
from tiller_daemon.models.http.client import HttpClient

PATH = "/responses"
OPENAI_HOST = "api.openai.com"

_refuses_opaque = re.compile(
    r"encrypted content|required following item|items are not persisted", re.IGNORECASE
).search
"""What OpenAI's servers say of a request that held what only they can read, or asked for it: the
model has nothing to encrypt, or another organisation's key encrypted it."""

_never_encrypts = re.compile(r"encrypted content is not supported", re.IGNORECASE).search


class OpenAIResponses:
    """A `ModelClient` for one provider.

    The base URL of `http` ends where `/responses` begins, usually with `/v1`. Whoever made it
    closes it, after the last stream has ended.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._is_openai = http.host == OPENAI_HOST
        self._without_opaque: set[str] = set()
        """The models that never encrypt their thinking, as they have said."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`.

        A request that is refused for what only the provider can read is sent again without that:
        it stays in history, and so would the refusal.
        """
        endpoint = self._http.endpoint
        opaque = request.model not in self._without_opaque
        while True:
            body = build_body(request, endpoint.base_url, for_openai=self._is_openai, opaque=opaque)
            decoder = ResponsesDecoder(
                endpoint, request.model, request.ordinal, request.max_output_tokens
            )
            try:
                async with self._http.stream(PATH, body, model=request.model) as chunks:
                    async for chunk in chunks:
                        for event in decoder.feed(chunk):
                            yield event
                        if decoder.finished:
                            break
            except ModelError as error:
                if opaque and error.status == 400 and _refuses_opaque(error.message):
                    if _never_encrypts(error.message):
                        self._without_opaque.add(request.model)
                    opaque = False
                    continue
                if not decoder.finished:
                    raise
            break
        for event in decoder.end():
            yield event
