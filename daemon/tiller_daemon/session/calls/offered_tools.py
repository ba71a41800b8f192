"""Chooses the tools that a turn offers to its model, and finds the tool that the model names."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from tiller_daemon.config import EditTool
from tiller_daemon.models.base import ToolSpec
from tiller_daemon.policy.rules import denies_all
from tiller_daemon.session.calls.arguments import parameters
from tiller_daemon.tools.base import Tool
from tiller_daemon.tools.editing.apply_patch import APPLY_PATCH
from tiller_daemon.tools.editing.edit import EDIT
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.turn.context import OfferedSubAgent
from tiller_protocol.settings import Rule

SPECS_CACHED_MAX = 256
"""How many tool descriptions are cached; `task` needs one for each set of agents."""


_UNSUITED: Mapping[EditTool, str] = {
    "edit": APPLY_PATCH.name,
    "apply_patch": EDIT.name,
    "both": "",
}
"""Which of the two tools for edits to leave out; the key is the tool that suits the model."""


def tool_specs(
    tools: Mapping[str, Tool], sub_agents: Sequence[OfferedSubAgent]
) -> tuple[ToolSpec, ...]:
    """Return the tools' descriptions for models; the description of `task` lists the agents."""
    lines = "\n".join(f"- {agent.name}: {agent.description}" for agent in sub_agents)
    agents = f"\n\nAgents:\n{lines}"
    return tuple(_spec(tool, agents if tool.effect == "agent" else "") for tool in tools.values())


def offered_tools(
    tools: Mapping[str, Tool], rules: Sequence[Rule], edit_tool: EditTool
) -> dict[str, Tool]:
    """Return the tools that suit the model, except tools that the rules deny for all arguments.

    The model may call a denied tool all the same, perhaps because it did so earlier. Then the rules
    refuse the call and give the reason.
    """
    unsuited = _UNSUITED[edit_tool]
    return {
        name: tool
        for name, tool in tools.items()
        if name != unsuited
        and not (
            tool.permission and denies_all(tool.permission.name, tool.permission.subject, rules)
        )
    }


def find_tool(tools: Mapping[str, Tool], name: str) -> Tool | None:
    """Return the tool called `name`, ignoring letter case if only one tool matches."""
    if tool := tools.get(name):
        return tool
    folded = name.strip().casefold()
    matches = [tool for known, tool in tools.items() if known.casefold() == folded]
    return matches[0] if len(matches) == 1 else None


def unknown_tool(name: str, tools: Iterable[str]) -> str:
    """Return the error message for an unknown tool."""
    available = ", ".join(sorted(tools)) or "none"
    return f"There is no tool {name!r}.{did_you_mean(name, tools)} Tools: {available}."


@lru_cache(SPECS_CACHED_MAX)
def _spec(tool: Tool, more: str) -> ToolSpec:
    schema = parameters(tool)
    description = tool.description + more
    chars = len(tool.name) + len(description) + len(msgspec.json.encode(schema))
    return ToolSpec(tool.name, description, schema, chars)
