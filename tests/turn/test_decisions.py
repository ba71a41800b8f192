"""The doom loop against a plain oracle, what makes two calls the same, and what is answered."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tiller_daemon.turn.decisions import is_answered, is_doom_loop, recent_calls
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, Notice, Patch, ToolCall, UserMessage


def called(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(ItemId("i"), CallId("c"), name, arguments, "completed")


@given(st.text("abc", min_size=1, max_size=14))
def test_it_is_a_loop_when_the_end_is_three_times_the_same_up_to_four_calls(names: str) -> None:
    expected = any(names.endswith(names[-length:] * 3) for length in range(1, 5))
    assert is_doom_loop([called(n) for n in names[:-1]], called(names[-1])) == expected


def test_the_order_of_keys_and_the_case_of_the_name_do_not_count() -> None:
    before = [called("read", '{"a": 1, "b": 2}'), called("Read", '{"b":2,"a":1}')]
    assert is_doom_loop(before, called("read", '{"a":1,"b":2}'))
    assert not is_doom_loop(before, called("read", '{"a":1,"b":3}'))


def test_broken_arguments_are_compared_as_they_are() -> None:
    assert is_doom_loop([called("x", "{oops")] * 2, called("x", "{oops"))


def test_a_whole_message_of_the_model_is_an_answer_and_nothing_else_is() -> None:
    said = UserMessage(ItemId("u"), "go", "start")
    whole = AssistantMessage(ItemId("m"), "done", "completed")
    own = structs.replace(called("bash"), by_user=True)
    aside = (Patch(ItemId("p"), ()), Notice(ItemId("n"), "hook", "by the way"), own)
    assert is_answered(())
    assert is_answered((said, whole, *aside))
    for last in (
        said,
        called("a"),
        structs.replace(whole, state="interrupted"),
        *((whole, one) for one in (said, called("a"))),
    ):
        items = last if isinstance(last, tuple) else (said, last)
        assert not is_answered((*items, *aside))
    voided = (structs.replace(whole, state="discarded"), structs.replace(whole, text=""))
    assert not is_answered((said, *voided))
    assert is_answered((said, whole, *voided, structs.replace(called("a"), discarded=True)))


def test_only_calls_since_the_user_last_spoke_count() -> None:
    said = UserMessage(ItemId("u"), "go", "start")
    assert recent_calls([called("a"), said, called("b"), called("c")]) == [
        called("b"),
        called("c"),
    ]
