"""Server-sent events: any bytes, cut anywhere, give the data that the reference reader gives."""

from itertools import pairwise

import pytest
from httpx2 import EventSource, Request, Response
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.models.http import sse
from tiller_daemon.models.http.sse import EventSplitter, EventTooLong

lines = st.sampled_from(
    [
        "data: one",
        "data:two",
        "data",
        "data:",
        "data:  x",
        ": comment",
        "event: e",
        "event: data: e",
        "id: 7",
        "",
        "",
    ]
) | st.text(alphabet="da:té☃ \u2028x", max_size=12)
streams = st.lists(st.tuples(lines, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30).map(
    lambda pairs: "".join(line + end for line, end in pairs).encode()
)


def split(stream: bytes, *cuts: int) -> list[bytes]:
    splitter = EventSplitter()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [data for start, end in pairwise(places) for data in splitter.feed(stream[start:end])]
    return found + splitter.end()


@given(stream=streams, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_cuts_change_nothing(stream: bytes, cuts: list[int]) -> None:
    assert split(stream, *cuts) == split(stream)


@given(stream=streams)
def test_whole_events_are_those_of_the_http_librarys_reader(stream: bytes) -> None:
    stream += b"\n\n"
    response = Response(
        200,
        headers={"content-type": "text/event-stream"},
        content=stream,
        request=Request("GET", "http://h"),
    )
    expected = [event.data.encode() for event in EventSource(response)]
    assert [data for data in split(stream) if data] == [data for data in expected if data]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_and_every_cut(end: str) -> None:
    stream = end.join(
        [": hi", "", "data: a", "", "event: e", "data: b", "data: c", "", ""]
    ).encode()
    for cut in range(len(stream) + 1):
        assert split(stream, cut) == [b"a", b"b\nc"]


def test_a_last_event_without_a_blank_line_counts() -> None:
    assert split(b"data: a\n\ndata: [DONE]") == [b"a", b"[DONE]"]


@each("empty", ["data:", "data: ", "data", "event: ping\ndata:", ": hi"])
@each("other", ["data: a", "event: e\ndata: a"])
def test_an_event_without_data_is_none(empty: str, other: str) -> None:
    assert split("\n\n".join([other, empty, other, empty, ""]).encode()) == [b"a", b"a"]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert split(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """G12."""
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 1000)
    splitter = EventSplitter()
    splitter.feed(b"data: " + b"x" * 994)
    with pytest.raises(EventTooLong, match="1000 bytes"):
        splitter.feed(b"x")
