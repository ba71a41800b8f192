"""The client for the Messages API.

`request` builds the request, `stream` decodes the response, and `models.http` transports both.
"""

from collections.abc import AsyncGenerator

from tiller_daemon.models.base import ModelEvent, ModelRequest
from tiller_daemon.models.dialects.anthropic_messages.request import build_body
from tiller_daemon.models.dialects.anthropic_messages.stream import MessagesDecoder
from tiller_daemon.models.dialects.stream_decoder import stream_events
from tiller_daemon.models.http.client import HttpClient

PATH = "/messages"
VERSION_PATH = "/v1"

HEADERS = {"anthropic-version": "2023-06-01"}
"""The version that every compatible server supports. The next version, 2026-10-21, adds nothing we
need, and it refuses options such as `temperature` that older models accept."""


class AnthropicMessages:
    """A `ModelClient` for one provider.

    The base URL of `http` may end with `/v1` or not. The caller must close `http` after the last
    stream has ended.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        has_version = http.endpoint.base_url.rstrip("/").endswith(VERSION_PATH)
        self._path = PATH if has_version else VERSION_PATH + PATH

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream one response; see `ModelClient.stream`."""
        built = build_body(request, self._http.endpoint.base_url)
        decoder = MessagesDecoder(self._http.endpoint, request.model, request.ordinal, built.prefix)
        response = self._http.stream(self._path, built.body, model=request.model, headers=HEADERS)
        return stream_events(response, decoder)
