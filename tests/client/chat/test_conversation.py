"""The lines about events that are no items."""

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
from tiller_protocol.ids import ItemId
from tiller_protocol.items import AssistantMessage, PlanEntry, Reasoning
from tiller_protocol.snapshot import Snapshot


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
