"""The tools of a turn as models are offered them, and which of them a model means by a name."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from tiller_daemon.models.base import ToolSpec
from tiller_daemon.session.calls.arguments import parameters
from tiller_daemon.tools.base import Tool
from tiller_daemon.tools.similar import did_you_mean
from tiller_daemon.turn.context import SubAgentOffered

SPECS_CACHED_MAX = 256
"""How many descriptions of tools are kept ready; each set of agents makes one more."""


def tool_specs(
    tools: Mapping[str, Tool], sub_agents: Sequence[SubAgentOffered]
) -> tuple[ToolSpec, ...]:
    """The tools as models are offered them; `task` says which agents there are."""
    lines = "\n".join(f"- {agent.name}: {agent.description}" for agent in sub_agents)
    agents = f"\n\nAgents:\n{lines}"
    return tuple(_spec(tool, agents if tool.effect == "agent" else "") for tool in tools.values())


def find_tool(tools: Mapping[str, Tool], name: str) -> Tool | None:
    """The tool of that name; letter case is all that is forgiven, and only if it leaves one."""
    if tool := tools.get(name):
        return tool
    meant = [tool for known, tool in tools.items() if known.casefold() == name.strip().casefold()]
    return meant[0] if len(meant) == 1 else None


def unknown_tool(name: str, tools: Iterable[str]) -> str:
    """The sentence for a tool that is not there."""
    there_are = ", ".join(sorted(tools)) or "none"
    return f"There is no tool {name!r}.{did_you_mean(name, tools)} Tools: {there_are}."


@lru_cache(SPECS_CACHED_MAX)
def _spec(tool: Tool, more: str) -> ToolSpec:
    taken = parameters(tool)
    description = tool.description + more
    chars = len(tool.name) + len(description) + len(msgspec.json.encode(taken))
    return ToolSpec(tool.name, description, taken, chars)
