"""The client for the Responses API.

`request` builds the request, `stream` decodes the response, and `models.http` transports both.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from tiller_daemon.models.base import ModelError, ModelEvent, ModelRequest
from tiller_daemon.models.dialects.openai_responses.request import build_body
from tiller_daemon.models.dialects.openai_responses.stream import ResponsesDecoder
from tiller_daemon.models.dialects.stream_decoder import stream_events
from tiller_daemon.models.http.client import HttpClient

PATH = "/responses"
OPENAI_HOST = "api.openai.com"

_refuses_opaque = re.compile(
    r"encrypted content|required following item|items are not persisted", re.IGNORECASE
).search
"""Recognizes the errors of OpenAI's servers about encrypted items: the model does not support such
items, or they were encrypted for another organization."""

_never_encrypts = re.compile(r"encrypted content is not supported", re.IGNORECASE).search


class OpenAIResponses:
    """A `ModelClient` for one provider.

    The base URL of `http` usually ends with `/v1`. The caller must close `http` after the last
    stream has ended. `for_plan` is for the key of a user's plan.
    """

    def __init__(self, http: HttpClient, *, for_plan: bool = False) -> None:
        self._http = http
        self._for_plan = for_plan
        self._is_openai = for_plan or http.host == OPENAI_HOST
        self._without_opaque: set[str] = set()
        """The models that turned out not to support encrypted reasoning."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`.

        A request that is refused because of its encrypted items is sent again without these items.
        They stay in the history, so every later request would be refused, too.
        """
        opaque = request.model not in self._without_opaque
        while True:
            try:
                async with aclosing(self._attempt(request, opaque=opaque)) as events:
                    async for event in events:
                        yield event
                return
            except ModelError as error:
                # Such a refusal comes as an HTTP status, so no event has been yielded before it.
                if not (opaque and error.status == 400 and _refuses_opaque(error.message)):
                    raise
                if _never_encrypts(error.message):
                    self._without_opaque.add(request.model)
                opaque = False

    def _attempt(self, request: ModelRequest, *, opaque: bool) -> AsyncGenerator[ModelEvent]:
        endpoint = self._http.endpoint
        body = build_body(
            request,
            endpoint.base_url,
            for_openai=self._is_openai,
            for_plan=self._for_plan,
            opaque=opaque,
        )
        limit = None if self._for_plan else request.max_output_tokens
        decoder = ResponsesDecoder(endpoint, request.model, request.ordinal, limit)
        return stream_events(self._http.stream(PATH, body, model=request.model), decoder)
