"""The client for the Chat Completions API.

`request` builds the request, `stream` decodes the response, and `models.http` transports both.
"""

from collections.abc import AsyncGenerator

from tiller_daemon.models.base import ModelEvent, ModelRequest
from tiller_daemon.models.dialects.openai_chat.request import build_body
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

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`."""
        body = build_body(request, self._http.endpoint.base_url, for_openai=self._is_openai)
        decoder = ChatDecoder(self._http.endpoint, request.model, request.ordinal)
        return stream_events(self._http.stream(PATH, body, model=request.model), decoder)
