"""Streamed text wraps between words, in whatever pieces it arrives."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_client.rendering.text import cells
from tiller_client.rendering.wrap import Wrap

PROSE = "The quick brown fox jumps over the lazy dog, and then it rests a while."


def wrapped(width: int, *pieces: str) -> str:
    wrap = Wrap()
    return "".join(wrap.feed(piece, width) for piece in pieces) + wrap.rest(width)


def test_a_line_is_broken_where_the_next_word_does_not_fit():
    assert wrapped(20, PROSE).split("\n") == [
        "The quick brown fox",
        "jumps over the lazy",
        "dog, and then it",
        "rests a while.",
    ]


def test_a_word_that_comes_in_pieces_is_not_torn():
    assert wrapped(10, "one tw", "o thr", "ee four") == "one two\nthree four"


def test_a_word_is_held_until_it_is_whole_and_no_longer():
    wrap = Wrap()
    assert wrap.feed("one tw", 80) == "one"
    assert wrap.feed("o ", 80) == " two"
    assert not wrap.at_line_start
    assert wrap.feed("\n", 80) == " \n"
    assert wrap.at_line_start


def test_what_is_longer_than_a_line_is_left_to_the_terminal():
    url = "https://example.org/" + "x" * 30
    assert wrapped(20, f"see {url} there") == f"see {url}\nthere"


def test_lines_of_the_text_itself_and_their_beginnings_stay():
    text = "- one\n    - two\n\n\nend  \n"
    assert wrapped(20, text) == text


def test_code_between_fences_stays_as_it_is():
    code = "```py\nreturn one_thing + another_thing + a_third\n```\n"
    assert wrapped(20, code + PROSE) == code + wrapped(20, PROSE)


def test_scripts_without_blanks_are_broken_by_their_columns():
    assert wrapped(6, "日本語日本語") == "日本語\n日本語"
    assert wrapped(6, "ab 日本語") == "ab 日\n本語"


@given(
    text=st.text(st.sampled_from("ab é日 \n`\t-"), max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=6),
    width=st.integers(3, 20),
)
def test_pieces_give_what_the_whole_gives_and_nothing_but_blanks_is_lost(
    text: str, cuts: list[int], width: int
):
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]
    out = wrapped(width, *pieces)
    assert out == wrapped(width, text)
    assert "".join(out.split()) == "".join(text.split())


@given(words=st.lists(st.text(st.sampled_from("abc日"), min_size=1, max_size=6), max_size=20))
@pytest.mark.parametrize("width", [12, 20])
def test_no_line_is_wider_than_the_screen(words: list[str], width: int):
    assert all(cells(line) <= width for line in wrapped(width, " ".join(words)).split("\n"))
