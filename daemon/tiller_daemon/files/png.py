"""PNG files as chunks: whether a file is complete, and which chunks are needed to show it.

Pure. `images` decodes the pixels; here only the chunks around them are examined.
"""

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"

_END: Final = b"IEND"
_PIXELS: Final = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", _END)
"""The chunks that make up the picture. The others are profiles, texts, times and further frames."""

_AROUND_BYTES: Final = 12
"""The overhead of a chunk: its length, its type, and the checksum after its data."""


class _Chunk(NamedTuple):
    kind: bytes
    whole: bytes
    is_right: bool


def is_whole(data: bytes) -> bool:
    """Whether a PNG is complete: all chunks, correct checksums, and nothing after the last one."""
    chunks = list(_chunks(data))
    size_bytes = len(SIGNATURE) + sum(len(chunk.whole) for chunk in chunks)
    ended = bool(chunks) and chunks[-1].kind == _END
    return ended and size_bytes == len(data) and all(chunk.is_right for chunk in chunks)


def only_pixels(data: bytes) -> bytes:
    """Return a PNG with only the chunks that are needed to show it.

    Broken pixel data stays broken. A broken transparency chunk is dropped, as viewers drop it too.
    """
    needed = (
        chunk.whole
        for chunk in _chunks(data)
        if chunk.kind in _PIXELS and (chunk.is_right or chunk.kind != b"tRNS")
    )
    return SIGNATURE + b"".join(needed)


def _chunks(data: bytes) -> Iterator[_Chunk]:
    place, kind = len(SIGNATURE), b""
    while kind != _END and place + _AROUND_BYTES <= len(data):
        end = place + _AROUND_BYTES + int.from_bytes(data[place : place + 4], "big")
        kind = data[place + 4 : place + 8]
        checksum = zlib.crc32(data[place + 4 : end - 4]).to_bytes(4, "big")
        yield _Chunk(kind, data[place:end], checksum == data[end - 4 : end])
        place = end
