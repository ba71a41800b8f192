"""What of history goes into a request: a result for every call, nothing discarded (G4)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.narrowing import of_kind
from tiller_daemon.turn.history import ABORTED_OUTPUT, History, for_request
from tiller_daemon.turn.tokens import PRUNED_OUTPUT, TokenEstimator, TokenMeter
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Notice,
    Reasoning,
    ToolCall,
    UserMessage,
)
from tiller_protocol.turns import CUT_OFF

SAID = UserMessage(ItemId("u"), "go", "start")


def call(name: str, **fields: Any) -> ToolCall:
    state = fields.pop("state", "completed")
    return ToolCall(ItemId(name), CallId(name), "look", "{}", state, **fields)


def test_a_call_without_a_result_gets_one() -> None:
    pending, running = call("a", state="pending"), call("b", state="running", output="so far")
    sent = History([SAID, pending, running]).for_request()
    assert [(item.state, item.output) for item in sent[1:] if isinstance(item, ToolCall)] == [
        ("error", ABORTED_OUTPUT),
        ("error", "so far"),
    ]


def test_nothing_discarded_or_empty_is_sent() -> None:
    dropped = AssistantMessage(ItemId("d"), "no", "discarded")
    empty = AssistantMessage(ItemId("e"), "", "completed")
    assert History([SAID, dropped, empty, call("c", discarded=True)]).for_request() == (SAID,)


def reply(name: str, text: str) -> AssistantMessage:
    return AssistantMessage(ItemId(name), text, "completed")


def test_a_message_and_the_rest_of_it_are_sent_as_one() -> None:
    asked = Notice(ItemId("n"), CUT_OFF, "go on")
    thought = Reasoning(ItemId("r"), "hm", "completed")
    history = History([SAID, reply("a", "It is the me"), asked, thought, reply("b", "thod.")])
    assert history.for_request() == (SAID, reply("a", "It is the method."))
    history.add(asked, reply("c", " And"))
    assert history.for_request() == (SAID, reply("a", "It is the method. And"))


def test_messages_with_reasoning_that_goes_back_stay_apart() -> None:
    asked = Notice(ItemId("n"), CUT_OFF, "go on")
    sealed = Reasoning(ItemId("r"), "", "completed", "sealed")
    items = (SAID, reply("a", "It is the me"), asked, sealed, reply("b", "thod."))
    assert History(items).for_request() == items
    other = Notice(ItemId("n"), "interrupted", "by the user")
    apart = (SAID, reply("a", "It is the me"), other, reply("b", "thod."))
    assert History(apart).for_request() == apart


def test_a_compaction_stands_for_all_before_it_but_the_words_it_keeps() -> None:
    later = call("z")
    summary = Compaction(ItemId("k"), "done so far", ItemId("a"), ("u",))
    first = UserMessage(ItemId("old"), "before", "start")
    history = History([first, SAID, call("a"), summary, later])
    assert history.for_request() == (SAID, summary, later)


def test_what_is_sent_follows_every_change() -> None:
    history = History([SAID, call("a", state="running")])
    assert of_kind(ToolCall, history.for_request()[1]).output == ABORTED_OUTPUT
    history.replace(call("a", output="found"))
    assert of_kind(ToolCall, history.for_request()[1]).output == "found"
    history.prune(["a"])
    assert of_kind(ToolCall, history.for_request()[1]).output == PRUNED_OUTPUT
    history.add(SAID)
    assert history.for_request()[-1] == SAID


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["say", "call", "end", "prune", "compact", "answer", "cut", "think", "ask"]
            ),
            st.integers(),
        )
    )
)
def test_what_is_sent_of_a_history_that_grows_is_that_of_one_that_is_whole(
    deeds: list[tuple[str, int]],
) -> None:
    """Also its tokens: neither is made anew for each request."""
    history, meter = History([SAID]), TokenMeter(0, TokenEstimator())
    for number, (deed, chosen) in enumerate(deeds):
        calls = [item.id for item in history.items if isinstance(item, ToolCall)]
        match deed:
            case "say":
                history.add(UserMessage(ItemId(f"{number}"), "go on", "steer"))
            case "call":
                history.add(call(f"{number}", state="pending"))
            case "end" if calls:
                history.replace(call(calls[chosen % len(calls)], output="done" * number))
            case "prune" if calls:
                history.prune([calls[chosen % len(calls)]])
            case "compact":
                last = ItemId(history.items[-1].id)
                history.add(Compaction(ItemId(f"{number}"), "so far", last, ("u",)))
            case "answer":
                history.add(AssistantMessage(ItemId(f"{number}"), "answer", "completed"))
            case "cut":
                history.add(Notice(ItemId(f"{number}"), CUT_OFF, "go on"))
            case "think":
                opaque = "sealed" * (chosen % 2)
                history.add(Reasoning(ItemId(f"{number}"), "hm", "completed", opaque))
            case _:
                assert history.sent_before(chosen % (len(history.items) + 1)) == for_request(
                    history.items[: chosen % (len(history.items) + 1)], history.pruned
                )
                whole = for_request(history.items, history.pruned)
                assert history.for_request() == whole
                fresh = TokenMeter(0, TokenEstimator())
                assert meter.tokens(history.items, history.for_request) == fresh.tokens(
                    history.items, lambda whole=whole: whole
                )
