"""Random programs: a scripted model, and what several frontends do to its sessions.

A seed makes a program. Each draws first what may happen in it at all, so that some are full of
kills and some of steering (swarm testing). `player` plays one; `show` prints one as Python.
"""

from random import Random
from typing import Any, Literal

from msgspec import Struct, structs

from tiller_daemon.models.base import ModelErrorKind
from tiller_daemon.models.scripted import (
    CallPart,
    Failure,
    HangPart,
    HostedCallPart,
    Part,
    ReasoningPart,
    Script,
    ScriptedUsage,
    ScriptStep,
    TextPart,
    WaitPart,
)
from tiller_protocol.settings import Budget, Settings, TurnOverrides

ACTIONS_MAX = 20
STEPS_MAX = 10
KINDS_MAX = 14
"""From at most so many kinds of actions a program draws its own, so that each comes often."""

USES_THE_SESSION = (
    "auto", "steer", "right_steer", "wrong_steer", "queue", "start", "no_reply", "limited",
    "interrupt", "right_interrupt", "wrong_interrupt", "continue", "continue",
    "once", "always", "always_here", "reject",
    "edit", "remove", "promote", "move",
    "compact", "shell", "fork", "revert", "unrevert", "configure", "archive", "seen",
    "get", "attach", "again",
)  # fmt: skip
STOPS_SHARE = 0.6
"""In so many programs the daemon or its log may fail."""

STOPS_THE_DAEMON = ("kill", "kill_before", "kill_after", "stop", "log_fails")

COMMON = (
    "auto", "auto", "auto", "steer", "steer", "queue", "queue", "once", "interrupt", "limited",
    "continue",
)  # fmt: skip
"""What makes something happen at all; every program has it."""

FLOODS_SHARE = 0.005
FLOOD_COPIES = 75
"""In so many programs more is sent at once, and more is queued, than a session takes."""

WAITS_S = (0.0, 0.0, 0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 1.0, 3.0, 10.0, 70.0)
"""Between actions; the last one is longer than a frontend waits for an answer."""

UNLOADS_S = 400.0
"""Long enough for a session at rest to leave memory."""

CALL_S = (0.0, 0.1, 0.5, 1.0, 1.0, 3.0, 10.0)
COMMITS_S = ((0.0,), (0.0,), (0.0, 0.0, 0.001, 0.05), (0.0, 0.3, 2.0))
"""How long commits take: mostly no time, so that the order is the scheduler's alone."""

WINDOW_TOKENS = 4_000
"""A context window that prompt and tools fill to a third, and a few answers wholly."""


RESUMES_SHARE = 0.5

HOSTED_SHARE = 0.15
"""In so many responses the provider runs calls itself."""

HOSTED_OUTPUTS = {"web_search": "found", "web_fetch": "page"}
"""What the provider's tools return."""


class Action(Struct, frozen=True):
    """After `wait_s`, so many frontends at once do `kind`; `number` chooses among what there is."""

    wait_s: float
    kind: str
    number: int = 0
    copies: int = 1


class Program(Struct, frozen=True):
    """Everything that decides a run; `resumes` is whether turns go on after the daemon's end."""

    seed: int
    script: Script
    actions: tuple[Action, ...]
    settings: Settings = Settings()
    context_window: int | None = None
    commits_s: tuple[float, ...] = (0.0,)
    resumes: bool = False


def program_of(seed: int) -> Program:
    """The program of a seed."""
    draw = Random(seed)
    window = draw.choice((None, None, None, WINDOW_TOKENS))
    steps = tuple(_step(draw, window) for _ in range(draw.randint(1, STEPS_MAX)))
    last = ScriptStep(parts=(TextPart("the end"),), repeat=True)
    return Program(
        seed,
        Script((*steps, last), title=_title(draw), compaction=_compaction(draw)),
        _actions(draw),
        Settings(
            follow_ups=draw.choice(("one_at_a_time", "all")),
            approve=draw.choice(("ask", "ask", "ask", "always", "never")),
        ),
        window,
        draw.choice(COMMITS_S),
        resumes=draw.random() < RESUMES_SHARE,
    )


def overrides_of(number: int) -> TurnOverrides:
    """The limits that the action `limited` sets for its turn."""
    return (
        TurnOverrides(max_steps=1),
        TurnOverrides(max_steps=2),
        TurnOverrides(turn_budget=Budget(steps=2)),
        TurnOverrides(turn_budget=Budget(tokens=500)),
        TurnOverrides(turn_budget=Budget(time_s=1.0)),
    )[number % 5]


def show(value: Any) -> str:
    """Python that makes `value` again, without what is as by default."""
    if isinstance(value, tuple):
        inside = "".join(f"{show(one)}, " for one in value)
        return f"({inside})"
    if not isinstance(value, Struct):
        return repr(value)
    fields = [
        f"{field.name}={show(given)}"
        for field in _fields(value)
        if (given := getattr(value, field.name)) != field.default
    ]
    return f"{type(value).__name__}({', '.join(fields)})"


def _fields(value: Struct) -> tuple[Any, ...]:
    from msgspec.structs import fields

    return fields(value)


