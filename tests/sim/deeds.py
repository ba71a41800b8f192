"""What a frontend sends for each kind of action. Pure: what it saw comes in, the op goes out."""

from collections.abc import Sequence

from sim.program import overrides_of
from tiller_protocol.items import Decision, QueuedInput
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Compact,
    Interrupt,
    QueueEdit,
    Revert,
    SessionArchive,
    SessionConfigure,
    SessionFork,
    SessionGet,
    SessionMarkSeen,
    Shell,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.settings import Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot

LOOKS_FIRST = frozenset(
    {
        "right_steer",
        "right_interrupt",
        "once",
        "always",
        "always_here",
        "reject",
        "edit",
        "remove",
        "promote",
    }
    | {"move", "fork", "revert"}
)
"""What is about something that there is, so that the frontend looks at the session before."""

NEEDS_REST = frozenset({"compact", "shell", "revert", "unrevert", "no_reply"})
"""What a turn that runs refuses, or takes otherwise: every second frontend waits for its end."""

STALE = QueuedInput("gone", "", "queue")
"""What is edited when nothing is queued."""


def op_of(kind: str, session_id: str, number: int, name: str) -> AnyOp:
    """The op of a kind that needs no look. `name` makes its text one of a kind."""
    words = f"input {name}"
    match kind:
        case "auto" | "steer" | "queue" | "start":
            return UserInput(session_id, words, delivery=kind)
        case "no_reply":
            return UserInput(session_id, words, no_reply=True)
        case "limited":
            return UserInput(session_id, words, overrides=overrides_of(number))
        case "wrong_steer":
            return UserInput(session_id, words, delivery="steer", expected_turn_id="wrong")
        case "interrupt":
            return Interrupt(session_id)
        case "wrong_interrupt":
            return Interrupt(session_id, "wrong")
        case "continue":
            return TurnContinue(session_id, _choices(number))
        case "compact":
            return Compact(session_id)
        case "shell":
            return Shell(session_id, f"{number / 4} {'fail' if number == 7 else words}")
        case "configure":
            return SessionConfigure(session_id, _settings(number))
        case "unrevert":
            return Unrevert(session_id)
        case "archive":
            return SessionArchive(session_id, archived=bool(number % 2))
        case "seen":
            return SessionMarkSeen(session_id, until=number * 25)
        case _:
            return SessionGet(session_id)


def op_after_look(kind: str, snapshot: Snapshot, number: int, name: str) -> AnyOp | None:
    """The op of a kind in `LOOKS_FIRST`, or None when there is nothing to do it to."""
    session_id = snapshot.session_id
    turn_id = snapshot.turn.turn_id if snapshot.turn else "no turn"
    match kind:
        case "right_steer":
            return UserInput(
                session_id, f"input {name}", delivery="steer", expected_turn_id=turn_id
            )
        case "right_interrupt":
            return Interrupt(session_id, turn_id)
        case "once" | "always" | "always_here" | "reject":
            return answer_to(snapshot, number, kind)
        case "fork":
            return SessionFork(session_id, None if number % 2 else 1 + number * snapshot.seq // 8)
        case "revert":
            return _revert(snapshot, number)
        case _:
            return _edit(kind, session_id, snapshot.queue, number, name)


def answer_to(snapshot: Snapshot, number: int, decision: Decision) -> Answer | None:
    """An answer to one of the open requests."""
    if not snapshot.requests:
        return None
    request = snapshot.requests[number % len(snapshot.requests)]
    if request.kind == "question" and decision != "reject":
        decision = "answer"
    # A rejection with a reason lets the turn go on, one without ends it.
    return Answer(request.id, decision, "" if decision == "reject" and number % 2 else "because")


def _edit(
    kind: str, session_id: str, queue: Sequence[QueuedInput], number: int, name: str
) -> QueueEdit:
    chosen = queue[number % len(queue)] if queue else STALE
    match kind:
        case "edit":
            return QueueEdit(session_id, chosen.id, "edit", text=f"input {name}, edited")
        case "move":
            return QueueEdit(session_id, chosen.id, "move", position=number % 4)
        case "remove":
            return QueueEdit(session_id, chosen.id, "remove")
        case _:
            return QueueEdit(session_id, chosen.id, "promote")


def _revert(snapshot: Snapshot, number: int) -> Revert | None:
    if not snapshot.marks:
        return None
    mark = snapshot.marks[-1 - number % len(snapshot.marks)]
    return Revert(snapshot.session_id, mark.turn_id, mark.step or None)


def _settings(number: int) -> Settings:
    return (
        Settings(max_steps=3),
        Settings(max_steps=20),
        Settings(follow_ups="all"),
        Settings(follow_ups="one_at_a_time"),
    )[number % 4]


def _choices(number: int) -> TurnOverrides:
    """What is chosen for a turn that goes on; the last is refused."""
    if number == 7:
        return TurnOverrides(model="of/nobody")
    return overrides_of(number) if number < 2 else TurnOverrides()
