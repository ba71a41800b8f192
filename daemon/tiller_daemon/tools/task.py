"""The tool `task`: a sub-agent does a piece of work and reports.

`session.sub_agents` starts, watches and ends the sub-agent.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, structs

from tiller_daemon.sandbox.known_paths import is_protected
from tiller_daemon.tools.base import (
    Assignment,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolPermission,
    ToolResult,
)
from tiller_daemon.tools.path_access import resolve_path
from tiller_daemon.tools.write_scope import WriteScope, scope_of

DEFAULT_AGENT: Final = "general"
RESUMED: Final = "resume"
"""The subject of the permission to resume a sub-agent, whose agent is not known at that point."""

PATHS_MAX: Final = 32
"""How many places one task may declare. Each is a mount for every command of its sub-agent."""

OUTSIDE: Final = (
    "`paths` names {path}, which leads out of the workspace. A sub-agent can be given only files "
    "and directories in the workspace."
)
PROTECTED: Final = (
    "`paths` names {path}, which is protected: files there may make other programs run commands. "
    "Leave it out."
)


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
        str, Meta(description=f"Which agent does the task; by default `{DEFAULT_AGENT}`")
    ] = ""
    resume: Annotated[
        str,
        Meta(description="The session of an earlier sub-agent that should continue its work"),
    ] = ""
    background: Annotated[
        bool,
        Meta(
            description="Return at once; the report arrives later as a message. This requires a "
            "read-only agent, `isolation`, or `paths`: nobody else may change these until the "
            "sub-agent ends"
        ),
    ] = False
    paths: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1,
            max_length=PATHS_MAX,
            description="Files and directories of the workspace that the sub-agent may change; it "
            "can change nothing else, not even by a command. In one response, tasks whose paths do "
            "not overlap run at the same time. If a path does not exist yet, a command can create "
            "it as a directory, but not as a file: use `write` for a file",
        ),
    ] = ()
    isolation: Annotated[
        Literal["", "worktree"],
        Meta(
            description="`worktree`: the sub-agent works on a branch of its own in a git worktree, "
            "which begins with your last commit. The report names the branch and its commit, for "
            "`git merge`. Such tasks run at the same time, without `paths`"
        ),
    ] = ""


def _requirements(arguments: TaskArguments, workspace: Path) -> tuple[Requirement, ...]:
    agent = arguments.agent or (RESUMED if arguments.resume else DEFAULT_AGENT)
    scope = _scope(workspace, arguments.paths) if arguments.paths else None
    apart = arguments.isolation == "worktree"
    if apart and (scope or arguments.resume):
        other = "`paths`" if scope else "`resume`"
        raise ToolFailure(f"`isolation` and {other} exclude each other: leave out one of them.")
    writes = f" (may change {scope})" if scope else " (in a worktree of its own)" if apart else ""
    title = f"{agent}{writes}: {arguments.prompt}"
    detail = f"May change only: {scope}\n\n{arguments.prompt}" if scope else arguments.prompt
    warning = "Start a sub-agent"
    task = Requirement("task", (agent,), (agent,), "plain", title, warning, detail)
    return (structs.replace(task, scope=scope, apart=apart),)


def _scope(workspace: Path, paths: Sequence[str]) -> WriteScope:
    """Return the places that paths lead to; raises `ToolFailure` if a sub-agent can't get one."""
    places: dict[str, Path] = {}
    for path in paths:
        location = resolve_path(workspace, path)
        if not location.inside:
            raise ToolFailure(OUTSIDE.format(path=path))
        if is_protected(location.text):
            raise ToolFailure(PROTECTED.format(path=path))
        places[location.text] = location.path
    return scope_of(places)


async def _run(arguments: TaskArguments, environment: ToolEnvironment) -> ToolResult:
    agent = arguments.agent or ("" if arguments.resume else DEFAULT_AGENT)
    # The links in the scope were resolved when the call was judged.
    first = environment.requirements[0]
    return await environment.delegate(
        Assignment(
            arguments.prompt,
            agent,
            arguments.resume,
            arguments.background,
            first.scope,
            first.apart,
        )
    )


TASK: Final = Tool(
    name="task",
    description=(
        "Give a task to a sub-agent, which works on its own in the same directory and ends with a "
        "report. Use this for work that you can describe in full and whose details you do not "
        "need, such as a broad search. To run several tasks at the same time, put them into one "
        "response. This works for a task that only reads, and for a task whose `paths` say "
        "what it may change."
    ),
    arguments=TaskArguments,
    effect="agent",
    timeout_s=math.inf,
    requirements=_requirements,
    permission=ToolPermission("task"),
    run=_run,
)
