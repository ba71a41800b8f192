"""Random sessions: lists of events that obey the life cycle by construction."""

import random
from dataclasses import dataclass, field

from tiller_protocol.events import (
    AnyBody,
    Channel,
    Event,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    QueueChanged,
    RequestOpened,
    RequestResolved,
    SessionCreated,
    SessionTitled,
    StatusChanged,
    StepEnded,
    StepStarted,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import (
    AssistantMessage,
    Item,
    Reasoning,
    Request,
    ToolCall,
    Usage,
    UserMessage,
)
from tiller_protocol.settings import Settings, TurnContextShown

CONTEXT = TurnContextShown("/w", "default", "p/m", "", "ask", 9, (), 1000)
USAGE = Usage(3, 1, 2, 0)


@dataclass
class Teller:
    """Generates one session, event by event."""

    choose: random.Random
    events: list[Event] = field(default_factory=list[Event])
    open_items: list[Item] = field(default_factory=list[Item])
    open_requests: list[str] = field(default_factory=list[str])
    turn_id: str | None = None
    step: int = 0
    step_open: bool = False
    names: int = 0

    def tell(self, body: AnyBody) -> None:
        seq = len(self.events) + 1
        self.events.append(Event(seq, "s", float(seq), body, self.turn_id))

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def go_on(self) -> None:
        """Add one random legal event."""
        moves = [self.say_aside]
        if self.turn_id is None:
            moves += [self.start_turn, self.start_item]
        else:
            moves += [self.start_item, self.open_request]
            if not self.open_items:
                moves += [self.end_step] if self.step_open else [self.start_step, self.end_turn]
        if self.open_items:
            moves += [self.touch_item, self.touch_item, self.complete_item]
        if self.open_requests:
            moves += [self.resolve_request]
        self.choose.choice(moves)()

    def say_aside(self) -> None:
        asides = [QueueChanged(()), SessionTitled("t"), StatusChanged("busy")]
        self.tell(self.choose.choice([*asides, WarningRaised("code", "message")]))

    def start_turn(self) -> None:
        if self.open_items:
            return
        self.turn_id, self.step = self.name("turn"), 0
        self.tell(TurnStarted(CONTEXT))

    def end_turn(self) -> None:
        while self.open_requests:
            self.resolve_request()
        self.tell(TurnEnded("completed", self.step, USAGE, 1.0))
        self.turn_id = None

    def start_step(self) -> None:
        self.step, self.step_open = self.step + 1, True
        self.tell(StepStarted(self.step))

    def end_step(self) -> None:
        self.step_open = False
        self.tell(StepEnded(self.step, "stop", USAGE, 0.5))

    def start_item(self) -> None:
        name = ItemId(self.name("item"))
        item: Item = self.choose.choice(
            [
                UserMessage(name, "hi", "start"),
                AssistantMessage(name, "", "streaming"),
                Reasoning(name, "", "streaming"),
                ToolCall(name, CallId("call"), "bash", "", "pending"),
            ]
        )
        self.open_items.append(item)
        self.tell(ItemStarted(item))

    def touch_item(self) -> None:
        item = self.choose.choice(self.open_items)
        channels: tuple[Channel, ...] = ("text", "arguments", "output")
        channel = self.choose.choice(channels)
        if isinstance(item, ToolCall) and self.choose.random() < 0.5:
            self.tell(ToolCallUpdated(item.id, "running"))
        else:
            self.tell(ItemDelta(item.id, channel, "x"))

    def complete_item(self) -> None:
        item = self.open_items.pop(self.choose.randrange(len(self.open_items)))
        self.tell(ItemCompleted(item))

    def open_request(self) -> None:
        self.open_requests.append(self.name("request"))
        self.tell(RequestOpened(Request(self.open_requests[-1], "approval", "may I?")))

    def resolve_request(self) -> None:
        self.tell(RequestResolved(self.open_requests.pop(), "once", "tests"))


def tell_session(seed: int, length: int) -> list[Event]:
    """A session of about `length` events; deterministic for each seed."""
    teller = Teller(random.Random(seed))
    teller.tell(SessionCreated("/w", Settings()))
    while len(teller.events) < length:
        teller.go_on()
    return teller.events
