"""Facts that an item does not contain itself: durations, parallel calls, sub-agents' histories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiller_protocol.events import Event, ItemCompleted, ItemStarted
from tiller_protocol.items import Item, Reasoning, ToolCall, UserMessage

BEHIND_MAX = 500
"""Number of items to search for calls of the same response; a response has fewer items."""


@dataclass
class Durations:
    """How long the model has reasoned, by the times of events."""

    since: dict[str, float] = field(default_factory=dict[str, float])
    """The start of reasoning that goes on, in Unix seconds, by the id of its item."""
    took_s: dict[str, float] = field(default_factory=dict[str, float])
    """The duration of reasoning in seconds, by the id of its item."""

    def note(self, event: Event) -> None:
        """Note the next event. Reasoning ends at the latest when the next item starts."""
        match event.body:
            case ItemStarted(item):
                self._end(event.time)
                if isinstance(item, Reasoning):
                    self.since[item.id] = event.time
            case ItemCompleted(item=Reasoning()):
                self._end(event.time)
            case _:
                pass

    def _end(self, time: float) -> None:
        for item_id, since in self.since.items():
            self.took_s.setdefault(item_id, time - since)
        self.since.clear()


@dataclass(frozen=True)
class Facts:
    """Facts about the items of one session."""

    items: Sequence[Item] = ()
    """The session's history."""
    now: float | None = None
    """The present time in Unix seconds; `None`: running calls are shown in their last state."""
    durations: Durations = field(default_factory=Durations)
    """How long the model has reasoned."""
    children: Mapping[str, Sequence[Item]] = field(default_factory=dict[str, Sequence[Item]])
    """The histories of the sub-agents that are followed, by session id."""
    see_all: str = ""
    """Written after the number of lines left out: how to see them, where no key shows them."""

    def took_s(self, item_id: str) -> float | None:
        """The duration of reasoning in seconds, up to now if it continues; `None` if unknown."""
        if (took := self.durations.took_s.get(item_id)) is not None:
            return took
        since = self.durations.since.get(item_id)
        return None if since is None or self.now is None else max(0.0, self.now - since)

    def span(self, call: ToolCall) -> tuple[float, float] | None:
        """The start of a call, and its end or the present time; `None` if these are unknown."""
        if call.started_at is None:
            return None
        end = call.started_at if self.now is None else self.now
        if call.duration_s is not None:
            end = call.started_at + call.duration_s
        elif call.state in ("completed", "error"):
            return None  # the end is unknown
        return call.started_at, max(end, call.started_at)

    def response(self, call: ToolCall) -> list[ToolCall]:
        """The calls of the call's response that have begun."""
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
