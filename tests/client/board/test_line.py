"""A typed text is edited as in other programs, whatever keys come."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_client.board.line import Line

KEYS = ["left", "right", "home", "end", "backspace", "delete", "c-u", "c-k", "c-w", "c-y"]


@given(st.lists(st.sampled_from([*KEYS, "a", " ", "\n", "paste it"])))
def test_the_cursor_stays_in_the_text(keys: list[str]) -> None:
    line = Line()
    for key in keys:
        before = line.text
        if key not in KEYS:
            line.insert(key)
            assert len(line.text) == len(before) + len(key)
        elif not line.press(key):
            assert line.text == before
        assert 0 <= line.at <= len(line.text)


def test_words_rows_and_characters_are_erased() -> None:
    line = Line.of("use one\nthen two")
    line.press("c-w")
    assert line == Line("use one\nthen ", 13)
    line.press("home")
    assert line.at == len("use one\n")
    line.press("c-k")
    assert line == Line("use one\n", 8)
    line.press("left")
    line.press("backspace")
    line.press("delete")
    assert line == Line("use on", 6)
    line.press("c-u")
    assert line == Line()
