"""The lines about events that are no items."""

from tiller_client.chat.conversation import Conversation
from tiller_client.chat.terminal.look import Look
from tiller_client.rendering.style import Theme
from tiller_protocol.events import Event, PlanUpdated
from tiller_protocol.items import PlanEntry
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
