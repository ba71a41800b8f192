"""Cutting text for a model: never above the limit, both ends intact, always text."""

from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.tools.truncation import BYTES_MAX, LINES_MAX, truncate, truncate_parts

WHERE = "the whole is in /somewhere/file.txt"
characters = st.sampled_from(["a", "\n", "é", "\u2028", "\U0001f600", "\r", "\0", "xyz", "\n\n\n"])
texts = st.builds(
    lambda pieces, times: "".join(pieces) * times,
    st.lists(characters, max_size=40),
    st.integers(1, 4000),
)


@given(texts)
def test_what_a_model_gets_is_never_above_the_limit(text):
    cut = truncate(text, where=WHERE)
    assert len(cut.encode()) <= BYTES_MAX
    assert cut.count("\n") <= LINES_MAX


@given(texts)
def test_beginning_and_end_are_those_of_the_text(text):
    cut = truncate(text, where=WHERE)
    if cut == text:
        return
    first, _, rest = cut.partition("\n[... ")
    last = rest.partition(f"{WHERE} ...]\n")[2]
    assert first
    assert last
    assert text.startswith(first)
    assert text.endswith(last)


@given(texts)
def test_a_text_within_the_limit_stays_as_it_is(text):
    fits = len(text.encode()) <= BYTES_MAX and text.count("\n") <= LINES_MAX
    assert (truncate(text) == text) is fits


@each("shift", range(4))
def test_no_character_is_cut_in_two(shift):
    text = "x" * shift + "\U0001f600" * 20_000 + "y" * shift
    first, _, rest = truncate(text).partition("\n[... ")
    last = rest.partition(" ...]\n")[2]
    assert set(first) | set(last) == set(text)


def test_the_sentence_counts_what_is_left_out():
    text = "".join(f"{i}\n" for i in range(5000))
    cut = truncate(text, where=WHERE)
    first, _, rest = cut.partition("\n[... ")
    note, _, last = rest.partition(" ...]\n")
    left_out = 5000 - first.count("\n") - last.count("\n")
    left_bytes = len(text) - len(first) - len(last)
    assert note == f"{left_out} lines, {left_bytes} bytes left out here; {WHERE}"


def test_parts_that_are_only_the_ends_of_more_are_joined_with_the_count_of_all():
    cut = truncate_parts("begin\n", "end\n", lines=1_000_000, size_bytes=10**9)
    assert cut == "begin\n\n[... 999998 lines, 999999990 bytes left out here ...]\nend\n"
