"""The bodies of responses: where a body ends, and whether all of it has arrived. Pure."""

from typing import Final

from httptools import HttpParserError, HttpResponseParser

from tiller_daemon.http.failures import Broken
from tiller_daemon.http.head import ResponseHead

_CHUNKED_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
"""Makes the parser expect a chunked body. The real head is parsed by `head`."""

_CUT_OFF: Final = "peer closed connection without sending complete message body"


class Body:
    """The body of a response, as it arrives. This base class reads until the connection ends."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        """Received data that the reader has not taken yet."""
        self.is_complete = False
        """Whether the end of the body has arrived."""
        self.has_excess = False
        """Whether data has arrived after the end, so that the connection can't be used again."""

    def feed(self, data: bytes) -> None:
        """Add received data; empty `data` means that the connection has ended. Raises `Broken`.

        Must not be called once the body is complete.
        """
        if data:
            self.pieces.append(data)
        else:
            self.is_complete = True


class _SizedBody(Body):
    """A body whose length is given in the head."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length
        self._left = length
        self.is_complete = length == 0

    def feed(self, data: bytes) -> None:
        if not data:
            received = self._length - self._left
            raise Broken(f"{_CUT_OFF} (received {received} bytes, expected {self._length})")
        if len(data) > self._left:
            self.has_excess = True
            data = data[: self._left]
        self._left -= len(data)
        self.is_complete = not self._left
        if data:
            self.pieces.append(data)


class _ChunkedBody(Body):
    """A body in chunks; extensions and trailers are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._events = _ParserEvents(self.pieces)
        self._parser = HttpResponseParser(self._events)
        # Some servers pad the size to a fixed width.
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        self._parser.feed_data(_CHUNKED_HEAD)

    def feed(self, data: bytes) -> None:
        if not data:
            raise Broken(f"{_CUT_OFF} (incomplete chunked read)")
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if not self._events.is_complete:
                raise Broken(f"illegal chunk: {error}") from None
            self.has_excess = True
        self.is_complete = self._events.is_complete


class _ParserEvents:
    """The callbacks of the parser. They do not refer to the parser, to avoid a cycle."""

    def __init__(self, pieces: list[bytes]) -> None:
        # Called for each chunk. A built-in method is cheaper than a Python function.
        self.on_body = pieces.append
        self.is_complete = False

    def on_message_begin(self) -> None:
        """Handle the beginning of a response; stop the parser if our response is complete."""
        if self.is_complete:
            raise Broken("another response")

    def on_message_complete(self) -> None:
        """Handle the end of the body."""
        self.is_complete = True


def body_of(head: ResponseHead) -> Body:
    """Return a `Body` of the kind that the head announces. Raises `Broken` for a bad head."""
    length, is_chunked = head.length, head.is_chunked
    if head.is_bodyless:
        return _SizedBody(0)
    # A chunked body may also have a length, which is then ignored.
    if is_chunked:
        return _ChunkedBody()
    return Body() if length is None else _SizedBody(length)
