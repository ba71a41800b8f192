"""The tool `bash`: one shell command in the workspace, its output as it comes, its whole end.

How processes are started and ended is in `processes.command`; what may run at all is the policy's.
"""

import shutil
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.processes.capture import Capture
from tiller_daemon.processes.command import CommandEnd, Input, run_command
from tiller_daemon.tools.base import BackgroundStart, Requirement, Tool, ToolEnvironment, ToolResult
from tiller_daemon.tools.commands.background import report
from tiller_daemon.tools.commands.sandbox_notes import sandbox_notes
from tiller_daemon.tools.path_access import tool_failures
from tiller_daemon.tools.spilling import spill_path, truncated_output

TIMEOUT_S: Final = 120.0
TIMEOUT_S_MAX: Final = 600.0
"""What a command gets when the model names no time, and the most it can ask for."""

ENDING_S: Final = 10.0
"""What ending a command may take beyond its own time, before the runtime loses patience."""

TITLE_CHARS_MAX: Final = 100


class BashArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says."""

    command: Annotated[str, Meta(min_length=1, description="The command line, for `bash -c`")]
    timeout_s: Annotated[
        float, Meta(gt=0, le=TIMEOUT_S_MAX, description="Seconds after which it is ended")
    ] = TIMEOUT_S
    background: Annotated[
        bool, Meta(description="Let it go on by itself; look at it with bash_output")
    ] = False
    pty: Annotated[
        bool, Meta(description="Give it a terminal of its own, for programs that want one")
    ] = False


def _requirements(arguments: BashArguments, _: Path) -> tuple[Requirement, ...]:
    command = arguments.command
    title = f"Run {_title(command)}"
    requirement = Requirement(
        "bash",
        (command,),
        kind="command",
        title=title,
        detail=command,
        detail_kind="command",
    )
    return (requirement,)


async def _run(arguments: BashArguments, environment: ToolEnvironment) -> ToolResult:
    if arguments.background:
        return await _start(arguments, environment)
    capture = Capture(spill_path(environment))

    async def receive(piece: bytes) -> None:
        if shown := await capture.add(piece):
            await environment.output(shown)

    try:
        with tool_failures():
            end = await run_command(
                [_shell(), "-c", arguments.command],
                directory=environment.workspace,
                variables=environment.variables,
                receive=receive,
                timeout_s=arguments.timeout_s,
                typed=Input(terminal=True) if arguments.pty else None,
                secrets=environment.secrets,
                confined=environment.confined,
            )
        # A terminal ends its lines with two characters.
        output = (await truncated_output(capture)).replace(
            "\r\n", "\n" if arguments.pty else "\r\n"
        )
    finally:
        capture.close()
    notes = _notes(end, arguments.timeout_s)
    held = sandbox_notes(environment.confined, end.status, output)
    notes += held.notes
    return ToolResult(
        _with_notes(output, notes),
        title=_title(arguments.command),
        failed=end.timed_out or end.status != 0,
        spill_path=capture.spill_path(),
        exit_status=None if end.timed_out else end.status,
        stopped_by=held.stopped_by,
    )


async def _start(arguments: BashArguments, environment: ToolEnvironment) -> ToolResult:
    """Start it in the background; it belongs to the session from then on."""
    start = BackgroundStart(
        command=arguments.command,
        call_id=environment.call_id,
        arguments=(_shell(), "-c", arguments.command),
        directory=environment.workspace,
        variables=environment.variables,
        spill_path=spill_path(environment),
        terminal=arguments.pty,
        secrets=environment.secrets,
        confined=environment.confined,
    )
    return report(await environment.background.start(start))


def _is_over_with_its_call(arguments: BashArguments) -> bool:
    return not arguments.background


BASH: Final = Tool(
    name="bash",
    description=(
        "Run a command with bash in the workspace. Standard input is empty and there is no "
        "terminal. Output and errors come together; long output is cut in the middle and kept "
        f"whole in a file. After {TIMEOUT_S:.0f} s (`timeout_s`, at most {TIMEOUT_S_MAX:.0f}) the "
        "command is ended. Processes that are left when the shell exits are ended too: what has to "
        "go on, such as a server, is started with `background`. Use the "
        "tools `read`, `grep`, `glob` and `edit` rather than cat, grep, find and sed."
    ),
    arguments=BashArguments,
    effect="command",
    timeout_s=TIMEOUT_S_MAX + ENDING_S,
    requirements=_requirements,
    run=_run,
    repeatable=_is_over_with_its_call,
)


def _shell() -> str:
    return shutil.which("bash") or "/bin/sh"


def _title(command: str) -> str:
    first, more, _ = command.strip().partition("\n")
    return f"{first[:TITLE_CHARS_MAX]}..." if more or len(first) > TITLE_CHARS_MAX else first


def _notes(end: CommandEnd, timeout_s: float) -> list[str]:
    notes: list[str] = []
    if end.timed_out:
        notes.append(f"Ended after {timeout_s:g} s: the time was up. Ask for more with timeout_s.")
    elif end.status < 0:
        notes.append(f"Ended by signal {-end.status}.")
    elif end.status > 0:
        notes.append(f"Exit status {end.status}.")
    if end.leftovers:
        what = "process" if end.leftovers == 1 else "processes"
        notes.append(f"{end.leftovers} {what} still running then: ended.")
    if end.survivors:
        notes.append(f"{end.survivors} could not be ended (stuck, or another user's).")
    return notes


def _with_notes(output: str, notes: list[str]) -> str:
    if not notes:
        return output or "(No output.)"
    parted = f"{output}\n" if output and not output.endswith("\n") else output
    return f"{parted}[{' '.join(notes)}]"
