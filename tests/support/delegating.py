"""Helpers for worlds whose agents delegate: their scripts, and their calls to `task`."""

from support.narrowing import of_kind
from support.world import World
from tiller_daemon.config import Agent
from tiller_daemon.models.scripted import CallPart, ScriptedUsage, ScriptStep, TextPart
from tiller_protocol.answers import SessionListResult, SessionResult
from tiller_protocol.events import ItemCompleted, ToolCallUpdated
from tiller_protocol.items import SubAgent, ToolCall
from tiller_protocol.ops import SessionGet, SessionList

USAGE = ScriptedUsage(input_tokens=100, output_tokens=10)


def says(text: str, *before) -> ScriptStep:
    return ScriptStep(parts=(*before, TextPart(text)), usage=USAGE)


def calls(*parts: CallPart) -> ScriptStep:
    return ScriptStep(parts=parts, usage=USAGE)


def task(prompt: str = "do it", agent: str = "worker", **more: str) -> CallPart:
    return CallPart("task", arguments={"prompt": prompt, "agent": agent, **more})


LOOK = CallPart("look", arguments={"say": "x"})
SCOUT = Agent(description="looks", model="scripted/scout", read_only=True, prompt="You look.")
WORKER = Agent(description="works", model="scripted/worker", prompt="You work.")


def sub_agent_of(call: ToolCall | ToolCallUpdated) -> SubAgent:
    return of_kind(SubAgent, call.sub_agent)


async def sub_agents(world: World, session_id: str) -> list[str]:
    listed = of_kind(SessionListResult, await world.must(SessionList(owner_id=session_id)))
    return sorted(one.session_id for one in listed.sessions)


def task_calls(world: World, session_id: str) -> list[ToolCall]:
    bodies = [e.body for e in world.published[session_id] if isinstance(e.body, ItemCompleted)]
    items = [body.item for body in bodies]
    return [item for item in items if isinstance(item, ToolCall) and item.name == "task"]


async def linked(world: World, session_id: str) -> str:
    """Wait until a `task` call names its session, and return that session's id."""
    event = await world.until(session_id, lambda e: getattr(e.body, "sub_agent", None) is not None)
    return sub_agent_of(of_kind(ToolCallUpdated, event.body)).session_id


async def snapshot(world: World, session_id: str):
    return of_kind(SessionResult, await world.must(SessionGet(session_id))).snapshot
