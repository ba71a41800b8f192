"""The tool `bash_kill`: kills a background command with every process that it has started."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Tool, ToolEnvironment, ToolResult, nothing_required
from tiller_daemon.tools.commands.background import result_of

KILL_S: Final = 15.0
"""How long killing all processes may take; those that ignore SIGTERM soon get SIGKILL."""


class BashKillArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `bash_kill`."""

    id: Annotated[str, Meta(description="The name of the command or sub-agent, such as b1 or t1")]


async def _run(arguments: BashKillArguments, environment: ToolEnvironment) -> ToolResult:
    return result_of(await environment.commands.background.kill(arguments.id))


BASH_KILL: Final = Tool(
    name="bash_kill",
    description=(
        "Kill a background command and every process that it has started, or end a background "
        "sub-agent."
    ),
    arguments=BashKillArguments,
    effect="read",
    timeout_s=KILL_S,
    requirements=nothing_required,
    run=_run,
)
