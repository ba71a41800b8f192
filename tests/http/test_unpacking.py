"""Compressed bodies: every format, cut anywhere, damaged anyhow, and never more than a piece."""

import gzip
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.responses import cut
from tiller_daemon.http.failures import Broken
from tiller_daemon.http.unpacking import PIECE_BYTES_MAX, Unpacker

TEXT = b"data: one\n\ndata: two\n\n"
RAW = zlib.compress(TEXT)[2:-4]
PACKED = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip": ("x-gzip", gzip.compress(TEXT)),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate without a header": ("deflate", RAW),
    "deflate that is gzip": ("deflate", gzip.compress(TEXT)),
    "gzip that is deflate": ("gzip", zlib.compress(TEXT)),
}


def unpack(encoding: str, pieces: list[bytes]) -> bytes:
    unpacker = Unpacker(encoding)
    found = b""
    for piece in pieces:
        found += unpacker.unpack(piece)
        while unpacker.has_more:
            found += unpacker.unpack(b"")
    return found


@each("name", PACKED)
def test_a_packed_body_is_the_same_however_it_is_cut(name: str) -> None:
    encoding, data = PACKED[name]
    for place in range(len(data)):
        assert unpack(encoding, cut(data, [place])) == TEXT
    assert unpack(encoding, cut(data, range(len(data)))) == TEXT


def test_what_follows_the_end_is_dropped() -> None:
    unpacker = Unpacker("gzip")
    assert unpacker.unpack(gzip.compress(TEXT) + b"more") == TEXT
    assert unpacker.is_complete
    assert not unpacker.has_more
    assert unpacker.unpack(gzip.compress(TEXT)) == b""


def test_what_is_flushed_is_there_at_once() -> None:
    """A stream of events must not wait for its end."""
    packer = zlib.compressobj(wbits=31)
    unpacker = Unpacker("gzip")
    for event in (b"data: one\n\n", b"data: two\n\n"):
        assert unpacker.unpack(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)) == event


def test_a_bomb_goes_off_in_pieces() -> None:
    """G12."""
    unpacker = Unpacker("gzip")
    sizes = [len(unpacker.unpack(gzip.compress(bytes(50 * PIECE_BYTES_MAX))))]
    while unpacker.has_more:
        sizes.append(len(unpacker.unpack(b"")))
    assert max(sizes) <= PIECE_BYTES_MAX
    assert sum(sizes) == 50 * PIECE_BYTES_MAX


@each("encoding", ["br", "zstd", "gzip, gzip", "gzip;q=1"])
def test_what_nobody_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(Broken, match="was not requested"):
        Unpacker(encoding)


@given(
    encoding=st.sampled_from(["gzip", "deflate"]),
    data=st.binary(max_size=60) | st.sampled_from([gzip.compress(TEXT), RAW]),
    place=st.integers(0, 60),
    new=st.binary(max_size=3),
)
def test_damage_is_noticed_or_harmless(encoding: str, data: bytes, place: int, new: bytes) -> None:
    with suppress(Broken):
        unpack(encoding, [data[:place] + new, data[place + 1 :]])
