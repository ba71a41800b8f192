"""Runs the user's own shell command through the tool `bash`, in a turn without steps."""

import msgspec

from tiller_daemon.turn.call import completion_events, record_changes, refuse_call, run_call
from tiller_daemon.turn.context import Ending, TurnContext
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports, Refusal
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import ItemStarted
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import ToolCall

TOOL = "bash"
"""The only tool of a turn that runs the user's command."""

TIMEOUT_S = 600.0
"""Time limit of the user's command, the longest that the tool allows."""

SET_UP_FAILED = "The set-up of this worktree, `{command}`, failed{how}; its output says why."

NO_REQUEST = -1
"""The ordinal of a call that belongs to no model request."""


async def run_user_command(
    command: str,
    _context: TurnContext,
    history: History,
    ports: Ports,
    *,
    in_sandbox: bool = False,
) -> Ending:
    """Run a turn that consists of the user's command, and completes with any exit status.

    With `in_sandbox`, it is the set-up of a worktree: it runs in the session's sandbox, and the
    turn fails with it, as nobody waits for its output.

    The output becomes the turn's last message, so that every frontend shows it. On cancellation the
    call stays open until the turn is closed.
    """
    call = user_call(
        TOOL, {"command": command, "timeout_s": TIMEOUT_S}, ports.new_id(), in_sandbox=in_sandbox
    )
    history.add(call)
    await ports.emit(ItemStarted(call))
    prepared = ports.tools.prepare(call)
    if isinstance(prepared, Refusal):
        ended = refuse_call(call, prepared)
    else:
        ended = await run_call(prepared, ports)
    history.replace(ended)
    await ports.emit(*completion_events(ended))
    await record_changes(history, ports)
    if in_sandbox and (ended.state != "completed" or ended.exit_status):
        how = "" if ended.exit_status is None else f" with status {ended.exit_status}"
        error = ErrorInfo("set_up", SET_UP_FAILED.format(command=command, how=how))
        return Ending("failed", error, last_message=ended.output)
    return Ending("completed", last_message=ended.output)


def user_call(
    tool: str, arguments: dict[str, str | float], item_id: str, *, in_sandbox: bool = False
) -> ToolCall:
    """Return a new call that the user makes instead of a model."""
    return ToolCall(
        ItemId(item_id),
        CallId(item_id),
        tool,
        msgspec.json.encode(arguments).decode(),
        "pending",
        ordinal=NO_REQUEST,
        by_user=True,
        in_sandbox=in_sandbox,
    )
