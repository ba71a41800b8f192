"""Framing of messages, however the bytes are cut, and of garbage."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.lsp.framing import (
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    BadFrame,
    FrameDecoder,
    encode_frame,
)


@given(st.lists(st.binary(max_size=50), max_size=5), st.lists(st.integers(1, 20), max_size=30))
def test_messages_arrive_whole_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream, frames, came = b"".join(map(encode_frame, bodies)), FrameDecoder(), []
    for size in [*cuts, len(stream) or 1]:
        came += frames.feed(stream[:size])
        stream = stream[size:]
    assert came == bodies


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waits_for_more(garbage: bytes) -> None:
    with suppress(BadFrame):
        assert all(body in garbage for body in FrameDecoder().feed(garbage))


def test_other_headers_and_letter_case_do_not_matter() -> None:
    stream = b"Content-Type: x; charset=utf-8\r\ncontent-length:  2\r\n\r\n{}"
    assert FrameDecoder().feed(stream) == [b"{}"]


@each(
    ("stream", "why"),
    [
        (b"x" * HEADER_BYTES_MAX, "end of a header"),
        (b"Content-Type: x\r\n\r\n", "without a valid Content-Length"),
        (b"Content-Length: -1\r\n\r\n", "without a valid Content-Length"),
        (b"Content-Length: 0x10\r\n\r\n", "without a valid Content-Length"),
        (b"Content-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), "larger than"),
        (b"Content-Length: %b\r\n\r\n" % (b"9" * 4000), "larger than"),
    ],
)
def test_a_bad_or_too_long_frame_is_an_error(stream: bytes, why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        FrameDecoder().feed(stream)
