"""Messages out of a stream of bytes: a header with their length, an empty line, the body. Pure."""

from typing import Final

HEADER_BYTES_MAX: Final = 4096
"""A header is some 40 bytes; more without its end is no header."""

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest message; the diagnostics of a file of a megabyte are a tenth of it."""

_END: Final = b"\r\n\r\n"


class BadFrame(Exception):
    """What came is no message, or too long a one; the message is a clause that says so."""


class FrameDecoder:
    """What has come of a stream and was not taken yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._body_length: int | None = None

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next piece; returns the bodies that are whole now. Raises `BadFrame`."""
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
        """Take a header that is whole and return the length that it says."""
        end = self._buffer.find(_END, 0, HEADER_BYTES_MAX)
        if end < 0:
            if len(self._buffer) >= HEADER_BYTES_MAX:
                raise BadFrame(f"it sent {HEADER_BYTES_MAX} bytes that are no header of a message")
            return None
        length = _length(bytes(self._buffer[:end]))
        del self._buffer[: end + len(_END)]
        return length


def encode_frame(body: bytes) -> bytes:
    """Return a message as it goes over the line."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            # Python refuses to read numbers of thousands of digits; ten are 10 GB.
            digits = value.strip()
            length = int(digits) if len(digits) <= len(str(BODY_BYTES_MAX)) else BODY_BYTES_MAX + 1
            if length > BODY_BYTES_MAX:
                raise BadFrame(f"it sent a message of more than {BODY_BYTES_MAX} bytes")
            return length
    raise BadFrame("it sent a header without the length of its message")
