"""The tool `bash_output`: new output of a background command."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Tool, ToolEnvironment, ToolResult, nothing_required
from tiller_daemon.tools.commands.background import result_of

WAIT_S_MAX: Final = 60.0
"""To wait longer, the model calls the tool again."""


class BashOutputArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `bash_output`."""

    id: Annotated[str, Meta(description="The name of the command or sub-agent, such as b1 or t1")]
    wait_s: Annotated[
        float, Meta(ge=0, le=WAIT_S_MAX, description="Seconds to wait for new output")
    ] = 0.0


async def _run(arguments: BashOutputArguments, environment: ToolEnvironment) -> ToolResult:
    return result_of(await environment.commands.background.poll(arguments.id, arguments.wait_s))


BASH_OUTPUT: Final = Tool(
    name="bash_output",
    description=(
        "Show what a background command has printed since you last looked, and whether it is still "
        f"running. With `wait_s` (at most {WAIT_S_MAX:.0f}), wait until it prints something or "
        "ends."
    ),
    arguments=BashOutputArguments,
    effect="read",
    timeout_s=WAIT_S_MAX + 10.0,
    requirements=nothing_required,
    run=_run,
    polls=True,
)
