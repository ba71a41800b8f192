"""The doom loop against a plain oracle, and what makes two calls the same."""

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.turn.decide import is_doom_loop, recent_calls
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import ToolCall, UserMessage


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


def test_only_calls_since_the_user_last_spoke_count() -> None:
    said = UserMessage(ItemId("u"), "go", "start")
    assert recent_calls([called("a"), said, called("b"), called("c")]) == [
        called("b"),
        called("c"),
    ]
