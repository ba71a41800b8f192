"""Tasks that declare the paths they may change: which run in parallel, and what is refused."""

import os
from functools import partial
from itertools import combinations
from pathlib import Path, PurePath

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from sim.deterministic import run_from_seed
from sim.stores import Stores
from support.delegating import SCOUT, WORKER, calls, says, snapshot, sub_agents, task_calls
from support.each import each
from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart, WaitPart
from tiller_daemon.tools.write_scope import scope_of
from tiller_protocol.events import TurnStarted
from tiller_protocol.settings import Rule

WORKS_S = 10.0

PATHS = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "a/x", "b/x", "./b/../c/y", "A"]), max_size=2),
    min_size=1,
    max_size=5,
)


def writing(paths: list[str], agent: str = "worker", **more: object) -> CallPart:
    declared = {"paths": paths} if paths else {}
    return CallPart("task", arguments={"prompt": "do it", "agent": agent, **declared, **more})


def groups_of(tasks: list[list[str]]) -> int:
    """Count the groups that run one after another; the tasks of a group run in parallel."""
    groups: list[list[list[str]]] = []
    for paths in tasks:
        names = [path.replace("./b/../", "").casefold() for path in paths]
        fits = groups and names and all(_apart(names, other) for other in groups[-1])
        if fits:
            groups[-1].append(names)
        else:
            groups.append([names])
    return len(groups)


def _apart(ours: list[str], theirs: list[str]) -> bool:
    pairs = [(f"{a}/", f"{b}/") for a in ours for b in theirs]
    return bool(theirs) and not any(a.startswith(b) or b.startswith(a) for a, b in pairs)


async def _seconds(tasks: list[list[str]]) -> float:
    async with trio.open_nursery() as nursery:
        slow = ScriptStep(parts=(WaitPart(WORKS_S), TextPart("done")), repeat=True)
        boss = Script((calls(*map(writing, tasks)), says("done")))
        world = await World.start(nursery, {"boss": boss, "worker": Script((slow,))})
        world.configuration = structs.replace(world.configuration, agents={"worker": WORKER})
        boss_id = await world.session()
        began = trio.current_time()
        await world.say(boss_id, "go")
        await world.ended(boss_id)
        took_s = trio.current_time() - began
        assert len(await sub_agents(world, boss_id)) == len(tasks)
        titles = [call.title for call in task_calls(world, boss_id)]
        assert len(titles) == len(tasks)
        nursery.cancel_scope.cancel()
    return took_s


@settings(max_examples=30, deadline=None)
@given(PATHS, st.integers(0, 2**32 - 1))
def test_tasks_work_at_once_if_their_paths_do_not_overlap_and_in_order_otherwise(
    tasks: list[list[str]], seed: int
) -> None:
    # More than two equal calls in a row would be asked about as a loop.
    if len(tasks) > 2 and any(tasks.count(paths) > 2 for paths in tasks):
        return
    took_s = run_from_seed(partial(_seconds, tasks), seed)
    assert took_s == pytest.approx(WORKS_S * groups_of(tasks), abs=2)


NAMES = ("a", "a/b", "a/b/c", "b", "ab", ".")


