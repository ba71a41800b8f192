"""What the tools about background commands say of one: its state, and what it has printed."""

from tiller_daemon.tools.base import BackgroundReport, ToolResult
from tiller_daemon.tools.truncation import truncate


def report(look: BackgroundReport) -> ToolResult:
    """Return what a look at a background command shows."""
    command = look.command
    where = command.output_path
    output = truncate(look.output, where=f"the whole is in {where}")
    if look.dropped_bytes:
        output = f"[... {look.dropped_bytes} bytes before this are in {where} ...]\n{output}"
    if output and not output.endswith("\n"):
        output += "\n"
    failed = command.state == "exited" and command.exit_status != 0
    return ToolResult(
        f"{output}[{'. '.join((_state(look), *look.notes))}]",
        title=f"{command.id}: {command.command}",
        failed=failed,
        exit_status=command.exit_status,
        stopped_by=look.stopped_by,
    )


def _state(look: BackgroundReport) -> str:
    command = look.command
    match command.state:
        case "running":
            nothing = "" if look.output else " and has printed nothing new"
            return (
                f"{command.id} runs in the background{nothing}. Look with bash_output, "
                "end it with bash_kill"
            )
        case "exited":
            return f"{command.id} {_ended(command.exit_status)}"
        case "killed":
            return f"{command.id} was ended"
        case "lost":
            return f"{command.id} ended with the daemon"


def _ended(status: int | None) -> str:
    if status is None:
        return "could not be started"
    return f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
