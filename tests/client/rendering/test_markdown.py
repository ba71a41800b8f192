"""Markdown reads the same however it arrives, fits its width, and is safe on a terminal."""

import re
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import wcswidth

from support.each import each
from tiller_client.rendering import blocks
from tiller_client.rendering.code import Highlighter
from tiller_client.rendering.markdown import MarkdownStream, markdown_lines
from tiller_client.rendering.style import TRUECOLOR, Theme, width
from tiller_client.rendering.text import on_screen, sanitized

PLAIN = Theme()
COLOURED = Theme("dark", TRUECOLOR, links=True)

PARTS = st.sampled_from(
    [
        *("- ", "* ", "1. ", "7) ", "> ", "    ", "  ", "\t", "\n", "\n\n", "```py\n", "```\n"),
        *("# ", "---\n", "===\n", "| a | b |\n|---|--:|\n", "| 1 | 2 |\n", "**", "*", "`", "~~"),
        *("[x](http://a.b/c)", "![i](d)", "[ ] ", "<b>", "&#27;", "&#x202e;", "\\", "[r]: /u\n"),
        *("word ", "日本語", "/* ", "*/\n", 'x = """\n', "~~~\n", "\r", "\u202e", "\x1b[31m"),
        *("\x1b]8;;", "\x9b", "\0"),
    ]
)
TEXTS = st.lists(st.one_of(PARTS, st.text(max_size=8)), max_size=30).map("".join)
WIDTHS = st.integers(20, 100)
THEMES = st.sampled_from([PLAIN, COLOURED, Theme("light", 256), Theme("dark", 16)])
OURS = re.compile(r"\x1b\[[0-9;]+m|\x1b\]8;;[!-~]*\x1b\\")


def streamed(text: str, cuts: list[int], columns: int, theme: Theme = PLAIN) -> list[str]:
    stream = MarkdownStream(columns, theme)
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    lines: list[str] = []
    for begin, end in pairwise(edges):
        lines += stream.feed(text[begin:end])
        stream.tail()
    return lines + stream.close()


@given(TEXTS, st.lists(st.integers(0, 400), max_size=12), WIDTHS, THEMES)
@example("- a\n\n- b\n  ```\n  c\n- d\n\n\ne\n", [7], 40, PLAIN)
@example("```py\n\r\r", [], 20, PLAIN)
@example("```js\n/**\n * if\n */\nlet a\n", [9, 14], 40, COLOURED)
@example("3. a\n3. b\n\n   c\n3. d\r\n4) e", [20], 40, PLAIN)
def test_final_lines_are_those_of_the_whole_text(text, cuts, columns, theme):
    assert streamed(text, cuts, columns, theme) == markdown_lines(text, columns, theme)


@given(TEXTS, WIDTHS, THEMES)
def test_no_line_is_too_wide_and_none_has_an_escape_that_is_not_ours(text, columns, theme):
    stream = MarkdownStream(columns, theme)
    for line in map(on_screen, [*stream.feed(text), *stream.tail(), *stream.close()]):
        shown = OURS.sub("", line)
        assert sanitized(shown) == shown
        assert width(line) <= columns
        assert wcswidth(shown) <= columns
        if theme.kind == "none":
            assert shown == line


@given(
    st.text(st.characters() | st.sampled_from("\x1b[]\x07\x9b\u202e\r"), max_size=200),
    st.integers(20, 60),
)
def test_any_text_at_all_is_safe(text, columns):
    for line in map(on_screen, markdown_lines(text, columns, COLOURED)):
        shown = OURS.sub("", line)
        assert sanitized(shown) == shown
        assert width(line) <= columns


@each("unit", ["- item *one*\n", "word and more\n", "| a | b |\n", "> a\n", "x\n\n"])
@pytest.mark.nightly
def test_the_lines_that_are_parsed_grow_with_the_text_not_with_its_square(unit):
    lines = 600
    parsed = 0

    def count(frame, event, _argument):
        nonlocal parsed
        if event == "call" and frame.f_code is blocks.parsed.__code__:
            parsed += frame.f_locals["source"].count("\n") + 1

    stream = MarkdownStream(80, PLAIN)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for piece in ["| h | i |\n|---|---|\n" if "|" in unit else "", *[unit] * lines]:
            stream.feed(piece)
        stream.close()
    finally:
        sys.setprofile(before)
    assert lines < parsed < 14 * lines * unit.count("\n")


