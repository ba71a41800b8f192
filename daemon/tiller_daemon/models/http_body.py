"""The body of an HTTP/1.1 answer, taken out of its framing as bytes arrive. Pure.

Its own code because it runs for every piece of every stream: the reader of `h11` takes some 50 us
of CPU a piece. The head of an answer, which is where the traps are, is read by `h11`; this comes
after it, and a test holds the two against each other.
Format: https://www.rfc-editor.org/rfc/rfc9112#section-6
"""

import re
import zlib
from collections.abc import Callable, Mapping

LINE_BYTES_MAX = 16 * 1024
"""Longest line between chunks and behind the last one."""

PLAIN_ENCODINGS = frozenset({"", "identity"})
ZLIB_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
ZLIB_ANY_HEADER = 32 + zlib.MAX_WBITS

_chunk_head = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?").fullmatch


class BrokenBody(ValueError):
    """A body that is not framed as its head says; the message is half a sentence."""


class BodyReader:
    """Reads one body. `ended` says that it is whole, `reusable` that nothing follows it.

    `headers` have lower-case names, and were found to be valid.
    """

    def __init__(self, status: int, headers: Mapping[str, str], *, keeps_alive: bool) -> None:
        self.ended = False
        self._keeps_alive = keeps_alive
        self._rest = b""
        self._left: int | None = None
        self._is_chunked = "transfer-encoding" in headers
        self._in_trailer = False
        self._inflate = _inflater(headers.get("content-encoding", ""))
        if status in (204, 304):
            self._left, self._is_chunked, self.ended = 0, False, True
        elif not self._is_chunked and (length := headers.get("content-length")):
            self._left = int(length.partition(",")[0])
            self.ended = self._left == 0

    @property
    def reusable(self) -> bool:
        """Whether the connection can take another request now."""
        return self.ended and self._keeps_alive and not self._rest

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the connection, return what they hold of the body.

        Raises `BrokenBody`.
        """
        if self.ended:
            self._rest += data
            return b""
        if self._is_chunked:
            plain = self._unchunk(data)
        elif self._left is None:
            plain = data
        else:
            plain, self._rest = data[: self._left], data[self._left :]
            self._left -= len(plain)
            self.ended = self._left == 0
        return self._inflated(plain) if self._inflate else plain

    def end(self) -> None:
        """The connection has ended; raises `BrokenBody` if the body was to go on."""
        self._keeps_alive = False
        if not self.ended and (self._is_chunked or self._left is not None):
            raise BrokenBody("ended in the middle of its answer")
        self.ended = True

    def _unchunk(self, data: bytes) -> bytes:
        """What the chunks in `data` hold. `_left` counts from inside a chunk to past its CR LF."""
        if self._rest:
            data = self._rest + data
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while not self.ended:
            if self._left:
                taken = min(self._left - 2, size - at)
                if taken > 0:
                    pieces.append(data[at : at + taken])
                    self._left -= taken
                    at += taken
                if self._left > 2 or size - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise BrokenBody("sent a chunk that is longer than it said")
                self._left = 0
                at += 2
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                break
            self._line(data[at:line_end])
            at = line_end + 2
        self._rest = data[at:]
        if not self.ended and not self._left and len(self._rest) > LINE_BYTES_MAX:
            raise BrokenBody("sent a chunk without a length")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _line(self, line: bytes) -> None:
        """A line between chunks: the length of the next one, or of the trailer, which is void."""
        if self._in_trailer:
            self.ended = not line
            return
        match = _chunk_head(line)
        if match is None or len(line) > LINE_BYTES_MAX:
            raise BrokenBody("sent a chunk without a length")
        length = int(match[1], 16)
        self._in_trailer = length == 0
        self._left = length + 2 if length else 0

    def _inflated(self, data: bytes) -> bytes:
        assert self._inflate
        try:
            return self._inflate(data)
        except zlib.error:
            raise BrokenBody("sent a compressed answer that can't be read") from None


def _inflater(encoding: str) -> Callable[[bytes], bytes] | None:
    name = encoding.strip().lower()
    if name in PLAIN_ENCODINGS:
        return None
    if name not in ZLIB_ENCODINGS:
        raise BrokenBody(f"compresses its answer ({name[:20]}) though it was asked not to")
    return zlib.decompressobj(ZLIB_ANY_HEADER).decompress