@given(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
def test_a_scope_has_no_place_within_another_and_covers_what_was_named(names: list[str]) -> None:
    scope = scope_of({name: Path("/w", name) for name in names})
    for name in (*NAMES, "/elsewhere"):
        assert scope.covers(name) == any(PurePath(name).is_relative_to(one) for one in names)
    for one, other in combinations(scope.names, 2):
        assert not scope_of({one: _NO}).overlaps(scope_of({other: _NO})), scope


_NO = Path("/")


@each(
    ("one", "other"),
    [
        ("Makefile", "makefile"),
        ("caf\u00e9", "CAFE\u0301/menu"),
        ("stra\u00dfe", "STRASSE"),
        ("\u1fb7", "\u03b1\u0345\u0342"),  # an alpha with two marks, in either order
    ],
)
def test_names_that_a_file_system_takes_for_one_overlap(one: str, other: str) -> None:
    assert scope_of({one: _NO}).overlaps(scope_of({other: _NO}))
    assert not scope_of({one: _NO}).overlaps(scope_of({f"{one}s": _NO}))
    assert not scope_of({one: _NO}).covers(other), "it may as well be another file"


async def test_paths_that_can_not_be_given_are_an_error_that_says_why(
    autojump_clock, start, tmp_path
) -> None:
    (tmp_path / "w" / "a").mkdir(parents=True)
    (tmp_path / "w" / "away").symlink_to(tmp_path)
    wrong = {
        "..": "leads out of the workspace",
        "/etc": "leads out of the workspace",
        "away/x": "leads out of the workspace",
        "": "is not a path",
        ".git/hooks": "is protected",
        "a/.tiller/x": "is protected",
    }
    tasks = [writing([path]) for path in wrong]
    none = CallPart("task", arguments={"prompt": "p", "agent": "worker", "paths": []})
    nested = (calls(writing(["b"]), writing(["a", "c"]), writing(["a/x"])), says("done"))
    world, _ = await start(
        calls(*tasks, none), calls(writing(["a"])), says("done"), worker=(*nested, says("deep"))
    )
    world.workspace = str(tmp_path / "w")
    boss = await world.session()
    await world.say(boss, "go")
    await world.ended(boss)
    outputs = [call.output for call in task_calls(world, boss)]
    for (path, why), output in zip(wrong.items(), outputs, strict=False):
        assert why in output, (path, output)
    assert "length >= 1" in outputs[len(wrong)]
    (child,) = await sub_agents(world, boss)
    refused = [call for call in task_calls(world, child) if call.error_kind == "denied"]
    declared = [one.output.partition("This call declares ")[2] for one in refused]
    assert declared == ["b.", "a, c."]
    (below,) = await sub_agents(world, child)
    started = await world.until_body(below, TurnStarted)
    assert started.body.context.write_paths == ("a/x",)
    assert "you may change only: a/x" in started.body.context.system_prompt


async def test_in_the_background_the_paths_are_its_own_until_its_report(
    autojump_clock, start
) -> None:
    slow = says("written", WaitPart(50.0))
    world, boss = await start(
        calls(writing([], background=True)),
        calls(writing(["a"], background=True), writing(["b"], background=True)),
        calls(writing(["a/x"]), writing(["c"]), writing(["b"], background=True)),
        ScriptStep(parts=(WaitPart(100.0), writing(["a/x"]))),
        says("last"),
        worker=(slow,),
    )
    world.configuration = structs.replace(
        world.configuration, agents={"worker": WORKER, "scout": SCOUT}
    )
    await world.say(boss, "go")
    await world.ended(boss)
    await world.ended(boss)
    outputs = [call.output for call in task_calls(world, boss)]
    assert "needs `paths`" in outputs[0]
    assert "the background sub-agent t1 (worker" in outputs[3]
    assert "owns a/x until it ends" in outputs[3]
    assert "the background sub-agent t2" in outputs[4]
    assert "owns b until it ends" in outputs[4]
    assert outputs[5].startswith("written")
    assert outputs[6].startswith("written")
    listed = (await snapshot(world, boss)).background
    assert [one.command for one in listed] == [
        "worker (may change a): do it",
        "worker (may change b): do it",
    ]


async def test_what_belongs_to_others_is_changed_by_none_and_what_is_declared_goes_down(
    autojump_clock, nursery, tmp_path
) -> None:
    """`store` writes a file: of a task with paths, a task below it, and beside one in the back."""
    stores = Stores()
    boss = (
        calls(writing(["a"])),
        calls(writing(["b"], "slow", background=True)),
        calls(store("b/x"), store("c/x"), writing([], "heir")),
        says("done"),
    )
    of_worker = (calls(store("a/x"), store("b/x"), writing([], "heir")), says("worked"))
    scripts = {
        "boss": Script(boss),
        "worker": Script(of_worker),
        "heir": Script((calls(store("a/y"), store("b/y"), store("c/y")), says("worked"))),
        "slow": Script((calls(store("b/z")), says("slow", WaitPart(500.0)))),
    }
    world = World(scripts)
    world.more_tools = (stores.tool(),)
    world.workspace = os.fspath(tmp_path)
    await world.boot(nursery)
    world.configuration = structs.replace(
        world.configuration,
        agents={name: Agent(model=f"scripted/{name}") for name in ("worker", "heir", "slow")},
        permissions=(Rule("write", "*", "allow"),),
    )
    session_id = await world.session()
    await world.say(session_id, "go")
    await world.ended(session_id)
    by = {session_id: "boss"} | {
        event.session_id: event.body.context.agent
        for event in world.in_order
        if isinstance(event.body, TurnStarted) and event.session_id != session_id
    }
    done = sorted((by[one.session_id], one.path) for one in stores.done)
    assert done == [
        ("boss", "c/x"),
        ("heir", "a/y"),
        ("heir", "a/y"),
        ("heir", "c/y"),
        ("slow", "b/z"),
        ("worker", "a/x"),
    ]
    nursery.cancel_scope.cancel()


def store(path: str) -> CallPart:
    return CallPart("store", arguments={"path": path})
