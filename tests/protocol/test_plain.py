"""Markdown as plain text: marks go, and what only looks like a mark stays."""

from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_protocol.snapshot import plain


@each(
    ("line", "text"),
    [
        ("**12 tests pass**, and `echo` is *done*", "12 tests pass, and echo is done"),
        ("***both***, *one* and **two**", "both, one and two"),
        ("**see `a*b`** and ``c`d``", "see a*b and c`d"),
        ("### Step 3", "Step 3"),
        ("- [x] > done", "> done"),
        ("2. **written**", "2. written"),
        ("in [utils.py](src/utils.py), ![a picture](b.png)", "in utils.py, a picture"),
        ("2 * 3 * 4, a*b*c, snake_case_name, __init__.py", None),
        ("rm *.py and *.txt; #1; `open", None),
    ],
)
def test_marks_are_removed_and_other_signs_stay(line, text):
    assert plain(line) == (line if text is None else text)


@given(st.text(alphabet="*`[]()# -ab\n", max_size=200))
def test_any_text_gets_no_longer(line):
    assert len(plain(line)) <= len(line)
