"""What an item does not say itself: how long it took, what ran meanwhile, who works for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiller_protocol.events import Event, ItemCompleted, ItemStarted
from tiller_protocol.items import Item, Reasoning, ToolCall, UserMessage

BEHIND_MAX = 500
"""Items that are looked at for calls of the same response; a response has fewer."""


@dataclass
class Durations:
    """How long the model thought, by the times of events."""

    since: dict[str, float] = field(default_factory=dict[str, float])
    """Unix seconds when the reasoning began, by its item."""
    took_s: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds, by the item."""

    def note(self, event: Event) -> None:
        """Take note of the next event."""
        match event.body:
            case ItemStarted(item=Reasoning() as item):
                self.since[item.id] = event.time
            case ItemCompleted(item=Reasoning() as item) if item.id in self.since:
                self.took_s[item.id] = event.time - self.since[item.id]
            case _:
                pass


@dataclass(frozen=True)
class Facts:
    """What is known around the items of one session."""

    items: Sequence[Item] = ()
    """Its history."""
    now: float | None = None
    """Unix seconds; `None`: what still runs is shown as it was left."""
    durations: Durations = field(default_factory=Durations)
    children: Mapping[str, Sequence[Item]] = field(default_factory=dict[str, Sequence[Item]])
    """Histories of sub-agents, by their session, as far as they are followed."""

    def took_s(self, item_id: str) -> float | None:
        """Seconds that reasoning has taken, so far if it goes on; `None` if nobody has watched."""
        if (took := self.durations.took_s.get(item_id)) is not None:
            return took
        since = self.durations.since.get(item_id)
        return None if since is None or self.now is None else max(0.0, self.now - since)

    def span(self, call: ToolCall) -> tuple[float, float] | None:
        """When a call began and ended, or until when it has run; `None` if it never began."""
        if call.started_at is None:
            return None
        end = call.started_at if self.now is None else self.now
        if call.duration_s is not None:
            end = call.started_at + call.duration_s
        elif call.state in ("completed", "error"):
            return None  # nobody knows when it ended
        return call.started_at, max(end, call.started_at)

    def response(self, call: ToolCall) -> list[ToolCall]:
        """The calls of the same response that have begun."""
        found: list[ToolCall] = []
        for item in self.items[: -BEHIND_MAX - 1 : -1]:
            if isinstance(item, UserMessage) and found:
                break
            if isinstance(item, ToolCall) and item.started_at is not None:
                if item.ordinal == call.ordinal and item.by_user == call.by_user:
                    found.append(item)
                elif found:
                    break
        return found[::-1]
