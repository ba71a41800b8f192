"""The tool `bash_input`: types text to a background command.

What a program does with its input can't be judged beforehand, so the user is asked.
"""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolPermission, ToolResult
from tiller_daemon.tools.commands.background import result_of
from tiller_daemon.tools.commands.bash_output import WAIT_S_MAX

ANSWER_S: Final = 1.0
"""How long to wait for the program to react."""


class BashInputArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `bash_input`."""

    id: Annotated[str, Meta(description="The name that bash gave the command, such as b1")]
    text: Annotated[
        str, Meta(min_length=1, description="Text to type. To press Enter, add a line break")
    ]
    wait_s: Annotated[
        float, Meta(ge=0, le=WAIT_S_MAX, description="Seconds to wait for output")
    ] = ANSWER_S


def _requirements(arguments: BashInputArguments, workspace: Path) -> tuple[Requirement, ...]:  # noqa: ARG001
    title = f"Type to {arguments.id}: {arguments.text}"
    return (Requirement("bash_input", (arguments.text,), title=title, detail=arguments.text),)


async def _run(arguments: BashInputArguments, environment: ToolEnvironment) -> ToolResult:
    report = await environment.commands.background.send(
        arguments.id, arguments.text, arguments.wait_s
    )
    return result_of(report)


BASH_INPUT: Final = Tool(
    name="bash_input",
    description=(
        "Type text into the standard input of a background command, and show its output. "
        "Control characters such as Ctrl-C work only if the command was started with `pty`."
    ),
    arguments=BashInputArguments,
    effect="write",
    timeout_s=WAIT_S_MAX + 10.0,
    requirements=_requirements,
    permission=ToolPermission("bash_input"),
    run=_run,
)
