"""Bodies of answers: however they are framed and cut, they are those that h11 reads."""

import gzip
import re
import zlib
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiller_daemon.models.http_body import LINE_BYTES_MAX, BodyReader, BrokenBody

CHUNKED = {"transfer-encoding": "chunked"}


def read(
    data: bytes, cuts: list[int], headers: dict[str, str], *, end: bool
) -> tuple[bytes, bool] | str:
    """The body and whether the connection can be used again, or what is wrong."""
    reader = BodyReader(200, headers, keeps_alive=True)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    body = b""
    try:
        for begin, after in pairwise(places):
            body += reader.feed(data[begin:after])
        if end and not reader.ended:
            reader.end()
    except BrokenBody as error:
        return str(error)
    return (body, reader.reusable) if reader.ended else "goes on"


def read_by_h11(data: bytes, headers: dict[str, str], *, end: bool) -> tuple[bytes, bool] | str:
    """The same by the reader that everybody uses."""
    protocol = h11.Connection(h11.CLIENT)
    protocol.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    protocol.send(h11.EndOfMessage())
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    protocol.receive_data(f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + data)
    if end:
        protocol.receive_data(b"")
    body = b""
    try:
        while True:
            event = protocol.next_event()
            match event:
                case h11.Data():
                    body += bytes(event.data)
                case h11.EndOfMessage():
                    if protocol.their_state is h11.MUST_CLOSE:
                        return body, False
                    return body, not protocol.trailing_data[0] and not end
                case h11.Response():
                    pass
                case _:
                    return "goes on"
    except h11.RemoteProtocolError as error:
        return str(error)


sizes = st.sampled_from([b"0", b"1", b"3", b"03", b"a", b"A;x=1", b'2 ; q="s"', b"", b"g", b"-1"])
tokens = sizes | st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"abc", b"x", b"\n", b"T: v", b"aa"])
chunk = st.binary(min_size=1, max_size=20).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data))
good_chunks = st.lists(chunk, max_size=6).map(lambda some: b"".join(some) + b"0\r\n\r\n")
any_chunks = st.lists(tokens, max_size=12).map(b"".join)
cuts = st.lists(st.integers(0, 120), max_size=8)


@given(data=good_chunks, cuts=cuts, more=st.sampled_from([b"", b"HT"]))
def test_chunks_are_read_as_by_h11(data: bytes, cuts: list[int], more: bytes) -> None:
    known = read_by_h11(data + more, CHUNKED, end=False)
    assert read(data + more, cuts, CHUNKED, end=False) == known


@given(data=good_chunks, cuts=cuts, kept=st.integers(0, 200))
def test_chunks_that_break_off_are_never_whole(data: bytes, cuts: list[int], kept: int) -> None:
    """B47."""
    data = data[: kept % len(data)]
    assert isinstance(read(data, cuts, CHUNKED, end=True), str)
    assert read(data, cuts, CHUNKED, end=False) == "goes on"


@given(data=any_chunks, cuts=cuts)
@example(data=b"3\r\nabcx\r\n0\r\n\r\n", cuts=[])
@example(data=b"3\nabc\r\n0\r\n\r\n", cuts=[])
@example(data=b" 3\r\nabc\r\n0\r\n\r\n", cuts=[])
def test_what_h11_refuses_in_chunks_is_refused(data: bytes, cuts: list[int]) -> None:
    found = read(data, cuts, CHUNKED, end=False)
    known = read_by_h11(data, CHUNKED, end=False)
    if isinstance(known, tuple):
        assert found == known
    elif isinstance(found, tuple):
        # Only what stands behind the last chunk is nobody's matter: the body is whole.
        assert read_by_h11(_without_trailer(data), CHUNKED, end=False)[0] == found[0]


def _without_trailer(data: bytes) -> bytes:
    """The chunks up to the last one; it is the first line that is all noughts."""
    last = re.search(rb"(?:^|\r\n)0+[ \t]*(?:;[^\r\n]*)?\r\n", data)
    assert last
    return data[: last.end()] + b"\r\n"


@given(
    data=st.binary(max_size=40),
    length=st.integers(0, 30),
    cuts=cuts,
    at_end=st.sampled_from([0, 1]),
)
def test_a_length_is_kept(data: bytes, length: int, cuts: list[int], at_end: int) -> None:
    headers, end = {"content-length": str(length)}, bool(at_end)
    found, known = read(data, cuts, headers, end=end), read_by_h11(data, headers, end=end)
    assert isinstance(found, str) == isinstance(known, str)
    if not isinstance(found, str):
        assert found[0] == known[0]
        assert not found[1] or len(data) == length


@given(data=st.binary(max_size=40), cuts=cuts)
def test_without_a_length_the_connections_end_is_the_bodys(data: bytes, cuts: list[int]) -> None:
    assert read(data, cuts, {}, end=True) == (data, False)
    assert read(data, cuts, {}, end=False) == "goes on"


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body_whatever_they_say(status: int) -> None:
    assert BodyReader(status, {**CHUNKED, "content-length": "5"}, keeps_alive=True).reusable


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("gzip", gzip.compress(b"abc" * 9)), ("deflate", zlib.compress(b"abc" * 9))],
)
def test_what_was_compressed_unasked_is_unpacked(encoding: str, packed: bytes) -> None:
    headers = {"content-encoding": encoding, "content-length": str(len(packed))}
    assert read(packed, list(range(40)), headers, end=False) == (b"abc" * 9, True)
    assert "can't be read" in str(read(b"x" * len(packed), [], headers, end=False))


def test_a_compression_that_is_not_known_is_said() -> None:
    with pytest.raises(BrokenBody, match="br"):
        BodyReader(200, {"content-encoding": "br"}, keeps_alive=True)


@pytest.mark.parametrize("endless", [b"1" * 10, b"0\r\n" + b"x" * 10])
def test_an_endless_line_is_given_up(endless: bytes) -> None:
    """G12."""
    data = endless + b"y" * (LINE_BYTES_MAX + 1)
    assert isinstance(read(data, [3, 900], CHUNKED, end=False), str)
    assert read(data, [3, 900], CHUNKED, end=False) != "goes on"
