"""Sub-agents as random trees: whoever interrupts, answers or kills, owner and sub-agent agree."""

import os
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import (
    convert,
    structs,
)

from sim.deterministic import run_from_seed
from sim.stores import Stored, Stores
from support.narrowing import of_kind
from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import (
    CallPart,
    HangPart,
    Part,
    Script,
    ScriptedUsage,
    ScriptStep,
    TextPart,
    WaitPart,
)
from tiller_daemon.tools.write_scope import is_below
from tiller_protocol.answers import SessionListResult, SessionResult
from tiller_protocol.events import (
    Event,
    ItemCompleted,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    StepEnded,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.fold import fold
from tiller_protocol.items import (
    Decision,
    Notice,
    SubAgent,
    ToolCall,
    UserMessage,
)
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.ops import Answer, Interrupt, SessionGet, SessionList, UserInput
from tiller_protocol.settings import Rule
from tiller_protocol.snapshot import Snapshot

PROGRAMS = int(os.environ.get("TILLER_TREES", "60"))
TIMEOUT_S = 500.0
ROUNDS_MAX = 60
USAGE = ScriptedUsage(input_tokens=100, output_tokens=1)

many = settings(
    max_examples=PROGRAMS,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass(frozen=True)
class Action:
    """After `wait_s` one frontend does `kind` to one of the sessions there are."""

    wait_s: float
    kind: str
    number: int


@dataclass(frozen=True)
class Tree:
    """What boss, workers and scouts say, what is done to them, and the order of it all."""

    boss: tuple[ScriptStep, ...]
    worker: tuple[ScriptStep, ...]
    scout: tuple[ScriptStep, ...]
    actions: tuple[Action, ...]
    seed: int


@dataclass
class Outcome:
    """What was seen of one run."""

    logs: dict[str, list[Event]]
    snapshots: dict[str, Snapshot]
    endings: list[str]
    alive_at_end: list[str]
    in_background: set[str]
    """The sessions of background sub-agents."""
    ended_by_user: list[str]
    """The names of background sub-agents that a frontend ended."""
    stored: list[Stored]
    """What was changed by whom."""
    commits: list[tuple[str, int]]
    """The session and the new head of each commit."""


_WAITS = st.sampled_from([0.0, 0.1, 0.5, 2.0])


_WRITING = st.builds(
    lambda prompt, paths, later: CallPart(
        "task",
        arguments={"prompt": prompt, "agent": "worker", "paths": paths, "background": later},
    ),
    st.sampled_from(["a", "b"]),
    st.sampled_from([["a"], ["b"], ["a/x"], ["a", "c"], ["a/y", "b/x"]]),
    st.booleans(),
)
"""A task of an agent that writes, which declares what it may change."""

_STORES = st.builds(
    lambda path, seconds: CallPart("store", arguments={"path": path, "seconds": seconds}),
    st.sampled_from(["a/x", "a/y", "b/x", "c/x"]),
    _WAITS,
)
_BOTH = st.one_of(
    _WRITING,
    _WRITING,
    _STORES,
    _STORES,
    st.builds(CallPart, st.just("task"), arguments=st.just({"prompt": "c", "agent": "worker"})),
)


def _writers() -> st.SearchStrategy[tuple[ScriptStep, ...]]:
    """Steps of agents that do nothing but write, or have others write."""
    parts = st.lists(_BOTH, min_size=1, max_size=3).map(tuple)
    step = st.builds(ScriptStep, parts=parts, usage=st.just(USAGE))
    return st.lists(step, min_size=1, max_size=2).map(tuple)


def _steps(*agents: str) -> st.SearchStrategy[tuple[ScriptStep, ...]]:
    tasks = st.builds(
        lambda agent, prompt, later: CallPart(
            "task", arguments={"prompt": prompt, "agent": agent, "background": later}
        ),
        st.sampled_from(agents or ("nobody",)),
        st.sampled_from(["a", "b", "c"]),
        st.booleans(),
    )
    # Only agents that read work in the background without paths.
    later = st.builds(
        lambda prompt: CallPart(
            "task", arguments={"prompt": prompt, "agent": "scout", "background": True}
        ),
        st.sampled_from(["a", "b", "c"]),
    )
    calls = st.builds(
        lambda name, seconds, say: CallPart(name, arguments={"seconds": seconds, "say": say}),
        st.sampled_from(["look", "change", "guarded", "peek"]),
        _WAITS,
        st.sampled_from(["x", "y"]),
    )
    part: st.SearchStrategy[Part] = st.one_of(
        *([tasks, tasks, later, later, _WRITING] if agents else []),
        _STORES,
        calls,
        st.builds(WaitPart, _WAITS),
        st.builds(TextPart, st.just("words")),
        st.just(HangPart()),
    )
    step = st.builds(ScriptStep, parts=st.lists(part, max_size=3).map(tuple), usage=st.just(USAGE))
    return st.lists(step, min_size=1, max_size=3).map(tuple)


def trees(*, kills: bool, writers: bool = False) -> st.SearchStrategy[Tree]:
    """Random trees; the daemon is killed now and then if `kills`. With `writers` all write."""
    kinds = ["interrupt", "interrupt", "once", "once", "always", "reject", "end", "say"]
    kinds += ["kill", "die", "die"] * kills
    action = st.builds(Action, _WAITS, st.sampled_from(kinds), st.integers(0, 5))
    return st.builds(
        Tree,
        boss=_writers() if writers else _steps("worker", "scout"),
        worker=_writers() if writers else _steps("scout", "worker"),
        scout=_steps(),
        actions=st.lists(action, max_size=8).map(tuple),
        seed=st.integers(0, 2**32 - 1),
    )


@many
@given(trees(kills=False))
@pytest.mark.promise("G8")
@pytest.mark.nightly
def test_no_survivors_a_turn_ends_after_every_turn_that_works_for_it(tree: Tree) -> None:
    outcome = run(tree)
    assert outcome.alive_at_end == []
    for session_id, snapshot in outcome.snapshots.items():
        last = _last(outcome.endings, session_id)
        owner = snapshot.owner_id
        if session_id in outcome.in_background:
            continue
        if owner and last is not None:
            assert last < (_last(outcome.endings, owner) or 0)


@many
@given(trees(kills=True))
@pytest.mark.promise("G7")
def test_one_ending_in_every_session_of_a_tree_and_none_is_busy(tree: Tree) -> None:
    outcome = run(tree)
    for session_id, log in outcome.logs.items():
        state = LifecycleState()
        for event in log:
            advance(state, event)
        assert (state.turn_id, state.open_items, state.open_requests) == (None, set(), set())
        assert outcome.snapshots[session_id].status == "idle"


@many
@given(trees(kills=False))
def test_a_request_is_opened_and_resolved_alike_in_the_session_and_all_that_it_works_for(
    tree: Tree,
) -> None:
    outcome = run(tree)
    for session_id, snapshot in outcome.snapshots.items():
        # Those in the background ask in their own sessions only.
        if snapshot.owner_id is None or session_id in outcome.in_background:
            continue
        above = _resolutions(outcome.logs[snapshot.owner_id])
        assert _resolutions(outcome.logs[session_id]).items() <= above.items()
        opened = {r for r, _ in _opened(outcome.logs[session_id])}
        assert opened <= {r for r, _ in _opened(outcome.logs[snapshot.owner_id])}


@many
@given(trees(kills=False))
def test_an_owner_has_spent_what_it_and_its_sub_agents_have_spent(tree: Tree) -> None:
    outcome = run(tree)
    for session_id, snapshot in outcome.snapshots.items():
        own = 0
        for event in outcome.logs[session_id]:
            own += event.body.usage.input_tokens if isinstance(event.body, StepEnded) else 0
        below = [one for one in outcome.snapshots.values() if one.owner_id == session_id]
        assert snapshot.usage.input_tokens == own + sum(one.usage.input_tokens for one in below)
        linked = [i.sub_agent for i in snapshot.items if isinstance(i, ToolCall) and i.sub_agent]
        assert {one.session_id for one in linked} == {one.session_id for one in below}


@many
@given(trees(kills=True))
@pytest.mark.promise("G7")
@pytest.mark.nightly
def test_the_model_is_told_once_of_each_end_in_the_background(tree: Tree) -> None:
    outcome = run(tree)
    for snapshot in outcome.snapshots.values():
        assert all(entry.state != "running" for entry in snapshot.background)
    for session_id, log in outcome.logs.items():
        heads = {head for one, head in outcome.commits if one == session_id}
        snapshot = Snapshot(session_id)
        for event in log:
            fold(snapshot, event)
            # Whenever the daemon dies, either both are in the log or neither.
            if event.seq in heads and snapshot.background:
                _assert_told_once(snapshot)


def _assert_told_once(snapshot: Snapshot) -> None:
    told = [item.text for item in snapshot.items if isinstance(item, UserMessage | Notice)]
    told += [queued.text for queued in snapshot.queue]
    for entry in snapshot.background:
        if entry.sub_agent:
            name = f"background sub-agent {entry.id} ("
            times = sum(name in text for text in told)
            assert times == (entry.state != "running"), (entry, told)


@many
@given(trees(kills=False))
def test_only_its_user_or_its_own_end_ends_a_background_sub_agent(tree: Tree) -> None:
    outcome = run(tree)
    for snapshot in outcome.snapshots.values():
        killed = [entry.id for entry in snapshot.background if entry.state == "killed"]
        assert {*killed} <= {*outcome.ended_by_user}


@settings(many, max_examples=PROGRAMS // 2)
@given(trees(kills=True, writers=True))
@pytest.mark.promise("G9")
def test_lock_nothing_is_changed_by_two_at_once_nor_where_no_task_declares_it(
    tree: Tree,
) -> None:
    outcome = run(tree)
    for one, other in combinations(outcome.stored, 2):
        if one.session_id != other.session_id and one.path == other.path:
            assert one.ended < other.began or other.ended < one.began, (one, other)
    scopes = {session_id: _scopes(log) for session_id, log in outcome.logs.items()}
    for stored in outcome.stored:
        scope = scopes[stored.session_id][stored.call_id]
        assert scope is None or _is_in(stored.path, scope), stored
    for session_id, log in outcome.logs.items():
        for call in _tasks(log):
            outer = scopes[session_id][call.id]
            for inner in scopes[of_kind(SubAgent, call.sub_agent).session_id].values():
                assert outer is None or (inner and all(_is_in(one, outer) for one in inner))


def _scopes(log: list[Event]) -> dict[str, tuple[str, ...] | None]:
    """What each call of a session might change at most, by the context of its turn."""
    of_turns = {
        event.turn_id: event.body.context.write_paths
        for event in log
        if isinstance(event.body, TurnStarted)
    }
    return {
        event.body.item.id: of_turns[event.turn_id]
        for event in log
        if isinstance(event.body, ItemStarted) and isinstance(event.body.item, ToolCall)
    }


def _tasks(log: list[Event]) -> list[ToolCall]:
    """The calls that a sub-agent worked for."""
    items = [event.body.item for event in log if isinstance(event.body, ItemCompleted)]
    return [item for item in items if isinstance(item, ToolCall) and item.sub_agent]


def _is_in(name: str, places: tuple[str, ...]) -> bool:
    return any(is_below(name, place) for place in places)


def run(tree: Tree) -> Outcome:
    """Run a tree to its end, where every session rests."""
    return run_from_seed(partial(_run, tree), tree.seed)


async def _run(tree: Tree) -> Outcome:
    end = ScriptStep(parts=(TextPart("end"),), usage=USAGE, repeat=True)
    scripts = {
        "boss": Script((*tree.boss, end)),
        "worker": Script((*tree.worker, end)),
        "scout": Script((*tree.scout, end)),
    }
    alive: list[tuple[str, str]] = []
    ended: list[str] = []
    async with trio.open_nursery() as nursery:
        world, stores = World(scripts, tree.seed), Stores()
        world.more_tools = (stores.tool(),)
        await world.boot(nursery)
        world.configuration = structs.replace(
            world.configuration,
            permissions=(*world.configuration.permissions, Rule("write", "*/*", "allow")),
            agents={
                "worker": Agent(description="w", model="scripted/worker"),
                "scout": Agent(description="s", model="scripted/scout", read_only=True),
            },
        )

        def look(event: Event) -> None:
            if isinstance(event.body, TurnEnded) and event.session_id == boss:
                alive.extend(sorted(world.usage.running.items()))

        boss = await world.session()
        world.on_publish = look
        await world.say(boss, "go")
        for action in tree.actions:
            await trio.sleep(action.wait_s)
            if action.kind in ("kill", "die"):
                await _kill(world, action)
                await world.boot(nursery)
            else:
                ended += await _act(world, action)
        await _settle(world, boss, ended)
        sessions = await _sessions(world)
        snapshots = {s: await _snapshot(world, s) for s in sessions}
        background = {
            entry.sub_agent.session_id
            for snapshot in snapshots.values()
            for entry in snapshot.background
            if entry.sub_agent
        }
        outcome = Outcome(
            {s: await world.events(s) for s in sessions},
            snapshots,
            [e.session_id for e in world.in_order if isinstance(e.body, TurnEnded)],
            [call for call, session_id in alive if session_id not in background],
            background,
            ended,
            stores.done,
            world.log.commits,
        )
        nursery.cancel_scope.cancel()
    return outcome


async def _kill(world: World, action: Action) -> None:
    """Kill the daemon now, or if it is to `die`, before or after one of its next commits."""
    if action.kind == "die":
        world.kill_at_commit(1 + action.number, durable=action.number % 2 == 0)
        with trio.move_on_after(TIMEOUT_S):
            await world.gone.wait()
        world.commits_left = None
    if not world.gone.is_set():
        await world.kill()


async def _act(world: World, action: Action) -> list[str]:
    """Do one thing; returns the background sub-agents that it ended."""
    sessions = await _sessions(world)
    session_id = sessions[action.number % len(sessions)]
    snapshot = await _snapshot(world, session_id)
    if action.kind == "interrupt":
        await world.ask(Interrupt(session_id))
    elif action.kind == "end":
        return await _end_background(world, snapshot)
    elif action.kind == "say":
        # To whom the user talks: what a sub-agent does for others is not its owner's to pay.
        if snapshot.owner_id is None:
            await world.ask(UserInput(session_id, "more"))
    elif snapshot.requests:
        request = snapshot.requests[action.number % len(snapshot.requests)]
        await world.ask(Answer(request.id, convert(action.kind, Decision), ""))
    return []


async def _end_background(world: World, snapshot: Snapshot) -> list[str]:
    running = [entry.id for entry in snapshot.background if entry.state == "running"]
    for name in running:
        await world.ask(Interrupt(snapshot.session_id, background_id=name))
    return running


async def _settle(world: World, boss: str, ended: list[str]) -> None:
    for number in range(ROUNDS_MAX):
        snapshot = await _snapshot(world, boss)
        if snapshot.turn is None and all(one.state != "running" for one in snapshot.background):
            return
        for session_id in await _sessions(world):
            for request in (await _snapshot(world, session_id)).requests:
                await world.ask(Answer(request.id, "once"))
        if number > ROUNDS_MAX // 2:
            ended += await _end_background(world, snapshot)
            await world.ask(Interrupt(boss))
        await trio.sleep(TIMEOUT_S)
    raise AssertionError("the boss is stuck busy")


async def _snapshot(world: World, session_id: str) -> Snapshot:
    return of_kind(SessionResult, await world.must(SessionGet(session_id))).snapshot


async def _sessions(world: World) -> list[str]:
    listed = of_kind(SessionListResult, await world.must(SessionList(sub_agents=True)))
    return sorted(one.session_id for one in listed.sessions)


def _opened(log: list[Event]) -> list[tuple[str, str]]:
    bodies = [event.body for event in log]
    return [(b.request.id, b.request.kind) for b in bodies if isinstance(b, RequestOpened)]


def _resolutions(log: list[Event]) -> dict[str, str]:
    bodies = [event.body for event in log]
    return {b.request_id: b.resolution for b in bodies if isinstance(b, RequestResolved)}


def _last(endings: list[str], session_id: str) -> int | None:
    places = [place for place, one in enumerate(endings) if one == session_id]
    return places[-1] if places else None