def _actions(draw: Random) -> tuple[Action, ...]:
    kinds = draw.sample(USES_THE_SESSION, draw.randint(2, KINDS_MAX))
    if draw.random() < STOPS_SHARE:
        kinds += draw.sample(STOPS_THE_DAEMON, draw.randint(1, 3))
    waits = (*draw.sample(WAITS_S, 5), *((UNLOADS_S,) if draw.random() < 0.1 else ()))
    actions = [Action(0.0, "auto"), Action(0.0, "attach")]
    for _ in range(draw.randint(3, ACTIONS_MAX)):
        kind = draw.choice(COMMON if draw.random() < 0.5 else kinds)
        copies = draw.choice((1, 1, 1, 1, 2, 3))
        actions.append(Action(draw.choice(waits), kind, draw.randrange(8), copies))
    if draw.random() < FLOODS_SHARE:
        actions += [Action(0.1, "queue", number, FLOOD_COPIES) for number in range(2)]
    return tuple(actions)


def _step(draw: Random, window: int | None) -> ScriptStep:
    parts = [_part(draw) for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4)))]
    if draw.random() < HOSTED_SHARE:
        parts += _hosted_parts(draw)
    if draw.random() < 0.3:
        parts += [CallPart("look", {"seconds": draw.choice(CALL_S), "say": say}) for say in "xyz"]
    kinds: list[ModelErrorKind] = [
        "overloaded",
        "broken_stream",
        "broken_stream",
        "rate_limit",
        "refused",
    ]
    if window:
        kinds.extend(("context_overflow",) * 3)
    elif draw.random() < 0.1:
        kinds.append("bad_request")
    failures = tuple(
        Failure(draw.choice(kinds), after_parts=draw.randint(0, 3))
        for _ in range(draw.choice((0, 0, 0, 0, 1, 1, 2)))
    )
    used = draw.randint(100, int(0.9 * window)) if window else draw.randint(1, 300)
    usage = draw.choice((None, ScriptedUsage(used, 0, 20)))
    finish = draw.choice(
        (*(None,) * 15, "stop", "stop", "length", "length", "content_filter", "paused")
    )
    return ScriptStep(tuple(parts), failures, finish, usage)


def _part(draw: Random) -> Part:
    match draw.choice(("text", "reasoning", "call", "call", "call", "call", "odd", "wait")):
        case "text":
            return TextPart(draw.choice(("x", "some words")), draw.randint(1, 4))
        case "reasoning":
            return ReasoningPart("hm", draw.randint(1, 2))
        case "call":
            return _call(draw)
        case "odd":
            return draw.choice(_ODD_PARTS)
        case _:
            return WaitPart(draw.choice(CALL_S))


_ODD_PARTS: tuple[Part, ...] = (
    HangPart(),
    CallPart("look", arguments_text="{broken"),
    CallPart("nope", arguments={}),
    CallPart("plan", arguments={"items": [{"text": "one", "state": "in_progress"}]}),
    CallPart("question", arguments={"text": "which?", "choices": ["this", "that"]}),
    CallPart("question", arguments={"text": "which?"}),
)


def _hosted_parts(draw: Random) -> list[Part]:
    """Calls that the provider runs: one that takes time, perhaps two at once, perhaps no end."""
    search = HostedCallPart("web_search", {"query": "x"}, "", "running", "search")
    parts: list[Part] = [search, WaitPart(draw.choice(CALL_S))]
    if draw.random() < 0.5:
        parts.insert(1, HostedCallPart("web_fetch", {}, HOSTED_OUTPUTS["web_fetch"]))
    states: tuple[Literal["completed", "failed"], ...] = ("completed", "completed", "failed")
    ended = structs.replace(search, output=HOSTED_OUTPUTS["web_search"], state=draw.choice(states))
    return [*parts, *draw.choice(((ended,), (ended,), ())), TextPart("by what I found")]


_TOOLS = ("look", "look", "look", "peek", "change", "change", "guarded", "guarded", "LOOK")


def _call(draw: Random) -> CallPart:
    name = draw.choice(_TOOLS)
    arguments: dict[str, Any] = {"seconds": draw.choice(CALL_S)}
    if draw.random() < 0.7:
        arguments["say"] = draw.choice(("a", "b", "said"))
    if draw.random() < 0.1:
        arguments["times"] = 1_000
    if draw.random() < 0.15:
        arguments[draw.choice(("fail", "crash"))] = True
    return CallPart(name, arguments, pieces=draw.randint(1, 3))


def _title(draw: Random) -> ScriptStep | None:
    return draw.choice(
        (
            None,
            ScriptStep((TextPart("a title"),)),
            ScriptStep((WaitPart(0.5), TextPart("a title"))),
            ScriptStep((HangPart(),)),
        )
    )


def _compaction(draw: Random) -> ScriptStep | None:
    return draw.choice(
        (
            None,
            ScriptStep((TextPart("what was"),), usage=ScriptedUsage(90, 0, 9)),
            ScriptStep((WaitPart(2.0), TextPart("what was", 2))),
            ScriptStep((TextPart("what was"),), (Failure("overloaded", after_parts=1),)),
            ScriptStep((TextPart(""),)),
            ScriptStep((TextPart("too much " * 3_000),)),
            ScriptStep((HangPart(),)),
        )
    )
