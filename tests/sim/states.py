"""In which state a turn was when it was ended from outside, read from how it was closed."""

from collections import Counter
from collections.abc import Iterator, Sequence

from sim.player import Seen
from tiller_daemon.session.turns.title import TITLE_S_MAX
from tiller_protocol.events import (
    Event,
    ItemCompleted,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    StepEnded,
    StepStarted,
    TurnEnded,
)
from tiller_protocol.items import AssistantMessage, Reasoning, ToolCall

STATES = (
    "streaming", "before first token", "one tool", "several tools", "hosted tool", "approval",
    "question", "retry wait", "compaction", "title", "own command",
)  # fmt: skip
"""Every state in which a turn can be interrupted; `title` is that of an earlier one, on its way."""


def interrupted_states(seen: Seen, *, by_user: bool) -> Counter[str]:
    """How many turns were interrupted in each state: `by_user`, or else by the daemon's end."""
    counted: Counter[str] = Counter()
    for session_id, session in seen.sessions.items():
        for turn in turns_of(session.log):
            ended = turn[-1].body
            if not isinstance(ended, TurnEnded) or ended.outcome != "interrupted":
                continue
            if (ended.error is None) != by_user:
                continue
            counted.update(set(_states_of(turn)))
            counted["title"] += any(
                request.purpose == "title"
                and request.session_id == session_id
                and time - TITLE_S_MAX <= turn[-1].time <= time + 0.001
                for request, time in seen.cut
            )
    return counted


def turns_of(log: Sequence[Event]) -> Iterator[list[Event]]:
    """The events of each turn, from `turn_started` to `turn_ended`."""
    turns: dict[str, list[Event]] = {}
    for event in log:
        if event.turn_id is not None:
            turns.setdefault(event.turn_id, []).append(event)
    yield from turns.values()


def _states_of(turn: Sequence[Event]) -> Iterator[str]:
    opened = [e.body.request for e in turn if isinstance(e.body, RequestOpened)]
    kinds = {request.id: request.kind for request in opened}
    running = 0
    for event in turn:
        match event.body:
            case RequestResolved(request_id=request_id, resolution="cancelled"):
                yield kinds[request_id]
            case ItemCompleted(item=AssistantMessage(state="interrupted")):
                yield "streaming"
            case ItemCompleted(item=Reasoning(state="interrupted")):
                yield "streaming"
            case ItemCompleted(item=ToolCall(error_kind="aborted" | "lost") as call):
                if call.by_user:
                    yield "own command"
                elif call.by_provider:
                    yield "hosted tool"
                elif call.started_at is not None:
                    running += 1
                else:
                    yield "call not begun"
            case _:
                pass
    if running:
        yield "one tool" if running == 1 else "several tools"
    yield from _waited_for(turn)


def _waited_for(turn: Sequence[Event]) -> Iterator[str]:
    """What the turn waited for without an item: an attempt, a summary, the first token."""
    status, step_open, items = StatusChanged("busy"), False, 0
    for event in turn:
        match event.body:
            case StatusChanged() as body:
                status = body
            case StepStarted():
                step_open, items = True, 0
            case ItemStarted():
                items += 1
            case StepEnded(finish_reason=reason):
                step_open = reason == "interrupted"
            case _:
                pass
    if status.status == "retry":
        yield "retry wait"
    elif status.cause == "compacting":
        yield "compaction"
    elif step_open and items == 1:  # the notice of the interrupt
        yield "before first token"
