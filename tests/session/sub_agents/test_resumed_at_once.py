"""Several calls in one response resume the same sub-agent, which does one task at a time."""

from functools import partial

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from sim.deterministic import run_from_seed
from support.delegating import SCOUT, WORKER, calls, says, snapshot, sub_agents, task_calls
from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import CallPart, Script, ScriptStep, TextPart, WaitPart
from tiller_protocol.events import TurnEnded, TurnStarted

AGENTS = {"scout": SCOUT, "worker": WORKER}

TASKS = st.lists(
    st.tuples(
        st.sampled_from(["", "scout", "worker"]),
        st.integers(0, 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
"""For each call: the agent, the child to resume, and whether it runs in the background."""


def agent_named(name: str) -> Agent:
    return structs.replace(AGENTS[name], model=f"scripted/{name}")


def resuming(number: int, agent: str, child: str, *, background: bool) -> CallPart:
    named: dict[str, object] = {"agent": agent} if agent else {}
    if background:
        named["background"] = True
    return CallPart("task", arguments={"prompt": f"task {number}", "resume": child, **named})


async def play(tasks: list[tuple[str, int, bool]]) -> None:
    async with trio.open_nursery() as nursery:
        slow = Script((ScriptStep(parts=(WaitPart(5.0), TextPart("done")), repeat=True),))
        first = calls(*(CallPart("task", arguments={"prompt": f"begin {n}"}) for n in range(2)))
        world = await World.start(
            nursery,
            {"boss": Script((first, says("begun"))), **dict.fromkeys(AGENTS, slow)},
        )
        general = Agent(description="works", model="scripted/worker", prompt="You work.")
        world.configuration = structs.replace(
            world.configuration, agents={**AGENTS, "general": general}
        )
        boss = await world.session()
        await world.say(boss, "go")
        await world.ended(boss)
        children = await sub_agents(world, boss)
        parts = [
            resuming(n, agent, children[child], background=background)
            for n, (agent, child, background) in enumerate(tasks)
        ]
        world.scripts["boss"] = Script(
            (says("1"), says("2"), calls(*parts), *(says("heard") for _ in range(20)))
        )
        await world.say(boss, "again")
        await world.ended(boss, 2)
        await trio.sleep(100.0)
        await check(world, boss, children, tasks)
        nursery.cancel_scope.cancel()


async def check(
    world: World, boss: str, children: list[str], tasks: list[tuple[str, int, bool]]
) -> None:
    """Check that each call was done or refused with the reason, and that no two overlapped."""
    answered = task_calls(world, boss)[2:]
    assert len(answered) == len(tasks)
    done: dict[str, int] = dict.fromkeys(children, 0)
    by_prompt = {f"task {n}": children[child] for n, (_, child, _) in enumerate(tasks)}
    for call in answered:
        prompt = next(p for p in by_prompt if f'"{p}"' in call.arguments)
        child = by_prompt[prompt]
        texts = [getattr(item, "text", "") for item in (await snapshot(world, child)).items]
        if call.state == "completed":
            done[child] += 1
            assert texts.count(prompt) == 1
        else:
            busy = f"The sub-agent {child} is still working" in call.output
            assert busy or "A background agent that writes needs" in call.output
            assert prompt not in texts
    for child, count in done.items():
        bodies = [e.body for e in world.published[child]]
        turns = [type(b) for b in bodies if isinstance(b, (TurnStarted, TurnEnded))]
        assert turns == [TurnStarted, TurnEnded] * (1 + count)
        named = [index for _, index, background in tasks if not background]
        assert count or children.index(child) not in named
    assert not (await snapshot(world, boss)).turn


@settings(max_examples=40, deadline=None)
@given(TASKS, st.integers(0, 2**32 - 1))
def test_a_sub_agent_that_is_resumed_by_several_calls_does_one_task_at_a_time(
    tasks: list[tuple[str, int, bool]], seed: int
) -> None:
    run_from_seed(partial(play, tasks), seed)
