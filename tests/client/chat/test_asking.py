"""Nothing but a letter and Enter, typed for a request that was on the screen, answers it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_client.chat.asking import SEEN_S_MIN, Asking, choices
from tiller_protocol.items import Request

KEYS = st.lists(st.sampled_from([*"yahnr1t", "x", "ENTER", "ESC", "OTHER"]), max_size=30)


QUESTION = Request("q1", "question", "Which?", choices=("red", "blue"))


def request(request_id: str = "r1", **fields: object) -> Request:
    fields = {"always": ("git *",), "always_here": "/work", **fields}
    return Request(request_id, "approval", "Run git push", **fields)  # type: ignore[arg-type]


def test_the_choices_are_those_that_the_request_has() -> None:
    assert [one.key for one in choices(request())] == ["y", "a", "h", "n", "r"]
    assert [one.key for one in choices(request(always=(), always_here=""))] == ["y", "n", "r"]
    assert [one.decision for one in choices(request())] == [
        *("once", "always", "always_here", "reject", "reject")
    ]
    assert [one.key for one in choices(request()) if one.wants_text] == ["r"]
    question = Request("q", "question", "Which?", choices=("red", "blue"))
    assert [(one.key, one.text) for one in choices(question)] == [("1", "red"), ("2", "blue")]


def test_keys_are_not_about_a_request_that_was_not_seen_or_while_a_text_is_written() -> None:
    asking = Asking()
    asking.show(request())
    assert not asking.takes_keys(10.0, editor_is_empty=True)
    asking.seen(10.0)
    assert not asking.takes_keys(10.0 + SEEN_S_MIN / 2, editor_is_empty=True)
    assert asking.takes_keys(10.0 + SEEN_S_MIN, editor_is_empty=True)
    assert not asking.takes_keys(10.0 + SEEN_S_MIN, editor_is_empty=False)
    asking.show(request("r2"))
    assert not asking.takes_keys(20.0, editor_is_empty=True)


@given(keys=KEYS)
def test_only_the_letter_of_an_answer_and_enter_right_after_it_answer(keys: list[str]) -> None:
    asking = Asking()
    asking.show(request())
    asking.seen(0.0)
    written = ""
    before = ""
    for number, key in enumerate(keys):
        if not asking.takes_keys(100.0, editor_is_empty=not written):
            written += key if len(key) == 1 else ""
            if key == "ENTER" and asking.typing is None:
                written = ""
            elif key == "ESC":
                asking.cancel()
                written = ""
        elif key == "ENTER":
            answer = asking.confirm()
            if answer is not None:
                assert answer.key == before
        elif key == "ESC":
            asking.cancel()
        elif key == "OTHER":
            asking.show(request(f"other {number}"))
            asking.seen(0.0)
        else:
            written += asking.press(key)
        before = key


@given(
    first=st.sampled_from("yahnr"),
    # A blank after `r` begins the reason.
    second=st.sampled_from("yahnr") | st.characters(exclude_characters=" "),
)
def test_a_text_that_begins_with_a_letter_of_an_answer_stays_whole(first: str, second: str) -> None:
    asking = Asking()
    asking.show(request())
    asking.seen(0.0)
    written = asking.press(first) + asking.press(second)
    assert written == first + second
    assert asking.confirm() is None


@pytest.mark.parametrize(
    "one",
    [request(), QUESTION, request(always=(), always_here=""), Request("q", "question", "Which?")],
)
@given(steps=st.lists(st.sampled_from([-1, 1]), min_size=1), text=st.text("xzw. ", min_size=1))
def test_a_text_after_an_answer_chosen_by_an_arrow_stays_whole(
    one: Request, steps: list[int], text: str
) -> None:
    asking = Asking()
    asking.show(one)
    asking.seen(0.0)
    for step in steps:
        asking.move(step)
    assert asking.press(text[0]) == text[0]
    assert asking.chosen is None


def test_a_letter_after_an_arrow_chooses_its_own_answer() -> None:
    asking = Asking()
    asking.show(request())
    asking.seen(0.0)
    asking.move(1)
    assert asking.press("n") == ""
    assert asking.press("o") == "no"


def test_only_a_text_that_was_begun_while_the_question_was_on_the_screen_answers_it() -> None:
    asking = Asking()
    asking.key_came(editor_is_empty=True)
    asking.show(QUESTION)
    asking.key_came(editor_is_empty=False)
    assert not asking.takes_text, "it was begun before"
    asking.key_came(editor_is_empty=True)
    assert not asking.takes_text, "the terminal does not show the question yet"
    asking.seen(0.0)
    asking.key_came(editor_is_empty=False)
    assert not asking.takes_text
    asking.key_came(editor_is_empty=True)
    asking.key_came(editor_is_empty=False)
    assert asking.takes_text
    asking.show(Request("q2", "question", "Which?"))
    assert not asking.takes_text
    asking.show(request())
    asking.seen(0.0)
    asking.key_came(editor_is_empty=True)
    assert not asking.takes_text, "it asks for approval"


def test_what_was_chosen_for_a_request_answers_no_other_one() -> None:
    for keys in ("y", "r"):
        asking = Asking()
        asking.show(request())
        asking.seen(0.0)
        asking.press(keys)
        if keys == "r":
            assert asking.confirm() is None
            assert asking.typing is not None
        asking.show(request("r2"))
        assert (asking.chosen, asking.typing) == (None, None)
        assert asking.confirm() is None


def test_a_letter_for_a_request_that_was_answered_elsewhere_is_held_back_once() -> None:
    asking = Asking()
    asking.show(request())
    asking.show(None)
    assert not asking.is_late("yes")
    assert not asking.is_late("y"), "something else was sent since"
    asking.show(request("r2"))
    asking.show(None)
    assert asking.is_late("y")
    assert not asking.is_late("y")


def test_a_letter_after_an_answer_of_the_users_own_is_a_text() -> None:
    asking = Asking()
    asking.show(request())
    asking.answered()
    asking.show(None)
    assert not asking.is_late("y")


def test_a_blank_after_r_begins_the_reason() -> None:
    asking = Asking()
    asking.show(request())
    asking.seen(0.0)
    assert [asking.press(key) for key in "r "] == ["", ""]
    assert asking.typing is not None
    answer = asking.finish("too early")
    assert (answer.decision, answer.text) == ("reject", "too early")
