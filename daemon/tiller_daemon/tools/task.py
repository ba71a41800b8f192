"""The tool `task`: a sub-agent does a piece of work and reports.

`session.sub_agents` starts, watches and ends the sub-agent.
"""

import math
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import (
    Assignment,
    Need,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolResult,
)

DEFAULT_AGENT: Final = "general"
RESUMED: Final = "resume"
"""The subject of the permission to resume a sub-agent, whose agent only its session knows."""


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `task`."""

    prompt: Annotated[
        str,
        Meta(
            min_length=1,
            description="The task with everything needed to do it: the sub-agent sees only this",
        ),
    ]
    agent: Annotated[
        str, Meta(description=f"Which agent does it; by default `{DEFAULT_AGENT}`")
    ] = ""
    resume: Annotated[
        str,
        Meta(description="The session of an earlier sub-agent that should continue its work"),
    ] = ""
    background: Annotated[
        bool,
        Meta(
            description="Return at once and get the report as a message later; only for agents "
            "that are read-only"
        ),
    ] = False


def _requirements(arguments: TaskArguments, workspace: Path) -> tuple[Requirement, ...]:  # noqa: ARG001
    agent = arguments.agent or (RESUMED if arguments.resume else DEFAULT_AGENT)
    title = f"{agent}: {arguments.prompt}"
    return (Requirement("task", (agent,), (agent,), title=title, detail=arguments.prompt),)


async def _run(arguments: TaskArguments, environment: ToolEnvironment) -> ToolResult:
    agent = arguments.agent or ("" if arguments.resume else DEFAULT_AGENT)
    return await environment.delegate(
        Assignment(arguments.prompt, agent, arguments.resume, arguments.background)
    )


TASK: Final = Tool(
    name="task",
    description=(
        "Give a task to a sub-agent, which works on its own in the same directory and ends with a "
        "report. Use it for work that you can describe in full and whose details you do not need, "
        "such as a broad search. Put several tasks that only read into one response to run them at "
        "the same time."
    ),
    arguments=TaskArguments,
    effect="agent",
    timeout_s=math.inf,
    requirements=_requirements,
    needs=Need("task"),
    run=_run,
)
