"""Undoes the compression of bodies, in bounded pieces. Pure.

Requests to models never ask for compression, but some gateways compress responses anyway.
"""

import zlib
from typing import Final

from tiller_daemon.http.failures import Broken

PIECE_BYTES_MAX: Final = 1024 * 1024
"""The most that is unpacked at once: compressed data may grow a thousandfold."""

PLAIN: Final = frozenset({"", "identity"})
PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})

_ZLIB_OR_GZIP: Final = 32 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_GZIP: Final = b"\x1f\x8b"
_HEADER_BYTES: Final = 2
"""How many bytes tell the formats apart."""


class Unpacker:
    """Unpacks one body. Raises `Broken` for an unknown encoding."""

    def __init__(self, encoding: str) -> None:
        if encoding not in PACKED:
            raise Broken(f"the server used the encoding {encoding!r}, which was not requested")
        self.is_complete = False
        """Whether the packed data has ended. Data after the end is dropped."""
        self._may_be_raw = encoding == "deflate"
        self._rest = b""
        self._unpacker = zlib.decompressobj(_ZLIB_OR_GZIP)

    @property
    def has_more(self) -> bool:
        """Whether some received data is still to be unpacked."""
        return bool(self._unpacker.unconsumed_tail) and not self.is_complete

    def unpack(self, data: bytes) -> bytes:
        """Add packed data; return at most `PIECE_BYTES_MAX` unpacked bytes. Raises `Broken`."""
        if self.is_complete:
            return b""
        data = self._rest + data
        if self._may_be_raw:
            if len(data) < _HEADER_BYTES:
                self._rest = data
                return b""
            self._choose(data)
        try:
            unpacked = self._unpacker.decompress(data, PIECE_BYTES_MAX)
        except zlib.error as error:
            raise Broken(str(error)) from None
        self._rest = self._unpacker.unconsumed_tail
        self.is_complete = self._unpacker.eof
        return unpacked

    def _choose(self, start: bytes) -> None:
        """Choose the raw format if the header is missing: some servers send `deflate` that way."""
        self._may_be_raw = False
        is_zlib = start[0] & 0x0F == zlib.DEFLATED and int.from_bytes(start[:2], "big") % 31 == 0
        if not is_zlib and start[:2] != _GZIP:
            self._unpacker = zlib.decompressobj(_RAW)
