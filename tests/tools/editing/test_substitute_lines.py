"""Lines that are there but for white space: one place, and the file's own white space stays."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.editing.substitute_lines import substitute_lines
from tiller_daemon.tools.encoding import decode_text

WORDS = ["if x:", "return 1", "y = 2", "", "} else {", "é"]
noise = st.lists(
    st.sampled_from([b"a", b"b", b"\r", b"\xff", b"\xe9", b" ", "é".encode(), b"\t"]), max_size=4
).map(b"".join)
noisy = st.lists(st.tuples(noise, st.sampled_from([b"\n", b"\r\n"])), max_size=6).map(
    lambda lines: b"".join(map(b"".join, lines))
)


@given(
    before=noisy,
    after=noisy,
    block=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
    depths=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    ends=st.lists(st.sampled_from(["", " ", "\t", "\r"]), min_size=7, max_size=7),
    place=st.integers(0, 4),
    last=st.booleans(),
)
def test_nothing_but_the_changed_line_changes(before, after, block, depths, ends, place, last):
    """Tabs in the file, four blanks in `old`, any blanks behind: one line changes, with a tab."""
    place %= len(block)
    assume(block[place])
    depths = [0, *depths]
    lines = ["<<", *block, ">>"]
    theirs = [
        "\t" * depths[i % 6] * bool(line) + line + ends[i] for i, line in enumerate(lines)
    ]  # fmt: skip
    asked = ["    " * depths[i % 6] * bool(line) + line for i, line in enumerate(lines)]
    given_ = [*asked]
    given_[place + 1] = "    " * depths[(place + 1) % 6] + "CHANGED"
    middle = "\n".join(theirs).encode()
    end = b"\n" + after if after or last else b""
    assume(decode_text(before + middle + end).encoding.codec == "utf-8")
    done = substitute_lines(before + middle + end, "\n".join(asked), "\n".join(given_))
    assert done is not None
    changed = [*theirs]
    end_of_line = "\r" if theirs[place + 1].endswith("\r") else ""
    changed[place + 1] = "\t" * depths[(place + 1) % 6] + "CHANGED" + end_of_line
    assert done.data == before + "\n".join(changed).encode() + end
    assert done.line == before.count(b"\n") + 1


@each(
    ("data", "old", "new", "after"),
    [
        ("    a\n    b\n", "a\nb\n", "a\nc\n  d\n", "    a\n    c\n      d\n"),
        ("a\nb\n", "  a\n  b", "  a\n  c\n    d", "a\nc\n  d\n"),
        ("a  \nb\n", "a\nb", "a\nc", "a  \nc\n"),
        ("a  =  1\nb\n", "a = 1\nb", "a = 1\nc", "a  =  1\nc\n"),
        ("\ta\n\tb", " a\n b", " a\n c", "\ta\n\tc"),
        ("x\n  a\ny\n", "a\n", "", "x\ny\n"),
        ("\ufeff a\n", "a\n", "b\n", "\ufeff b\n"),
    ],
)
def test_new_lines_are_indented_as_the_file_is(data, old, new, after):
    done = substitute_lines(data.encode(), old, new)
    assert done is not None
    assert done.data.decode() == after


@each(
    ("data", "old", "new"),
    [
        ("\ta\n", " a", "   b"),  # which tabs three blanks are is unknown
        ("  a\n    b\n", "a\nb", "a\nc"),  # one indentation of `old` is two in the file
        ("a\n", "ab", "c"),
        ("f( a ) + 1\n", "f(a)", "g(a)"),
        ("a\n", " \n", "b"),
        (" a\nb\n", "a\n", "c"),
        ("a\n", "a\nb", "c"),
    ],
)
def test_what_is_not_certain_is_not_changed(data, old, new):
    assert substitute_lines(data.encode(), old, new) is None


def test_more_than_one_place_is_refused_with_the_lines():
    with pytest.raises(ToolFailure, match="2 times with other white space, at lines 1, 4"):
        substitute_lines(b"  x = 1\n\ny\n\tx = 1\n", "x = 1", "x = 2")
    many = b" x\n" * 30
    with pytest.raises(
        ToolFailure, match=r"30 times with other white space, at lines 1, 2, .*10, \.\.\."
    ):
        substitute_lines(many, "x\t", "y")
