"""The result of the tools for background commands: the state of a command and its new output."""

from tiller_daemon.tools.base import BackgroundReport, ToolResult
from tiller_daemon.tools.truncation import truncate
from tiller_protocol.items import BackgroundCommand


def result_of(report: BackgroundReport) -> ToolResult:
    """Return the report on a background command or sub-agent as a result for the model."""
    command = report.command
    if command.sub_agent:
        return ToolResult(f"[{_state_of_task(command)}]", title=f"{command.id}: {command.command}")
    where = command.output_path
    output = truncate(report.output, where=f"the complete output is in {where}")
    if report.dropped_bytes:
        output = f"[... {report.dropped_bytes} bytes before this are in {where} ...]\n{output}"
    if output and not output.endswith("\n"):
        output += "\n"
    failed = command.state == "exited" and command.exit_status != 0
    return ToolResult(
        f"{output}[{'. '.join((_state(report), *report.notes))}]",
        title=f"{command.id}: {command.command}",
        failed=failed,
        exit_status=command.exit_status,
        stopped_by=report.stopped_by,
    )


def _state(report: BackgroundReport) -> str:
    command = report.command
    match command.state:
        case "running":
            nothing_new = "" if report.output else " and has printed nothing new"
            return (
                f"{command.id} runs in the background{nothing_new}. Read its output with "
                "bash_output, or end it with bash_kill"
            )
        case "exited":
            return f"{command.id} {_ended(command.exit_status)}"
        case "killed":
            return f"{command.id} was ended"
        case "lost":
            return f"{command.id} ended when the daemon stopped or could not write its log"


def _state_of_task(task: BackgroundCommand) -> str:
    sub_agent = task.sub_agent
    assert sub_agent
    steps = f"after {sub_agent.steps} step{'' if sub_agent.steps == 1 else 's'}"
    match task.state:
        case "running":
            return f"{task.id} is still working, {steps}. Its report will come as a message"
        case "exited":
            return f"{task.id} has ended {steps}. Its report comes as a message"
        case "killed":
            return f"{task.id} was ended {steps}. To continue, `resume` {sub_agent.session_id}"
        case "lost":
            lost = f"{task.id} was lost when the daemon stopped or could not write its log"
            return f"{lost}. To continue, `resume` {sub_agent.session_id}"


def _ended(status: int | None) -> str:
    if status is None:
        return "could not be started"
    return f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
