"""Responses: where they end, which of them are refused, and that pieces make no difference.

The subjects are those of the test suites of h11 and httpcore.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from support.responses import cut, differs_from_h11, make_response, parse
from tiller_daemon.http.failures import Broken
from tiller_daemon.http.head import HEAD_BYTES_MAX, make_request

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"

WHOLE = {
    "sized": (OK + b"Content-Length: 5\r\n\r\nabcde", b"abcde", True),
    "sized twice": (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", True),
    "sized in a list": (OK + b"Content-Length: 5, 5\r\n\r\nabcde", b"abcde", True),
    "empty": (OK + b"Content-Length: 0\r\n\r\n", b"", True),
    "chunked": (CHUNKED + CHUNKS, b"abcde", True),
    "chunked with capitals": (OK + b"Transfer-encoding: Chunked\r\n\r\n" + CHUNKS, b"abcde", True),
    "extensions": (CHUNKED + b'3;a;b="c;d"\r\nabc\r\n2;x=1\r\nde\r\n0;y\r\n\r\n', b"abcde", True),
    "trailers": (CHUNKED + CHUNKS[:-2] + b"A: b\r\nC: d\r\n\r\n", b"abcde", True),
    "padded sizes": (CHUNKED + b"3  \r\nabc\r\n02 \r\nde\r\n0   \r\n\r\n", b"abcde", True),
    "an empty stream": (CHUNKED + b"0\r\n\r\n", b"", True),
    "both framings": (
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS, b"abcde", False,
    ),
    "until the end": (OK + b"\r\nabcde", b"abcde", False),
    "nothing until the end": (OK + b"\r\n", b"", False),
    "204": (b"HTTP/1.1 204 No\r\n\r\n", b"", True),
    "204 with a length": (b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", b"", True),
    "204 with chunks": (b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"", True),
    "304 with a length": (b"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", b"", True),
    "interim": (
        b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 103 Hint\r\nLink: x\r\n\r\n" + CHUNKED + CHUNKS,
        b"abcde", True,
    ),
    "interim with a length": (
        b"HTTP/1.1 102 Wait\r\nContent-Length: 9\r\n\r\n" + CHUNKED + CHUNKS, b"abcde", True,
    ),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", True),
    "LF only": (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nabcde", b"abcde", True),
    "said to be closed": (
        OK + b"Connection: x, CLOSE\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", False,
    ),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", False),
    "HTTP/1.0, kept": (
        b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nabcde",
        b"abcde", True,
    ),
    "an upgrade that was not asked for": (
        OK + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nabcde",
        b"abcde", True,
    ),
    "another response": (CHUNKED + CHUNKS + OK + b"\r\n", b"abcde", False),
    "rubbish behind chunks": (CHUNKED + CHUNKS + b"\0\0", b"abcde", False),
    "rubbish behind a length": (OK + b"Content-Length: 5\r\n\r\nabcdef", b"abcde", False),
    "rubbish behind no body": (b"HTTP/1.1 204 No\r\n\r\nx", b"", False),
}  # fmt: skip


@each("name", WHOLE)
def test_a_response_is_the_same_however_it_is_cut(name: str) -> None:
    data, content, is_reusable = WHOLE[name]
    ends = "until" not in name
    for place in range(len(data) + 1):
        found = parse(cut(data, [place]), ended=not ends)
        assert (found.content, found.is_reusable) == (content, is_reusable), place
    found = parse(cut(data, range(len(data))), ended=not ends)
    assert (found.content, found.is_reusable) == (content, is_reusable)


@each("name", WHOLE)
def test_a_response_that_breaks_off_anywhere_is_not_taken_for_whole(name: str) -> None:
    data, content, _ = WHOLE[name]
    for place in range(len(data)):
        try:
            found = parse([data[:place]] if place else [])
        except Broken:
            continue
        # Nobody can tell that the rest is missing if only the connection marks the end.
        if "until" in name:
            assert content.startswith(found.content)
        else:
            assert found.content == content, place


BROKEN = {
    "an empty line": (b"\r\n\r\n", "illegal status line"),
    "no HTTP": (b"220 mail.example ESMTP\r\n\r\n", "illegal status line"),
    "HTTP/2": (b"HTTP/2.0 200 OK\r\n\r\n", "illegal status line"),
    "a short status": (b"HTTP/1.1 20 OK\r\n\r\n", "illegal status line"),
    "a long status": (b"HTTP/1.1 2000 OK\r\n\r\n", "illegal status line"),
    "a status below 100": (b"HTTP/1.1 099 OK\r\n\r\n", "illegal status line"),
    "a NUL in the reason": (b"HTTP/1.1 200 O\0K\r\n\r\n", "illegal status line"),
    "a header without a name": (OK + b": x\r\n\r\n", "illegal header line"),
    "a header without a colon": (OK + b"X\r\n\r\n", "illegal header line"),
    "a space before the colon": (OK + b"Content-Length : 5\r\n\r\nabcde", "illegal header line"),
    "a NUL in a header": (OK + b"X: a\0b\r\n\r\n", "illegal header line"),
    "a CR in a header": (OK + b"X: a\rY: b\r\n\r\n", "illegal header line"),
    "a fold at the beginning": (OK + b" X: y\r\n\r\n", "continuation line"),
    "lengths that differ": (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "conflicting"),
    "a negative length": (OK + b"Content-Length: -5\r\n\r\n", "bad Content-Length"),
    "a signed length": (OK + b"Content-Length: +5\r\n\r\n", "bad Content-Length"),
    "a length in words": (OK + b"Content-Length: five\r\n\r\n", "bad Content-Length"),
    "no length": (OK + b"Content-Length:\r\n\r\n", "bad Content-Length"),
    "a huge length": (OK + b"Content-Length: " + b"9" * 21 + b"\r\n\r\n", "bad Content-Length"),
    "another space": (OK + b"Content-Length: 5\xc2\xa0\r\n\r\n", "bad Content-Length"),
    "another digit": (OK + b"Content-Length: \xc2\xb2\r\n\r\n", "bad Content-Length"),
    "another encoding": (OK + b"Transfer-Encoding: gzip\r\n\r\n", "Only Transfer-Encoding"),
    "two encodings": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "Only Transfer-Encoding"),
    "another protocol": (b"HTTP/1.1 101 Go\r\n\r\n", "another protocol"),
    "no size": (CHUNKED + b"\r\nabc", "illegal chunk"),
    "a size in words": (CHUNKED + b"xyz\r\nabc", "illegal chunk"),
    "a negative size": (CHUNKED + b"-3\r\nabc", "illegal chunk"),
    "a prefixed size": (CHUNKED + b"0x3\r\nabc", "illegal chunk"),
    "a huge size": (CHUNKED + b"1" + b"0" * 16 + b"\r\nabc", "illegal chunk"),
    "a longer chunk": (CHUNKED + b"3\r\nabcd\r\n", "illegal chunk"),
    "a chunk and LF": (CHUNKED + b"3\nabc\n0\n\n", "illegal chunk"),
    "a bad trailer": (CHUNKED + b"0\r\nno colon\r\n\r\n", "illegal chunk"),
}


@each("name", BROKEN)
def test_what_is_no_response_is_refused_however_it_is_cut(name: str) -> None:
    data, reason = BROKEN[name]
    for places in ([], *([place] for place in range(len(data))), range(len(data))):
        with pytest.raises(Broken, match=reason):
            parse(cut(data, places), ended=False)


def test_headers_are_read_as_they_are_meant() -> None:
    data = OK + b"A:1\r\nb-C:  2 \t\r\nA: 3\r\nD:\r\nE: x\r\n  y\r\n\tz \r\nF: \xc3\xb6\r\n"
    found = parse([data + b"Content-Length: 0\r\n\r\n"], ended=False)
    fields = (("a", "1"), ("b-c", "2"), ("a", "3"), ("d", ""), ("e", "x y z"), ("f", "ö"))
    assert found.fields[:-1] == fields
    (latin,) = parse([OK + b"F: \xf6\r\n\r\n"]).fields
    assert latin == ("f", "ö")


@each("beginning", [OK, b"HTTP/1.1 100 Go on\r\n\r\n" * 5_000, OK + b"A: b\r\n" * 20_000])
@each("size", [1_000, 65_536])
def test_a_head_without_end_is_given_up(beginning: bytes, size: int) -> None:
    data = beginning + b"X: " + b"x" * HEAD_BYTES_MAX
    with pytest.raises(Broken, match=f"longer than {HEAD_BYTES_MAX} bytes"):
        parse(cut(data, range(0, len(data), size)), ended=False)


def test_a_head_up_to_the_limit_is_taken() -> None:
    head = OK + b"Content-Length: 5\r\nX: "
    head += b"x" * (HEAD_BYTES_MAX - len(head) - 4) + b"\r\n\r\n"
    assert len(head) == HEAD_BYTES_MAX
    assert parse([head, b"abcde"], ended=False).content == b"abcde"
    with pytest.raises(Broken, match="longer"):
        parse([b"HTTP/1.1 100 Go\r\n\r\n", head], ended=False)


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_what_is_a_response_is_what_h11_takes_for_one(seed: int, cuts: list[int]) -> None:
    data = make_response(Random(seed))
    assert differs_from_h11(data, cuts) == ""


def test_a_request_is_sent_as_it_should_be() -> None:
    assert make_request("GET", "/a?b", [("Host", "h")]) == b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"
    assert make_request("POST", "/", [("a", "b")], b"12") == (
        b"POST / HTTP/1.1\r\na: b\r\ncontent-length: 2\r\n\r\n12"
    )
    with pytest.raises(UnicodeEncodeError):
        make_request("GET", "/ö", [])
