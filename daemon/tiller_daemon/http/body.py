"""The bodies of responses: where they end, and whether all of them arrived. Pure."""

from typing import Final

from httptools import HttpParserError, HttpResponseParser

from tiller_daemon.http.failures import Broken
from tiller_daemon.http.head import ResponseHead

_CHUNKED_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
"""Makes the parser expect a chunked body. The real head is parsed by `head`."""

_CUT_OFF: Final = "peer closed connection without sending complete message body"


class Body:
    """A body that is received. This class is for one that ends with the connection."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        """What has arrived and was not taken yet."""
        self.is_complete = False
        """Whether the end has arrived."""
        self.has_excess = False
        """Whether something has arrived behind the end: the connection can't be used again."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes, or none at the end of the connection. Raises `Broken`.

        Must not be called once the body is complete.
        """
        if data:
            self.pieces.append(data)
        else:
            self.is_complete = True


class _SizedBody(Body):
    """A body whose length is in the head."""

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
    """What the parser calls. It does not refer to the parser, so that there is no cycle."""

    def __init__(self, pieces: list[bytes]) -> None:
        # Called for each chunk: a method of the list costs no frame of the interpreter.
        self.on_body = pieces.append
        self.is_complete = False

    def on_message_begin(self) -> None:
        """Receive the beginning of a response; stop the parser at one that follows ours."""
        if self.is_complete:
            raise Broken("another response")

    def on_message_complete(self) -> None:
        """Receive the end of the body."""
        self.is_complete = True


def body_of(head: ResponseHead) -> Body:
    """Return the body that follows a head. Raises `Broken` if that is not clear."""
    length, is_chunked = head.length, head.is_chunked
    if head.is_bodyless:
        return _SizedBody(0)
    # With both, the chunks count.
    if is_chunked:
        return _ChunkedBody()
    return Body() if length is None else _SizedBody(length)
