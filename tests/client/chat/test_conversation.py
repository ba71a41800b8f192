"""The lines about events that are no items."""

from support.event_bodies import CONTEXT
from tiller_client.chat.conversation import Conversation
from tiller_client.chat.terminal.look import Look
from tiller_client.rendering.style import Theme
from tiller_protocol.events import (
    AnyBody,
    Event,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    PlanUpdated,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, PlanEntry, Reasoning, Request, ToolCall
from tiller_protocol.snapshot import Mark, Snapshot
from tiller_protocol.turns import OpenTurn


def test_of_a_plan_that_was_shown_only_what_changed_is_shown_again() -> None:
    conversation = Conversation(Snapshot("s"), Look(80, Theme("none")))

    def shown(*plan: PlanEntry) -> list[str]:
        seq = conversation.snapshot.seq + 1
        lines = conversation.take(Event(seq, "s", 0.0, PlanUpdated(plan)))
        return [line.strip() for line in lines if line]

    read, write = PlanEntry("read", "in_progress"), PlanEntry("write", "pending")
    assert shown(read, write) == ["◐ read", "☐ write"]
    assert shown(PlanEntry("read", "completed"), write) == ["☑ read"]
    assert shown(PlanEntry("read", "completed"), write) == []
    assert shown(write) == ["☐ write"]


def test_a_session_that_is_opened_in_the_middle_of_a_plan_shows_the_plan() -> None:
    def opened(*plan: PlanEntry) -> tuple[Conversation, list[str]]:
        conversation = Conversation(Snapshot("s", plan=plan), Look(80, Theme("none")))
        return conversation, [line.strip() for line in conversation.begin() if line]

    read, write = PlanEntry("read", "in_progress"), PlanEntry("write", "pending")
    conversation, lines = opened(read, write)
    assert lines == ["◐ read", "☐ write"]
    read = PlanEntry("read", "completed")
    assert [*filter(None, conversation.take(Event(1, "s", 0.0, PlanUpdated((read, write)))))] == [
        "  ☑ read"
    ]
    assert opened(read)[1] == []  # a plan that is done is history


def test_a_session_that_is_opened_after_a_turn_says_that_it_completed() -> None:
    turn = Mark("t", 1, 0, outcome="completed", duration_s=1.5)
    snapshot = Snapshot("s", marks=[turn], turns=1, branch="main")
    conversation = Conversation(snapshot, Look(80, Theme("none")))
    assert conversation.begin() == ["", "■ completed · main · 1.5 s"]
    turn = Mark("t", 1, 0)
    running = Snapshot("s", marks=[turn], turns=1, status="busy")
    assert Conversation(running, Look(80, Theme("none"))).begin() == []


def test_a_question_is_shown_with_its_answer_whenever_the_session_is_opened() -> None:
    arguments = '{"text": "Keep `a`, **or** b?", "choices": ["a", "b"]}'
    call = ToolCall(ItemId("c"), CallId("c"), "question", arguments, "completed", output="b")
    snapshot = Snapshot("s", items=[call])
    lines = Conversation(snapshot, Look(80, Theme("none"))).begin()
    assert lines == ["", "● question Keep a, or b? ok", "    b"]


def test_a_call_that_the_open_request_is_about_is_not_shown_a_second_time() -> None:
    call = ToolCall(ItemId("c"), CallId("c"), "bash", '{"command": "make"}', "pending")
    snapshot = Snapshot("s", items=[call], open_items=["c"], status="waiting")
    snapshot.turn = OpenTurn("t", 0.0, CONTEXT)
    conversation = Conversation(snapshot, Look(80, Theme("none")))
    assert conversation.live(1.0) == ["", "○ bash make pending"]
    snapshot.requests = [Request("r", "approval", "Run make", "c")]
    assert conversation.live(1.0) == []


def test_an_answer_streams_although_the_reasoning_before_it_is_completed_only_with_it() -> None:
    conversation = Conversation(Snapshot("s"), Look(80, Theme("none")))

    def shown(time: float, body: AnyBody) -> list[str]:
        seq = conversation.snapshot.seq + 1
        lines = conversation.take(Event(seq, "s", time, body))
        return [line for line in [*lines, *conversation.advance()] if line]

    reasoning = Reasoning(ItemId("r"), "hm", "streaming")
    message = AssistantMessage(ItemId("a"), "", "streaming")
    assert shown(1.0, ItemStarted(reasoning)) == []
    assert shown(3.0, ItemStarted(message)) == ["∴ Thought for 2.0 s"]
    assert shown(4.0, ItemDelta("a", "text", "One.\n\nTwo\n")) == ["One."]
    assert shown(9.0, ItemCompleted(Reasoning(ItemId("r"), "hm", "completed"))) == []
