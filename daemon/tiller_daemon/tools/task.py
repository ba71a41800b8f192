"""The tool `task`: the model gives a piece of work to a sub-agent and gets its report.

`session.sub_agents` starts, watches and ends the sub-agent.
"""

import math
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolResult

DEFAULT_AGENT: Final = "general"
RESUMED: Final = "resume"
"""What the permission is asked for when an earlier sub-agent goes on: its agent is known to it."""


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says."""

    prompt: Annotated[
        str,
        Meta(
            min_length=1,
            description="The task, with all that is needed to do it: the sub-agent knows no more",
        ),
    ]
    agent: Annotated[
        str, Meta(description=f"Which agent does it; `{DEFAULT_AGENT}` if not given")
    ] = ""
    resume: Annotated[
        str,
        Meta(description="The session of an earlier sub-agent, which then goes on from there"),
    ] = ""


def _requirements(arguments: TaskArguments, workspace: Path) -> tuple[Requirement, ...]:  # noqa: ARG001
    agent = arguments.agent or (RESUMED if arguments.resume else DEFAULT_AGENT)
    title = f"{agent}: {arguments.prompt}"
    return (Requirement("task", (agent,), (agent,), title=title, detail=arguments.prompt),)


async def _run(arguments: TaskArguments, environment: ToolEnvironment) -> ToolResult:
    agent = arguments.agent or ("" if arguments.resume else DEFAULT_AGENT)
    return await environment.delegate(arguments.prompt, agent, arguments.resume)


TASK: Final = Tool(
    name="task",
    description=(
        "Give a task to a sub-agent, which works by itself in the same directory and ends with a "
        "report. Use it for work that can be described in full and whose details you do not need, "
        "such as a broad search. Several that only look may go into one response; they run at the "
        "same time."
    ),
    arguments=TaskArguments,
    effect="agent",
    timeout_s=math.inf,
    requirements=_requirements,
    run=_run,
)
