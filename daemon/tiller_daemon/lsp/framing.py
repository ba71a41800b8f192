"""Message framing: a header with the length, an empty line, the body. Pure."""

from typing import Final

HEADER_BYTES_MAX: Final = 4096
"""Longest header; a normal one has some 40 bytes."""

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest message: ten times the size of the diagnostics of a one-megabyte file."""

_END: Final = b"\r\n\r\n"


class BadFrame(Exception):
    """The stream has a bad header or too long a message.

    The exception's message is a sentence about the server: "It sent …".
    """


class FrameDecoder:
    """Splits a stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._body_length: int | None = None

    def feed(self, piece: bytes) -> list[bytes]:
        """Add received bytes and return the bodies that are now complete. Raises `BadFrame`."""
        self._buffer += piece
        bodies: list[bytes] = []
        while True:
            if self._body_length is None:
                self._body_length = self._read_header()
            if self._body_length is None or len(self._buffer) < self._body_length:
                return bodies
            bodies.append(bytes(self._buffer[: self._body_length]))
            del self._buffer[: self._body_length]
            self._body_length = None

    def _read_header(self) -> int | None:
        """Consume a complete header and return the length of the body."""
        end = self._buffer.find(_END, 0, HEADER_BYTES_MAX)
        if end < 0:
            if len(self._buffer) >= HEADER_BYTES_MAX:
                raise BadFrame(f"It sent {HEADER_BYTES_MAX} bytes without the end of a header.")
            return None
        length = _length(bytes(self._buffer[:end]))
        del self._buffer[: end + len(_END)]
        return length


def encode_frame(body: bytes) -> bytes:
    """Return a body with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            # `int` raises `ValueError` for thousands of digits, so the length is checked first.
            digits = value.strip()
            length = int(digits) if len(digits) <= len(str(BODY_BYTES_MAX)) else BODY_BYTES_MAX + 1
            if length > BODY_BYTES_MAX:
                raise BadFrame(f"It sent a message larger than {BODY_BYTES_MAX} bytes.")
            return length
    raise BadFrame("It sent a header without a valid Content-Length.")
