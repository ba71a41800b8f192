"""What the queue of a session must be: a plain model, compared with the log event by event.

The model knows the ops that were sent and the rules of delivery, and nothing of the daemon. Input
is accepted, waits, enters history once, in order: steering before the next request, follow-ups when
the turn would rest, one at a time or all. What a turn leaves waits, and says so, until somebody
goes on: then the oldest comes first, unless another one is to start.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tiller_protocol.events import (
    AnyBody,
    Event,
    HistoryReverted,
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    SessionConfigured,
    SessionCreated,
    StatusChanged,
    StepEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.items import Delivery, Item, Notice, QueuedInput, ToolCall, UserMessage
from tiller_protocol.ops import AnyOp, QueueEdit, TurnContinue, UserInput
from tiller_protocol.snapshot import Snapshot


class Waiting(NamedTuple):
    """An input that waits."""

    id: str
    text: str
    delivery: Delivery


@dataclass
class Turn:
    """The turn that runs. One that was begun by input is steerable and asks a model."""

    steerable: bool
    all_follow_ups: bool
    step_open: bool = False
    steps: int = 0
    calls: int = 0
    compacted: bool = False
    paused: bool = False


@dataclass
class Mailbox:
    """The model. `delivered` and `removed` are by input id, in the order in which it happened.

    `history` has the messages that the next request has; a fork's begins with those it shares.
    `marks` say how many there were when a turn or a step of it began.
    """

    ops: Mapping[str, AnyOp]
    queue: list[Waiting] = field(default_factory=list)
    delivered: list[Waiting] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    marks: dict[tuple[str, int], int] = field(default_factory=dict)
    reverted: list[tuple[int, list[str]]] = field(default_factory=list)
    turn: Turn | None = None
    all_follow_ups: bool = False

    def see(self, events: Sequence[Event]) -> None:
        """Take the events of one commit: afterwards each input is in the queue or in history."""
        at = 0
        while at < len(events):
            at += 1 + self._take(events[at], events[at + 1 :])
        if not self.turn:
            waiting = [given for given in self.queue if given.delivery == "steer"]
            assert not waiting, f"steering was not handed back: {waiting}"

    def _take(self, event: Event, rest: Sequence[Event]) -> int:
        """Take one event; returns how many of the `rest` belong to it."""
        match event.body:
            case SessionCreated(settings=settings) | SessionConfigured(settings=settings):
                self.all_follow_ups = settings.follow_ups == "all"
            case TurnStarted():
                return self._begin(event, rest)
            case TurnEnded(outcome=outcome, queued=queued):
                assert queued == len(self.queue), f"{len(self.queue)} wait, {queued} are told"
                left = self.turn and self.turn.steerable and self.queue
                assert not (outcome == "completed" and left), f"left at the end: {self.queue}"
                self.turn = None
            case QueueChanged():
                return self._change(event, event.body, rest)
            case ItemStarted(item=UserMessage()):
                self._say_without_reply(event)
            case HistoryReverted(undone=True):
                position, messages = self.reverted.pop()
                self.history[position:position] = messages
            case HistoryReverted(before_turn=turn_id, before_step=step):
                position = self.marks[turn_id or "", step]
                self.reverted.append((position, self.history[position:]))
                del self.history[position:]
            case body:
                self._note(body, event.turn_id or "")
        return 0

    def _begin(self, event: Event, rest: Sequence[Event]) -> int:
        op = self.ops[event.submission_id or ""]
        self.marks[event.turn_id or "", 0] = len(self.history)
        self.reverted.clear()
        by_input = isinstance(op, UserInput | TurnContinue | QueueEdit)
        self.turn = Turn(by_input, self.all_follow_ups)
        if not by_input:
            return 0
        first = self._first(op)
        place = next(n for n, one in enumerate(rest) if isinstance(one.body, ItemStarted))
        changes = [one.body for one in rest[:place] if isinstance(one.body, QueueChanged)]
        if first is None:
            assert not changes, "the queue changed although nothing waited"
            begins = rest[place].body
            assert isinstance(begins, ItemStarted)
            assert isinstance(begins.item, Notice), f"nobody has said {begins.item}"
            return 0
        self._expect_queue(event, changes[0].queue if changes else None)
        self._expect_message(rest[place:], first._replace(delivery="start"), event)
        return place + 2

    def _first(self, op: AnyOp) -> Waiting | None:
        """What a turn begins with: None goes on without a message."""
        match op:
            case UserInput():
                self.queue.append(Waiting("", op.text, "queue"))
                return self.queue.pop(-1 if op.delivery == "start" else 0)
            case QueueEdit(action="promote"):
                return self.queue.pop(self._place(op.input_id))
            case TurnContinue():
                return self.queue.pop(0) if self.queue else None
            case _:
                raise AssertionError(f"{op} has begun a turn")

    def _place(self, input_id: str) -> int:
        return next(n for n, given in enumerate(self.queue) if given.id == input_id)

    def _change(self, event: Event, body: QueueChanged, rest: Sequence[Event]) -> int:
        taken: list[Waiting] = []
        if event.submission_id is not None:
            self._obey(self.ops[event.submission_id])
        elif event.turn_id is not None:
            taken = self._deliver()
        else:
            assert body.waits, f"event {event.seq} does not tell that {body.queue} waits"
            self.queue = [given._replace(delivery="queue") for given in self.queue]
            ends = self.turn is None or any(isinstance(one.body, TurnEnded) for one in rest)
            assert ends, f"handed back while a turn goes on: event {event.seq}"
        assert body.waits or self.turn or not body.queue, f"event {event.seq}: who takes it?"
        assert not (body.waits and taken), f"event {event.seq}: a turn takes from it"
        self._expect_queue(event, body.queue)
        for number, given in enumerate(taken):
            self._expect_message(rest[2 * number :], given, event)
        return 2 * len(taken)

    def _obey(self, op: AnyOp) -> None:
        """Change the queue as an op asks."""
        if isinstance(op, UserInput):
            assert self.turn, "queued while no turn runs"
            assert self.turn.steerable, "input was taken by a turn that takes none"
            self.queue.append(Waiting("", op.text, "queue" if op.delivery == "queue" else "steer"))
            return
        assert isinstance(op, QueueEdit), op
        place = self._place(op.input_id)
        given = self.queue[place]
        match op.action:
            case "edit":
                self.queue[place] = given._replace(text=op.text)
            case "remove":
                self.removed.append(self.queue.pop(place).id)
            case "move":
                self.queue.insert(op.position, self.queue.pop(place))
            case "promote":
                assert self.turn, "at rest it begins a turn"
                assert self.turn.steerable, "it steers a turn that takes none"
                self.queue.insert(0, self.queue.pop(place)._replace(delivery="steer"))

    def _deliver(self) -> list[Waiting]:
        """What the turn must take now: all steering, else what follows."""
        assert self.turn
        assert not self.turn.step_open, "input was taken within a step"
        assert not self.turn.paused, "input was taken between the parts of one answer"
        taken = [given for given in self.queue if given.delivery == "steer"]
        if not taken:
            assert self.turn.steps, "a follow-up was taken before the first request"
            assert not self.turn.calls, "a follow-up was taken although results were not sent yet"
            taken = self.queue[: None if self.turn.all_follow_ups else 1]
        self.queue = [given for given in self.queue if given not in taken]
        return taken

    def _expect_queue(self, event: Event, shown: Sequence[QueuedInput] | None) -> None:
        if shown is None:
            return
        there = [Waiting(given.id, given.text, given.delivery) for given in shown]
        if event.submission_id is not None and len(there) == len(self.queue):
            self.queue = [
                given if given.id else self._name(given, one.id, event)
                for given, one in zip(self.queue, there, strict=True)
            ]
        assert there == self.queue, f"event {event.seq}: the queue must be {self.queue}, is {there}"

    def _name(self, given: Waiting, input_id: str, event: Event) -> Waiting:
        assert input_id not in self.ids.values(), f"two inputs are called {input_id}"
        self.ids[event.submission_id or ""] = input_id
        return given._replace(id=input_id)

    def _expect_message(self, rest: Sequence[Event], given: Waiting, cause: Event) -> None:
        """The message of `given` must come next, whole and in the same commit."""
        where = f"after event {cause.seq}, in its commit, must come {given}"
        bodies = [one.body for one in rest[:2]]
        assert len(bodies) == 2, where
        started, completed = bodies
        assert isinstance(started, ItemStarted), where
        assert isinstance(completed, ItemCompleted), where
        message = started.item
        assert isinstance(message, UserMessage), where
        assert completed.item == message, where
        if not given.id:
            given = self._name(given, message.id, cause)
        assert Waiting(message.id, message.text, message.delivery) == given, where
        self.delivered.append(given)
        self.history.append(given.id)

    def _say_without_reply(self, event: Event) -> None:
        op = self.ops.get(event.submission_id or "")
        says = isinstance(op, UserInput) and op.no_reply and self.turn is None
        assert says, f"event {event.seq}: a message that nobody has sent, or sent before"
        assert isinstance(event.body, ItemStarted)
        assert isinstance(op, UserInput)
        self.delivered.append(self._name(Waiting("", op.text, "start"), event.body.item.id, event))
        self.history.append(event.body.item.id)

    def _note(self, body: AnyBody, turn_id: str) -> None:
        turn = self.turn
        if turn is None:
            return
        match body:
            case StepStarted(step=step):
                self.marks[turn_id, step] = len(self.history)
                steering = [given for given in self.queue if given.delivery == "steer"]
                late = turn.compacted or turn.paused
                assert late or not steering, f"a request without {steering}"
                turn.step_open, turn.compacted, turn.calls, turn.paused = True, False, 0, False
                turn.steps += 1
            case StepEnded(finish_reason=reason):
                turn.step_open = turn.compacted = False
                turn.paused = reason == "paused"
            case ItemCompleted(item=ToolCall(discarded=False, by_provider=False)):
                turn.calls += 1
            case StatusChanged(cause="compacting"):
                turn.compacted = True
            case _:
                pass


def mailbox_of(
    log: Sequence[Event], commits: Sequence[int], ops: Mapping[str, AnyOp], shared: Snapshot
) -> Mailbox:
    """The model after all of a log, whose batches end at `commits`; raises `AssertionError`.

    `shared` is what a fork has of its parent.
    """
    mailbox = Mailbox(ops, history=messages_of(shared.items))
    for mark in shared.marks:
        mailbox.marks[mark.turn_id, mark.step] = len(messages_of(shared.items[: mark.items]))
    before = 0
    for head in commits:
        mailbox.see(log[before:head])
        before = head
    return mailbox


def messages_of(items: Iterable[Item]) -> list[str]:
    """The ids of what people said."""
    return [item.id for item in items if isinstance(item, UserMessage)]
