"""The tool `bash`: one shell command in the workspace, with live output.

`processes.command` starts and ends the processes; `policy` decides what may run.
"""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta, Struct

from tiller_daemon.isolation import find_program
from tiller_daemon.processes.capture import Capture
from tiller_daemon.processes.command import CommandEnd, CommandInput, run_command
from tiller_daemon.processes.terminal_text import TerminalText
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.tools.base import (
    BackgroundStart,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolPermission,
    ToolResult,
)
from tiller_daemon.tools.commands.background import result_of
from tiller_daemon.tools.commands.sandbox_notes import sandbox_notes
from tiller_daemon.tools.spilling import spill_path, truncated_output

TIMEOUT_S: Final = 120.0
TIMEOUT_S_MAX: Final = 600.0
"""The default timeout of a command, and the longest that the model can ask for."""

ENDING_S: Final = 10.0
"""How long ending a command may take after its timeout, before the call itself is cancelled."""

TITLE_CHARS_MAX: Final = 100

LOOKED_AT_BYTES_MAX: Final = 64 * 1024
"""How much of a running command's output is checked for a refusal; the result is checked anyway."""


class BashArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `bash`."""

    command: Annotated[str, Meta(min_length=1, description="The command line, for `bash -c`")]
    timeout_s: Annotated[
        float, Meta(gt=0, le=TIMEOUT_S_MAX, description="Kill the command after this many seconds")
    ] = TIMEOUT_S
    background: Annotated[
        bool, Meta(description="Run the command in the background; bash_output shows its output")
    ] = False
    pty: Annotated[
        bool, Meta(description="Use a pseudo-terminal, for programs that need a terminal")
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
    return await _run_in(environment.commands.sandbox, arguments, environment)


async def _run_in(
    sandbox: CommandSandbox | None,
    arguments: BashArguments,
    environment: ToolEnvironment,
) -> ToolResult:
    capture = Capture(spill_path(environment), TerminalText())

    async def receive(piece: bytes) -> None:
        if shown := await capture.add(piece):
            await environment.user.output(shown)

    try:
        end = await run_command(
            [_shell(), "-c", arguments.command],
            directory=environment.workspace,
            variables=environment.commands.variables(),
            receive=receive,
            timeout_s=arguments.timeout_s,
            command_input=CommandInput(terminal=True) if arguments.pty else None,
            secrets=environment.secrets,
            sandbox=sandbox,
        )
        output = await truncated_output(capture)
    finally:
        capture.close()
    by_sandbox = sandbox_notes(sandbox, end.status, output, has_run=end.has_run)
    notes = [*_notes(end, arguments.timeout_s), *by_sandbox.notes]
    return ToolResult(
        _with_notes(output, notes),
        title=_title(arguments.command),
        failed=end.timed_out or end.status != 0,
        spill_path=capture.spill_path(),
        exit_status=None if end.timed_out or not end.has_run else end.status,
        stopped_by=by_sandbox.stopped_by,
        missed=by_sandbox.missed,
    )


async def _start(arguments: BashArguments, environment: ToolEnvironment) -> ToolResult:
    """Start a command in the background, where the session owns it."""
    start = BackgroundStart(
        command=arguments.command,
        call_id=environment.call_id,
        arguments=(_shell(), "-c", arguments.command),
        directory=environment.workspace,
        variables=environment.commands.variables(),
        spill_path=spill_path(environment),
        terminal=arguments.pty,
        secrets=environment.secrets,
        sandbox=environment.commands.sandbox,
    )
    return result_of(await environment.commands.background.start(start))


def _is_over_with_its_call(arguments: BashArguments) -> bool:
    return not arguments.background


BASH: Final = Tool(
    name="bash",
    description=(
        "Run a command with bash in the workspace. Standard input is empty and there is no "
        "terminal. Output and errors are combined. The middle of long output is left out; a "
        f"file contains all of it. The command is killed after {TIMEOUT_S:.0f} s; `timeout_s` can "
        f"change this to at most {TIMEOUT_S_MAX:.0f} s. Processes that are left when the shell "
        "exits are killed too: use `background` for what has to keep running, such as a server. "
        "To read, search and change files, use the tools for that, not cat, grep, find and sed."
    ),
    arguments=BashArguments,
    effect="command",
    timeout_s=TIMEOUT_S_MAX + ENDING_S,
    requirements=_requirements,
    permission=ToolPermission("bash"),
    run=_run,
    repeatable=_is_over_with_its_call,
)


def _shell() -> str:
    return find_program("bash") or "/bin/sh"


def _title(command: str) -> str:
    first, more, _ = command.strip().partition("\n")
    return f"{first[:TITLE_CHARS_MAX]}..." if more or len(first) > TITLE_CHARS_MAX else first


def _notes(end: CommandEnd, timeout_s: float) -> list[str]:
    notes: list[str] = []
    if end.timed_out:
        notes.append(f"Killed after {timeout_s:g} s: it timed out. Allow more time with timeout_s.")
    elif end.status < 0:
        notes.append(f"Ended by signal {-end.status}.")
    elif end.status > 0 and end.has_run:
        notes.append(f"Exit status {end.status}.")
    if end.leftovers:
        noun, were = ("process", "was") if end.leftovers == 1 else ("processes", "were")
        notes.append(f"{end.leftovers} {noun} {were} still alive at the end and {were} killed.")
    if end.survivors:
        stuck = "Processes that could not be killed (stuck, or run by another user)"
        notes.append(f"{stuck}: {end.survivors}.")
    return notes


def _with_notes(output: str, notes: list[str]) -> str:
    if not notes:
        return output or "(No output.)"
    parted = f"{output}\n" if output and not output.endswith("\n") else output
    return f"{parted}[{' '.join(notes)}]"
