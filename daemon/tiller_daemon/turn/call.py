"""Runs one tool call: announces the call and attaches its result. Also records file changes.

`dispatch` decides which calls run, and when.
"""

from collections.abc import Awaitable, Callable

from msgspec import structs

from tiller_daemon.tools.base import ToolFailure, ToolResult
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports, PreparedCall, Refusal
from tiller_protocol.events import AnyBody, ItemCompleted, ItemDelta, ItemStarted, ToolCallUpdated
from tiller_protocol.items import ToolCall, ToolErrorKind

LIVE_OUTPUT_CHARS_MAX = 256 * 1024
"""How much output of one call is sent while it runs; the result has the output's head and tail."""


async def run_call(prepared: PreparedCall, ports: Ports) -> ToolCall:
    """Run a permitted call and return it with its result, which the caller announces.

    Before a call that may write begins, the log says that it is running. After a cancellation, the
    call's state is still `running`.
    """
    if prepared.effect == "write":
        await ports.changes.before()
    call = structs.replace(prepared.call, state="running", started_at=ports.time())
    begins = ToolCallUpdated(
        call.id,
        "running",
        title=call.title,
        effect=prepared.effect,
        rewritten_arguments=call.rewritten_arguments,
        allowed=call.allowed,
    )
    await ports.emit(begins)
    if prepared.effect == "write":
        await ports.committed()
    try:
        result = await prepared.run(_live_output(call.id, ports))
        # The user's answer to a later question may have given the call further permissions.
        call = structs.replace(call, allowed=prepared.call.allowed)
        return _with_result(call, result, ports.time())
    except ToolFailure as failure:
        return _with_error(call, "failed", str(failure), ports.time())


async def run_stopped_call(prepared: PreparedCall, first: ToolCall, ports: Ports) -> ToolCall:
    """Run a stopped call again if the user approves, and return it with its latest result.

    `first` is the call with its first result, which has not been announced. When the call runs
    again, it counts as a call that writes, and the log says so, because after a crash the
    call must not look harmless.
    """
    call = first

    async def begin() -> None:
        nonlocal call
        await ports.changes.before()
        call = structs.replace(first, effect="write", allowed=prepared.call.allowed)
        begins = ToolCallUpdated(call.id, "running", effect="write", allowed=call.allowed)
        await ports.emit(begins)
        await ports.committed()

    try:
        result = await prepared.run_again(begin, _live_output(first.id, ports))
        return _with_result(call, result, ports.time())
    except ToolFailure as failure:
        return _with_error(call, "failed", str(failure), ports.time())


async def record_changes(history: History, ports: Ports) -> None:
    """Add a patch to history if calls have changed files since the last patch."""
    if patch := await ports.changes.after():
        history.add(patch)
        await ports.emit(ItemStarted(patch), ItemCompleted(patch))


def refuse_call(call: ToolCall, refusal: Refusal) -> ToolCall:
    """Return a call that does not run, with the refusal as its result."""
    return _with_error(call, refusal.kind, refusal.output, None)


def completion_events(call: ToolCall) -> tuple[AnyBody, AnyBody]:
    """Return the events that end a call."""
    return (
        ToolCallUpdated(call.id, call.state, call.error_kind, call.title),
        ItemCompleted(call),
    )


def _live_output(item_id: str, ports: Ports) -> Callable[[str], Awaitable[None]]:
    left = LIVE_OUTPUT_CHARS_MAX

    async def output(piece: str) -> None:
        nonlocal left
        if left <= 0 or not piece:
            return
        shown = piece[:left]
        left -= len(shown)
        if left <= 0:
            shown += "\n… further output is recorded but not shown while the call runs\n"
        await ports.emit(ItemDelta(item_id, "output", shown, "tool_call"))

    return output


def _with_result(call: ToolCall, result: ToolResult, now: float) -> ToolCall:
    return structs.replace(
        call,
        state="error" if result.failed else "completed",
        error_kind=_error_kind(result),
        title=result.title or call.title,
        output=result.output,
        diff=result.diff,
        images=result.images,
        spill_path=result.spill_path,
        exit_status=result.exit_status,
        sub_agent=result.sub_agent,
        duration_s=_duration(call, now),
    )


def _error_kind(result: ToolResult) -> ToolErrorKind | None:
    if not result.failed:
        return None
    return "denied" if result.rejected else "failed"


def _with_error(call: ToolCall, kind: ToolErrorKind, output: str, now: float | None) -> ToolCall:
    duration_s = None if now is None else _duration(call, now)
    return structs.replace(
        call, state="error", error_kind=kind, output=output, duration_s=duration_s
    )


def _duration(call: ToolCall, now: float) -> float | None:
    return None if call.started_at is None else max(0.0, now - call.started_at)
