"""No text of a model or a tool can control the terminal, and widths are in cells."""

import json
import re
from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import (
    age,
    cells,
    count,
    cut,
    cut_beginning,
    dollars,
    json_line,
    on_screen,
    one_line,
    pad,
    quoted_path,
    sanitized,
    seconds,
    verbatim,
)

HOSTILE = st.text(st.characters(codec="utf-8"), max_size=60)
HIDING = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}


@given(HOSTILE)
def test_harmless_text_has_no_control_but_tab_and_newline(text: str) -> None:
    safe = sanitized(text)
    for character in safe:
        code = ord(character)
        assert character in "\t\n" or not (code < 0x20 or 0x7F <= code <= 0x9F)
        assert not 0x202A <= code <= 0x202E
        assert not 0x2066 <= code <= 0x2069


@each(
    ("text", "safe"),
    [
        ("\x1b]0;owned\x07", "␛]0;owned␇"),
        ("\x1b[2Jgone", "␛[2Jgone"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("safe\rEVIL", "safe␍EVIL"),
        ("one\r\ntwo\ttab", "one\ntwo\ttab"),
        ("rm \u202etxt.exe", "rm ⟨U+202E⟩txt.exe"),
        ("a\u00ad\u2028\ufeff\u3164\U000e0041", "a⟨U+00AD⟩⟨U+2028⟩⟨U+FEFF⟩⟨U+3164⟩⟨U+E0041⟩"),
        ("\x7f\x00", "␡␀"),
        ("\ud800", "⟨U+D800⟩"),
        ("naïve 日本 🙂 👩\u200d👧 ❤\ufe0f", "naïve 日本 🙂 👩\u200d👧 ❤\ufe0f"),
    ],
)
def test_what_would_steer_a_terminal_is_made_visible(text: str, safe: str) -> None:
    assert sanitized(text) == safe


@given(st.text(st.characters(exclude_categories=())))
def test_what_was_made_harmless_or_verbatim_stays_as_it_is_on_the_screen(text: str) -> None:
    assert on_screen(sanitized(text)) == sanitized(text)
    assert on_screen(verbatim(text)) == verbatim(text)


@given(HOSTILE)
def test_whatever_is_written_no_escape_but_a_colour_of_ours_gets_out(text: str) -> None:
    said = Theme("dark", 16).bad(text)
    written = re.sub("\x1b\\[(31|0)m", "", on_screen(said))
    assert all(c in "\t\n\u200c\u200d" or category(c) not in HIDING for c in written)


@each(
    ("text", "shown"),
    [
        ("ls\t-l  \n\tx", "ls␉-l␠␠\n␉x"),
        ("a\r\nb", "a␍\nb"),
        ("a\u00a0b\u2800", "a⟨U+00A0⟩b⟨U+2800⟩"),
        ("␛⟨⟩", "⟨U+241B⟩⟨U+27E8⟩⟩"),
        ("e\u0301 \u0301", "e\u0301 ⟨U+0301⟩"),
        ("e\u0301\u0302\u0303", "e\u0301\u0302⟨U+0303⟩"),
        ("👩\u200d👧 ❤\ufe0f", "👩⟨U+200D⟩👧 ❤⟨U+FE0F⟩"),
    ],
)
def test_in_a_verbatim_text_nothing_looks_like_something_else(text: str, shown: str) -> None:
    assert verbatim(text) == shown


@each(
    ("path", "shown"),
    [
        ("src/a b.py", "src/a b.py"),
        ("über/日本", "über/日本"),
        ("a\nb.txt", r'"a\nb.txt"'),
        (" lead", '" lead"'),
        ("two  blanks", '"two  blanks"'),
        ('"', r'"\""'),
        ('say "it"\\\t', r'"say \"it\"\\\t"'),
        ("\u202egnp.exe", r'"\342\200\256gnp.exe"'),
        ("a\u00a0b\x1b", r'"a\302\240b\033"'),
    ],
)
def test_a_path_that_would_be_ambiguous_in_one_line_is_quoted(path: str, shown: str) -> None:
    assert quoted_path(path) == shown


@given(HOSTILE, HOSTILE)
def test_different_paths_never_look_the_same(one: str, other: str) -> None:
    shown = quoted_path(one)
    assert "\n" not in shown
    assert on_screen(shown) == shown
    assert (shown == quoted_path(other)) == (one == other)


@given(HOSTILE, st.integers(1, 20))
def test_cut_text_fits(text: str, width: int) -> None:
    assert cells(cut(one_line(text), width)) <= width
    assert cells(pad(one_line(text), width)) == width
    assert cells(cut_beginning(one_line(text), width)) <= width


def test_wide_characters_count_twice_and_marks_not_at_all() -> None:
    assert (cells("日本"), cells("e\u0301"), cells("abc")) == (4, 1, 3)
    assert cut("日本語", 4) == "日…"
    assert cut_beginning("日本語", 4) == "…語"
    assert cut_beginning("cafe\u0301", 3) == "…fe\u0301"


@given(st.dictionaries(HOSTILE, HOSTILE))
def test_a_line_of_json_is_one_line_to_every_reader_and_says_the_same(
    value: dict[str, str],
) -> None:
    line = json_line(json.dumps(value, ensure_ascii=False).encode())
    assert json.loads(line) == value
    assert len(line.splitlines()) == 1
    assert not [c for c in line if category(c) in HIDING]


def test_no_colour_leaves_text_alone_and_colour_ends_with_each_line() -> None:
    assert Theme().bad("a\nb") == "a\nb"
    painted = Theme("dark", 16).bad("a\n\nb")
    assert on_screen(painted) == "\x1b[31ma\x1b[0m\n\n\x1b[31mb\x1b[0m"


@each(
    ("duration_s", "text"),
    [
        (0, "0 ms"),
        (0.0804, "80 ms"),
        (0.9999, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (400_000, "4 d"),
    ],
)
def test_durations_are_for_people(duration_s: float, text: str) -> None:
    assert seconds(duration_s) == text


@each(
    ("elapsed_s", "text"),
    [(-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (9e5, "10 d")],
)
def test_an_age_has_one_unit(elapsed_s: float, text: str) -> None:
    assert age(elapsed_s) == text


@each(("number", "text"), [(999, "999"), (1200, "1.2k"), (999_960, "1.0M"), (3_400_000, "3.4M")])
def test_numbers_are_for_people(number: int, text: str) -> None:
    assert count(number) == text


@each(
    ("cost", "shown"),
    [
        (0.0, "$0.00"),
        (0.00001, "<$0.0001"),
        (0.0001, "$0.0001"),
        (0.0042, "$0.0042"),
        (0.01, "$0.01"),
        (0.125, "$0.125"),
        (1.5, "$1.50"),
        (12.345, "$12.35"),
        (1234.5, "$1,234.50"),
    ],
)
def test_money_is_shown_as_exactly_as_it_matters(cost: float, shown: str) -> None:
    assert dollars(cost) == shown
