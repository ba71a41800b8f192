"""Replacing a piece of text: nothing outside the piece changes, whatever the file is made of."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.editing.substitute import MissingText, explain_missing, substitute
from tiller_daemon.tools.encoding import decode_text

BOM = b"\xef\xbb\xbf"
plain = st.text(st.sampled_from("abcé\n \t\U0001f600"), max_size=30)
noise = st.lists(
    st.sampled_from([b"a", b"b", b"\n", b"\r\n", b"\r", b"\xff", b"\xe9", b" ", "é".encode()]),
    max_size=30,
).map(b"".join)


@given(before=noise, after=noise, old=plain.filter(bool), new=plain, bom=st.booleans())
def test_bytes_outside_the_match_are_identical(before, after, old, new, bom):
    before = BOM + before if bom else before
    data = before + b"<" + old.encode() + b">" + after
    assume(f"<{old}>" != f"<{new}>")
    assume(decode_text(data).encoding.codec == "utf-8")
    done = substitute(data, f"<{old}>", f"<{new}>", every=False)
    assert done.data.startswith(before + b"<")
    assert done.data.endswith(b">" + after)
    inner = done.data[len(before) + 1 : len(done.data) - len(after) - 1]
    assert inner.replace(b"\r\n", b"\n") == new.encode()


@given(
    lines=st.lists(st.sampled_from(["one", "two", "", "é"]), max_size=8),
    new=plain,
    last=st.booleans(),
)
def test_a_crlf_file_stays_one(lines, new, last):
    text = "\n".join(["head", *lines, "OLD", *lines, "tail"]) + ("\n" if last else "")
    data = text.replace("\n", "\r\n").encode()
    done = substitute(data, "OLD\n", f"{new}!\n", every=False).data
    assert b"\n" not in done.replace(b"\r\n", b"")
    assert done == text.replace("OLD\n", f"{new}!\n").replace("\n", "\r\n").encode()


def test_the_line_ends_of_a_mixed_file_are_those_at_the_place():
    data = b"a\r\nb\r\nc\nd\n"
    assert substitute(data, "b", "x\ny", every=False).data == b"a\r\nx\r\ny\r\nc\nd\n"
    assert substitute(data, "c\nd", "x\ny\nz", every=False).data == b"a\r\nb\r\nx\ny\nz\n"
    assert substitute(b"a\r\nb", "b", "x\ny", every=False).data == b"a\r\nx\r\ny"
    assert substitute(b"a\r\nb\n", "a\nb", "x\ny", every=False).data == b"x\r\ny\n"


def test_a_missing_last_line_end_and_a_byte_order_mark_stay():
    assert substitute(BOM + b"one\ntwo", "one", "1", every=False).data == BOM + b"1\ntwo"
    assert substitute(b"one\ntwo", "two", "2", every=False).data == b"one\n2"


def test_what_looks_like_an_expression_is_taken_as_it_is():
    assert substitute(b"a.c abc", "a.c", r"\1 \g<0>", every=False).data == rb"\1 \g<0> abc"


def test_more_than_one_place_is_refused_with_the_lines():
    with pytest.raises(ToolFailure, match=r"occurs 3 times, at lines 1, 2, 4\. .* `all`"):
        substitute(b"x\nx\n\nx\n", "x", "y", every=False)
    done = substitute(b"x\nx\n\nx\n", "x", "y", every=True)
    assert (done.data, done.lines) == (b"y\ny\n\ny\n", (1, 2, 4))


def test_a_piece_that_overlaps_itself_is_more_than_one_place():
    with pytest.raises(ToolFailure, match="overlaps itself at line 1"):
        substitute(b"aaa", "aa", "b", every=False)


def test_nothing_to_do_is_refused():
    with pytest.raises(ToolFailure, match="the same text"):
        substitute(b"a", "a", "a", every=False)
    with pytest.raises(ToolFailure, match="`old` is empty"):
        substitute(b"a", "", "a", every=False)
    with pytest.raises(ToolFailure, match="surrogate"):
        substitute(b"a", "\ud800", "a", every=False)


def test_text_that_is_not_there_brings_the_most_similar_lines():
    data = b"import os\n\ndef connect(host):\n    return open_socket(host)\n"
    with pytest.raises(MissingText):
        substitute(data, "def connect(hots):", "x", every=False)
    said = explain_missing(data, "def connect(hots):")
    assert "     3\tdef connect(host):" in said
    assert said.endswith("@@ -1 +1 @@\n-def connect(hots):\n+def connect(host):\n")
    assert "Nothing in it is similar" in explain_missing(data, "@@@@@")


def test_line_numbers_in_the_text_are_recognised():
    assert "Leave out the line numbers" in explain_missing(b"one\n", "     1\tone")
