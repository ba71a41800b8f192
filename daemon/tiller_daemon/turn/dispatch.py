"""Running the calls of one response: who runs beside whom, and what each of them answers.

Calls that only read run at the same time, any other call runs alone, all in call order. Between
them steering is looked for: calls that have not started then are skipped.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import trio
from msgspec import Struct, structs

from tiller_daemon.tools.base import ToolFailure, ToolResult
from tiller_daemon.turn.decide import calls_since_input, is_doom_loop
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports, PreparedCall, Refusal
from tiller_protocol.events import AnyBody, ItemCompleted, ItemDelta, ToolCallUpdated
from tiller_protocol.items import ToolCall, ToolErrorKind

LIVE_OUTPUT_BYTES_MAX = 256 * 1024
"""How much output of one call is sent while it runs; the result has head and tail of all of it."""

SKIPPED_BY_STEERING = "skipped: the user steered"
SKIPPED_BY_REJECTION = "skipped: the user rejected another call of this response"


class Dispatched(Struct, frozen=True):
    """What running the calls came to; `rejected` means that the user's no ends the turn."""

    rejected: bool


async def run_calls(calls: Sequence[ToolCall], history: History, ports: Ports) -> Dispatched:
    """Give every call exactly one result, in `history` and as events.

    On cancellation the calls without a result stay open for whoever closes the turn.
    """
    earlier = calls_since_input(history.items)[: -len(calls) or None]
    waiting = deque(
        (call, is_doom_loop((*earlier, *calls[:number]), call)) for number, call in enumerate(calls)
    )
    rejected = False
    while waiting:
        if rejected or ports.mailbox.has_steering:
            reason = SKIPPED_BY_REJECTION if rejected else SKIPPED_BY_STEERING
            await refuse_all((call for call, _ in waiting), "skipped", reason, history, ports)
            break
        rejected = await _run_group(_next_group(waiting, ports), history, ports)
    return Dispatched(rejected)


async def run_unasked(call: ToolCall, history: History, ports: Ports) -> ToolCall:
    """Run a call of the user's own, whatever the rules are, and return it with its result.

    As `run_calls` otherwise.
    """
    prepared = ports.tools.prepare(call)
    if isinstance(prepared, PreparedCall):
        return await _execute(prepared, history, ports)
    return await _refuse(call, prepared, history, ports)


async def refuse_all(
    calls: Iterable[ToolCall], kind: ToolErrorKind, output: str, history: History, ports: Ports
) -> None:
    """Answer every call with the same error; none of them runs."""
    for call in calls:
        await _refuse(call, Refusal(kind, output), history, ports)


class _Candidate(NamedTuple):
    """A call that may run; `repeats` says that it goes in circles, so that the user is asked."""

    call: ToolCall
    prepared: PreparedCall | Refusal
    repeats: bool


def _next_group(waiting: deque[tuple[ToolCall, bool]], ports: Ports) -> list[_Candidate]:
    """Take the next calls that may run together: neighbours that only read, or one that may not.

    A call is prepared when every call before it that could change something has ended: what a path
    leads to is not known earlier.
    """
    group: list[_Candidate] = []
    while waiting:
        call, repeats = waiting[0]
        prepared = ports.tools.prepare(call)
        alone = isinstance(prepared, PreparedCall) and prepared.effect == "write"
        if alone and group:
            break
        waiting.popleft()
        known = prepared.call if isinstance(prepared, PreparedCall) else call
        group.append(_Candidate(known, prepared, repeats))
        if alone:
            break
    return group


async def _run_group(group: Sequence[_Candidate], history: History, ports: Ports) -> bool:
    rejections: list[Refusal] = []

    async def run(candidate: _Candidate) -> None:
        refusal = await _run_one(candidate, history, ports)
        if refusal and refusal.ends_turn:
            rejections.append(refusal)

    if len(group) == 1:
        await run(group[0])
    else:
        async with trio.open_nursery() as nursery:
            for candidate in group:
                nursery.start_soon(run, candidate)
    return bool(rejections)


async def _run_one(candidate: _Candidate, history: History, ports: Ports) -> Refusal | None:
    call, prepared, repeats = candidate
    refusal = await ports.tools.permit_repetition(call) if repeats else None
    if refusal is None and isinstance(prepared, PreparedCall):
        refusal = await ports.tools.permit(prepared)
        if refusal is None:
            await _execute(prepared, history, ports)
            return None
    elif refusal is None and isinstance(prepared, Refusal):
        refusal = prepared
    if refusal is not None:
        await _refuse(call, refusal, history, ports)
    return refusal


async def _execute(prepared: PreparedCall, history: History, ports: Ports) -> ToolCall:
    """Run a permitted call; one that may write is in the log as running before it begins."""
    call = structs.replace(prepared.call, state="running", started_at=ports.time())
    await ports.emit(ToolCallUpdated(call.id, "running", title=call.title))
    if prepared.effect == "write":
        await ports.committed()
    try:
        result = await ports.tools.run(prepared, _live_output(call.id, ports))
        ended = _with_result(call, result, ports.time())
    except ToolFailure as failure:
        ended = _with_error(call, "failed", str(failure), ports.time())
    return await _complete(ended, history, ports)


def _live_output(item_id: str, ports: Ports) -> Callable[[str], Awaitable[None]]:
    left = LIVE_OUTPUT_BYTES_MAX

    async def output(piece: str) -> None:
        nonlocal left
        if left <= 0 or not piece:
            return
        shown = piece[:left]
        left -= len(shown)
        if left <= 0:
            shown += "\n… more output is kept and not shown while the call runs\n"
        await ports.emit(ItemDelta(item_id, "output", shown))

    return output


async def _refuse(call: ToolCall, refusal: Refusal, history: History, ports: Ports) -> ToolCall:
    return await _complete(_with_error(call, refusal.kind, refusal.output, None), history, ports)


async def _complete(call: ToolCall, history: History, ports: Ports) -> ToolCall:
    bodies: tuple[AnyBody, ...] = (
        ToolCallUpdated(call.id, call.state, call.error_kind, call.title),
        ItemCompleted(call),
    )
    history.replace(call)
    await ports.emit(*bodies)
    return call


def _with_result(call: ToolCall, result: ToolResult, now: float) -> ToolCall:
    return structs.replace(
        call,
        state="error" if result.failed else "completed",
        error_kind="failed" if result.failed else None,
        title=result.title or call.title,
        output=result.output,
        diff=result.diff,
        images=result.images,
        spill_path=result.spill_path,
        exit_status=result.exit_status,
        sub_agent=result.sub_agent,
        duration_s=_duration(call, now),
    )


def _with_error(call: ToolCall, kind: ToolErrorKind, output: str, now: float | None) -> ToolCall:
    duration_s = None if now is None else _duration(call, now)
    return structs.replace(
        call, state="error", error_kind=kind, output=output, duration_s=duration_s
    )


def _duration(call: ToolCall, now: float) -> float | None:
    return None if call.started_at is None else max(0.0, now - call.started_at)
