"""JSON-RPC 2.0 in lines over two descriptors; knows nothing about ACP.

For one thread. `read` never blocks; writing blocks until the client has taken the line.
"""

import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from tiller_client.json_lines import LINE_BYTES_MAX, LineSplitter
from tiller_client.streams import put_bytes

READ_BYTES = 256 * 1024

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002
"""Codes of JSON-RPC and ACP."""

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<lone>u[dD][89a-fA-F]..)|.)", re.DOTALL
)
"""An escape in JSON; `lone` is half of a surrogate pair, which is no character."""

RequestId = int | str | None


class RpcError(Struct, frozen=True, omit_defaults=True):
    """Why a request failed."""

    code: int
    message: str
    data: Any = None


class RpcFailure(Exception):
    """A request that can't be answered with a result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = RpcError(code, message)


class Message(Struct, frozen=True):
    """A request, a notification (no `id`) or a response (no `method`)."""

    id: RequestId | UnsetType = UNSET
    """An id that is the same in a request and its response; absent in a notification."""
    method: str | None = None
    """The method called; `None` in a response."""
    params: Raw = Raw(b"null")
    """The parameters of a request or notification."""
    result: Raw = Raw()
    """The result of a successful request; otherwise empty."""
    error: RpcError | None = None
    """Why a request failed; `None` if it did not."""


class _Sent(Struct, frozen=True, omit_defaults=True, tag_field="jsonrpc", tag="2.0"):
    """Base of our messages; the tag is the version of JSON-RPC."""


class _Response(_Sent, frozen=True):
    id: RequestId
    result: Any


class _ErrorResponse(_Sent, frozen=True):
    id: RequestId
    error: RpcError


class _Request(_Sent, frozen=True):
    method: str
    params: Any
    id: int | UnsetType = UNSET


Answered = Callable[[Raw | None, RpcError | None], None]
"""Called with the result of a request, or with its error."""

_decode = msgspec.json.Decoder(Message).decode
_encode = msgspec.json.Encoder().encode


def _character(escape: re.Match[bytes]) -> bytes:
    r"""Return an escape, with U+FFFD for half of a pair.

    A client in JavaScript sends `"\ud800"` for a text that it has cut within a pair.
    """
    return rb"\ufffd" if escape["lone"] else escape[0]


class Peer:
    """The client at the other end of two descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self._writing = writing
        self._lines = LineSplitter()
        self._number = 0
        self._waiting: dict[int, Answered] = {}
        self.ended = False
        """Whether the client has closed its end."""

    def read(self) -> list[Message]:
        """Read once, and return the requests and notifications; for a readable `reading`.

        Responses go to the functions given to `request`. An invalid line is answered with an error.
        """
        try:
            piece = os.read(self.reading, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        self.ended = not piece
        return [message for line in self._lines.take(piece) for message in self._take_line(line)]

    def respond(self, request_id: RequestId, result: object) -> None:
        """Answer a request."""
        self._write(_Response(request_id, result))

    def fail(self, request_id: RequestId, error: RpcError) -> None:
        """Answer a request with an error."""
        self._write(_ErrorResponse(request_id, error))

    def notify(self, method: str, params: object) -> None:
        """Send a notification."""
        self._write(_Request(method, params))

    def request(self, method: str, params: object, answered: Answered) -> int:
        """Send a request and return its number; `read` calls `answered` with the answer."""
        self._number += 1
        self._waiting[self._number] = answered
        self._write(_Request(method, params, self._number))
        return self._number

    def forget(self, number: int) -> None:
        """Ignore the answer to this request if it still comes."""
        self._waiting.pop(number, None)

    def _take_line(self, line: bytes | None) -> list[Message]:
        if line is None:
            message = f"a message is longer than {LINE_BYTES_MAX:,} bytes"
            self.fail(None, RpcError(INVALID_REQUEST, message))
            return []
        if not line.strip():
            return []
        try:
            message = _decode(_ESCAPE.sub(_character, line))
        except (msgspec.ValidationError, RecursionError) as error:
            self.fail(None, RpcError(INVALID_REQUEST, f"not a JSON-RPC message: {error}"))
            return []
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.fail(None, RpcError(PARSE_ERROR, f"not JSON: {error}"))
            return []
        if message.method is not None:
            return [message]
        self._answer(message)
        return []

    def _answer(self, message: Message) -> None:
        number = message.id
        answered = self._waiting.pop(number, None) if isinstance(number, int) else None
        if answered:
            answered(message.result if message.error is None else None, message.error)

    def _write(self, message: object) -> None:
        put_bytes(self._writing, _encode(message) + b"\n")
