"""PNG files as chunks: whether one is whole, and what of it is needed to be shown.

Pure. Pictures are decoded in `images`; here only what stands around them is looked at.
"""

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"

_END: Final = b"IEND"
_PIXELS: Final = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", _END)
"""What makes the picture. All else are profiles, texts, times and further frames."""

_AROUND_BYTES: Final = 12
"""Of a chunk: its length, its kind, and behind its data the checksum of both."""


class _Chunk(NamedTuple):
    kind: bytes
    whole: bytes
    is_right: bool


def is_whole(data: bytes) -> bool:
    """Whether a PNG has all its chunks, each with the right checksum, and nothing behind them."""
    chunks = list(_chunks(data))
    size_bytes = len(SIGNATURE) + sum(len(chunk.whole) for chunk in chunks)
    ended = bool(chunks) and chunks[-1].kind == _END
    return ended and size_bytes == len(data) and all(chunk.is_right for chunk in chunks)


def only_pixels(data: bytes) -> bytes:
    """Return a PNG without all that its picture can be shown without.

    What is broken in the picture stays so; transparency that is broken is dropped as viewers do.
    """
    kept = (
        chunk.whole
        for chunk in _chunks(data)
        if chunk.kind in _PIXELS and (chunk.is_right or chunk.kind != b"tRNS")
    )
    return SIGNATURE + b"".join(kept)


def _chunks(data: bytes) -> Iterator[_Chunk]:
    place, kind = len(SIGNATURE), b""
    while kind != _END and place + _AROUND_BYTES <= len(data):
        end = place + _AROUND_BYTES + int.from_bytes(data[place : place + 4], "big")
        kind = data[place + 4 : place + 8]
        checksum = zlib.crc32(data[place + 4 : end - 4]).to_bytes(4, "big")
        yield _Chunk(kind, data[place:end], checksum == data[end - 4 : end])
        place = end