EXAMPLES = {
    "# A *b*\ntext": ["# A b", "", "text"],
    "a\nb  \nc": ["a", "b", "c"],
    "- one\n- two\n  1. x\n  2. y\n\n- three": [
        "• one", "• two", "  1. x", "  2. y", "", "• three",
    ],
    "- [ ] do\n- [x] done": ["☐ do", "☑ done"],
    "8. a\n8. b\n": ["8. a", "9. b"],
    "> a\n> b": ["│ a", "│ b"],
    "`a` ~~b~~ **c**": ["`a` ~~b~~ c"],
    "[a](http://x.y/z)": ["a (http://x.y/z)"],
    "<http://x.y>": ["http://x.y"],
    "![cat](c.png)": ["[image: cat] (c.png)"],
    "<b>&amp;&#x1b;": ["<b>&\ufffd"],
    "```sh\nls\n": ["```sh", "ls", "```"],
    "| n | v |\n|:-|-:|\n| ab | 1 |\n| c | 22 |": [
        "n  │  v", "───┼───", "ab │  1", "c  │ 22",
    ],
    "|日|b|\n|-|-|\n|1|2|": ["日 │ b", "───┼──", "1  │ 2"],
    "[r]: http://x.y\n\n[r]": ["[r]: http://x.y", "", "[r]"],
    "\u202eabc\x1b[2J": ["⟨U+202E⟩abc␛[2J"],
}  # fmt: skip


@each("text", EXAMPLES)
def test_examples_read_well(text):
    assert markdown_lines(text, 40, PLAIN) == EXAMPLES[text]


def test_a_table_that_is_too_wide_is_shown_row_by_row():
    head = "|".join(f"column{number}" for number in range(8))
    text = f"{head}\n{'|'.join('-' * 8)}\n{'|'.join('value' for _ in range(8))}"
    assert markdown_lines(text, 40, PLAIN)[:2] == ["column0: value", "column1: value"]
    assert "│" in markdown_lines(text, 120, PLAIN)[0]


def test_a_link_leads_only_where_it_says_and_where_it_may():
    link = "\x1b]8;;http://x.y/z\x1b\\"
    assert link in on_screen(markdown_lines("[a](http://x.y/z)", 40, COLOURED)[0])
    (disguised,) = markdown_lines("[http://good.org](http://x.y/z)", 60, COLOURED)
    assert "(http://x.y/z)" in disguised
    (script,) = markdown_lines("[a](javascript:b)", 40, COLOURED)
    assert "]8;" not in script
    assert "(javascript:b)" in script


def test_what_is_unfinished_is_shown_as_it_looks_now():
    stream = MarkdownStream(40, PLAIN)
    assert stream.feed("one\n\ntw") == []
    assert stream.tail() == ["one", "", "tw"]
    assert stream.feed("o\n\n# t\n") == ["one", "", "two"]
    assert stream.tail() == ["", "# t"]
    assert stream.feed("```py\nif a:\n    b") == ["", "# t", "", "```py", "if a:"]
    assert stream.tail() == ["    b"]
    assert stream.feed("()\n``") == ["    b()"]
    assert stream.tail() == []
    assert stream.close() == ["``", "```"]


def test_code_is_coloured_by_its_language_and_stays_plain_in_an_unknown_one():
    known = on_screen(markdown_lines("```py\nreturn 1\n```", 40, COLOURED)[1])
    assert known.startswith("\x1b[38;2;")
    assert markdown_lines("```nonsense\nreturn 1\n```", 40, COLOURED)[1] == "return 1"


@each(
    ("language", "path", "code"),
    [
        *(
            ("python", "", "if a"),
            ("tsx", "", "if (a)"),
            ("h", "", "int a;"),
            ("c++", "", "int a;"),
        ),
        *(("", "src/a.sql", "select 1"), ("", "Makefile", "ifdef A"), ("", "a.pl", "my $a")),
    ],
)
def test_a_language_is_found_by_its_name_and_its_files(language, path, code):
    assert any(span.roles for span in Highlighter(language, path).line(code))


def test_a_comment_of_several_lines_is_coloured_as_one():
    _, *lines, _ = markdown_lines("```js\n/**\n * return\n */\n```", 40, COLOURED)
    assert len({line.split("m")[0] for line in lines}) == 1
