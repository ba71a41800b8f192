"""A turn is ended from outside in every state in which it can be, and all guarantees hold.

That each state was hit is counted from how the turns were closed, not believed.
"""

import os
from collections import Counter
from random import Random
from typing import NamedTuple

from msgspec import structs

from sim.batches import FIRST_SEED, judge, must_end, play_safely
from sim.judges import CHECKS
from sim.player import Seen
from sim.program import Action, Program
from sim.states import STATES, interrupted_states
from support.each import each
from support.world import EPOCH
from tiller_daemon.models.scripted import (
    CallPart,
    Failure,
    HangPart,
    HostedCallPart,
    ReasoningPart,
    Script,
    ScriptedUsage,
    ScriptStep,
    TextPart,
)
from tiller_protocol.events import TurnEnded
from tiller_protocol.items import Notice
from tiller_protocol.settings import Settings

PLAYS = int(os.environ.get("TILLER_INTERRUPTS", "4"))
"""How often a turn is ended in each state in each way."""

LATE_S = 0.001
"""An interrupt is over in the same instant: tools end at once here, and commits take no time."""

WINDOW_TOKENS = 4_000

HANGS = ScriptStep((HangPart(),))
LONG = {"seconds": 50.0}


class Scene(NamedTuple):
    """What brings a turn into a state and leaves it there for long."""

    first: ScriptStep
    second: ScriptStep | None = None
    opening: str = "auto"
    title: ScriptStep | None = None
    compaction: ScriptStep | None = None
    context_window: int | None = None


def scenes(state: str) -> tuple[Scene, ...]:
    """Ways into a state."""
    full = ScriptedUsage(WINDOW_TOKENS, 0, 9)
    look, change, guarded = (CallPart(name, LONG) for name in ("look", "change", "guarded"))
    peek = CallPart("peek", LONG)
    match state:
        case "streaming":
            return (
                Scene(ScriptStep((TextPart("some words", 3), HangPart()))),
                Scene(ScriptStep((ReasoningPart("hm hm", 2), HangPart()))),
                Scene(ScriptStep((CallPart("change", {}), TextPart("and"), HangPart()))),
            )
        case "before first token":
            return (Scene(HANGS),)
        case "one tool":
            return (
                Scene(ScriptStep((look,))),
                Scene(ScriptStep((change, change))),
                Scene(ScriptStep((TextPart("so"), CallPart("look", {}), change))),
            )
        case "several tools":
            return (
                Scene(ScriptStep((look, look, change))),
                Scene(ScriptStep((CallPart("look", {"seconds": 0.2}), look, look))),
            )
        case "hosted tool":
            search = HostedCallPart("web_search", {"query": "x"}, state="running", call_id="one")
            other = structs.replace(search, call_id="two")
            found = structs.replace(search, output="found", state="completed")
            return (
                Scene(ScriptStep((search, HangPart()))),
                Scene(ScriptStep((TextPart("so"), found, search, other, HangPart()))),
                Scene(ScriptStep((CallPart("look", {}), search, HangPart()))),
            )
        case "approval":
            return Scene(ScriptStep((guarded,))), Scene(ScriptStep((look, peek, peek)))
        case "question":
            return (Scene(ScriptStep((CallPart("question", {"text": "which?"}),))),)
        case "retry wait":
            wait = Failure("overloaded", retry_after_s=50.0)
            late = Failure("overloaded", retry_after_s=50.0, after_parts=1)
            return (
                Scene(ScriptStep((), (wait,))),
                Scene(ScriptStep((TextPart("x"), look), (late,))),
            )
        case "compaction":
            overflow = ScriptStep((), (Failure("context_overflow"),))
            reads = ScriptStep((CallPart("look", {}),), usage=full)
            return (
                Scene(overflow, compaction=HANGS),
                Scene(reads, compaction=HANGS, context_window=WINDOW_TOKENS),
                Scene(ScriptStep((TextPart("x"),)), opening="compact", compaction=HANGS),
            )
        case "title":
            one, begun = ScriptStep((TextPart("x"),)), ScriptStep((change,))
            return tuple(Scene(one, two, "start", title=HANGS) for two in (HANGS, begun))
        case _:
            return (Scene(ScriptStep((TextPart("x"),)), opening="shell"),)


def program(state: str, way: str, seed: int) -> Program:
    """A scene, somebody who steers or watches or not, the end from outside, and one more turn."""
    draw = Random(seed)
    scene = draw.choice(scenes(state))
    wait_s = draw.choice((0.3, 1.0, 5.0))
    between = (
        (),
        (Action(0.0, "attach"),),
        (Action(0.1, "queue", copies=2),),
        (Action(0.1, "get"), Action(0.0, "wrong_interrupt")),
    )
    opening = [Action(0.0, "auto"), Action(1.0, scene.opening, number=200)]
    actions = (
        *(opening if scene.opening != "auto" else opening[:1]),
        *draw.choice(between),
        Action(wait_s, way, copies=draw.choice((1, 1, 2))),
        Action(80.0, "auto"),
    )
    the_end = ScriptStep((TextPart("the end"),), repeat=True)
    return Program(
        seed,
        Script(
            (scene.first, *((scene.second,) if scene.second else ()), the_end),
            scene.title,
            scene.compaction,
        ),
        actions,
        Settings(approve="ask"),
        scene.context_window,
    )


@each("way", ["interrupt", "right_interrupt", "stop", "kill"])
@each("state", STATES)
def test_interrupt_in_every_state_ends_the_turn_at_once_and_keeps_all_guarantees(
    state: str, way: str
) -> None:
    hit: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + PLAYS):
        played = play_safely(program(state, way, seed))
        must_end(played)
        assert played.seen is not None
        for check in (*CHECKS, tells_the_model_once):
            judge(check, played)
        hit.update(interrupted_states(played.seen, by_user=way.endswith("interrupt")))
        assert hit[state] == 1 + seed - FIRST_SEED, f"not hit: {played.program}"
        _check_delay(played.program, played.seen)


def tells_the_model_once(seen: Seen) -> None:
    """The last request has one notice for each turn that was interrupted before it (B24)."""
    for session in seen.sessions.values():
        interrupted = 0
        for event in session.log:
            body = event.body
            interrupted += isinstance(body, TurnEnded) and body.outcome == "interrupted"
        last = [r for r in seen.requests if r.session_id == session.session_id][-1]
        notices = [i for i in last.items if isinstance(i, Notice) and i.code == "interrupted"]
        assert len(notices) == interrupted


def _check_delay(played: Program, seen: Seen) -> None:
    """The turn ends in the instant in which it was told to."""
    told_at = EPOCH + sum(action.wait_s for action in played.actions[:-1])
    (session,) = seen.sessions.values()
    ends = [event.time for event in session.log if isinstance(event.body, TurnEnded)]
    assert min(abs(time - told_at) for time in ends) < LATE_S
