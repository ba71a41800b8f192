"""Decides when each call of a response runs, which calls run concurrently, and which are skipped.

Calls start in call order. Read-only calls run concurrently. So do tasks that declare scopes which
do not overlap; any other call runs alone. Calls that need no question and can be repeated start
while the response still streams. Their results are withheld until the response is complete, so that
a failed stream can be retried. If steering arrives, calls that have not started are skipped.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import trio
from msgspec import Struct, field

from tiller_daemon.tools.write_scope import WriteScope
from tiller_daemon.turn.call import completion_events, refuse_call, run_call, run_stopped_call
from tiller_daemon.turn.decisions import is_doom_loop, recent_calls
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import REJECTED, Ports, PreparedCall, Refusal
from tiller_daemon.turn.tasks import Tasks, run_with_tasks
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import ToolCall, ToolErrorKind

SKIPPED_BY_STEERING = "skipped: the user sent new input"
SKIPPED_BY_REFUSAL = "skipped: another call in this response was refused, which ended the turn"


class _EarlyCall(Struct, frozen=True):
    """A call that started while its response streamed."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)


class _Candidate(NamedTuple):
    """A call that may run next."""

    call: ToolCall
    """The call as the model made it."""
    prepared: PreparedCall | Refusal
    """The call with its tool and valid arguments, or a refusal that says what is wrong."""
    repeats: bool
    """Whether the call completes a loop, so that the user must be asked."""
    writes: bool
    """Whether the call may write."""
    scope: WriteScope | None
    """The scope that the call declares; None if it declares none."""

    @property
    def call_now(self) -> ToolCall:
        """The call with any changes that hooks have made."""
        return self.call if isinstance(self.prepared, Refusal) else self.prepared.call


class CallDispatcher:
    """Runs the calls of one response: `offer` them while it streams, then `run` or `refuse` them.

    With `early`, offered calls may start at once, in `tasks`. On cancellation, calls without a
    result stay open until the turn is closed.
    """

    def __init__(self, history: History, ports: Ports, tasks: Tasks, *, early: bool) -> None:
        self._history = history
        self._ports = ports
        self._tasks = tasks
        self._previous_calls = recent_calls(history.items)
        self._allow_early = early
        self._early_closed = not early
        self._offered: list[ToolCall] = []
        self._early_calls: dict[str, _EarlyCall] = {}
        # Results that are withheld while the response streams; None once it is complete.
        self._withheld: list[ToolCall] | None = []
        self._rollback: Callable[[], None] | None = None
        self._stopped: list[tuple[PreparedCall, ToolCall]] = []
        # Calls that could run concurrently until a hook rewrote their arguments.
        self._now_writing: list[PreparedCall] = []

    def offer(self, call: ToolCall) -> None:
        """Take the next complete call while the response streams, and start it if it may run.

        No call starts early after a call that may write, nor once steering has arrived.
        """
        repeats = is_doom_loop((*self._previous_calls, *self._offered), call)
        self._offered.append(call)
        self._early_closed = self._early_closed or self._ports.mailbox.user_steers
        if self._early_closed:
            return
        prepared = self._ports.tools.prepare(call)
        if isinstance(prepared, Refusal):
            # `run` prepares the call again, since earlier calls may make it valid.
            return
        self._early_closed = prepared.effect == "write"
        if self._early_closed:
            self._tasks.start_soon(self._ports.changes.prepare)
        if not repeats and prepared.permit_early():
            self._rollback = self._rollback or self._ports.tools.savepoint()
            begun = self._early_calls[call.id] = _EarlyCall()
            self._tasks.start_soon(self._run_early, prepared, begun)

    async def drop(self) -> frozenset[str]:
        """Stop started calls and roll back their records; return the calls' ids once all ended."""
        begun, self._early_calls = self._early_calls, {}
        for early in begun.values():
            early.scope.cancel()
        for early in begun.values():
            await early.ended.wait()
        if self._rollback:
            self._rollback()
        self._rollback = None
        self._stopped.clear()
        self._offered.clear()
        self._withheld = []
        self._early_closed = not self._allow_early
        return frozenset(begun)

    async def announce_withheld(self) -> None:
        """Announce withheld results although the response failed for good, as the calls did run."""
        await self._emit_completions((*(self._withheld or ()), *self._take_stopped_results()))

    async def run(self, calls: Sequence[ToolCall], *, skips: bool = True) -> ErrorInfo | None:
        """Give each of `calls`, all calls of the response, exactly one result in history.

        `calls` are the last items of history. Returns why a call ends the turn, if one does: the
        user rejected the call, or it would have completed a loop. Calls that started early get
        their result when their task ends. With `skips`, calls that have not started are skipped if
        steering arrives.
        """
        withheld, self._withheld = self._withheld or [], None
        await self._complete(withheld)
        waiting = deque(
            (call, is_doom_loop((*self._previous_calls, *calls[:number]), call))
            for number, call in enumerate(calls)
            if call.id not in self._early_calls
        )
        rejected: ErrorInfo | None = None
        while waiting:
            if rejected or (skips and self._ports.mailbox.user_steers):
                reason = SKIPPED_BY_REFUSAL if rejected else SKIPPED_BY_STEERING
                await self.refuse((call for call, _ in waiting), "skipped", reason)
                break
            if group := self._next_group(waiting):
                rejected = await self._run_group(group)
                await self._run_stopped(asks=not rejected)
            else:
                await self._wait_for_early_calls()
        await self._run_stopped(asks=not rejected)
        return rejected

    async def refuse(self, calls: Iterable[ToolCall], kind: ToolErrorKind, output: str) -> None:
        """Complete every call with the same error, without running it."""
        for call in calls:
            await self._complete([refuse_call(call, Refusal(kind, output))])

    async def _run_early(self, prepared: PreparedCall, early: _EarlyCall) -> None:
        with early.scope:
            ended = await run_call(prepared, self._ports)
            if prepared.was_stopped:
                self._stopped.append((prepared, ended))
            elif self._withheld is None:
                await self._complete([ended])
            else:
                self._withheld.append(ended)
        early.ended.set()

    async def _run_stopped(self, *, asks: bool) -> None:
        """Ask about calls that were stopped when they tried to write; run approved calls again."""
        await self._wait_for_early_calls()
        asks = asks and not self._ports.mailbox.user_steers
        while asks and self._stopped:
            prepared, first = self._stopped.pop(0)
            await self._complete([await run_stopped_call(prepared, first, self._ports)])
        await self._complete(self._take_stopped_results())

    def _take_stopped_results(self) -> list[ToolCall]:
        """Remove and return the stopped calls with their first results."""
        results = [ended for _, ended in self._stopped]
        self._stopped.clear()
        return results

    async def _wait_for_early_calls(self) -> None:
        for early in self._early_calls.values():
            await early.ended.wait()

    def _next_group(self, waiting: deque[tuple[ToolCall, bool]]) -> list[_Candidate]:
        """Take the next calls that may run concurrently, or one call that must run alone.

        The group is empty if the next call must wait for calls that started early. A call is
        prepared only after all earlier calls that may write have ended, because they can change
        where its paths lead.
        """
        busy = any(not early.ended.is_set() for early in self._early_calls.values())
        group: list[_Candidate] = []
        while waiting:
            call, repeats = waiting[0]
            candidate = _candidate(call, self._ports.tools.prepare(call), repeats=repeats)
            if (candidate.writes and busy) or not all(_fit(one, candidate) for one in group):
                break
            waiting.popleft()
            group.append(candidate)
        return group

    async def _run_group(self, group: Sequence[_Candidate]) -> ErrorInfo | None:
        """Run calls concurrently, started in call order; return why a call ends the turn, if so."""
        rejections: list[Refusal] = []

        async def run(candidate: _Candidate) -> None:
            refusal = await self._run_one(candidate)
            if refusal and refusal.ends_turn:
                rejections.append(refusal)

        async def run_all(tasks: Tasks) -> None:
            for candidate in group:
                await tasks.start(run, candidate)

        # A call that runs alone needs no nursery.
        if len(group) == 1:
            await run(group[0])
        else:
            await run_with_tasks(run_all)
        while self._now_writing:
            rejections += await self._run_now_writing(skips=bool(rejections))
        return rejections[0].ends_turn if rejections else None

    async def _run_now_writing(self, *, skips: bool) -> list[Refusal]:
        """Run or skip the next call that must run alone because a hook rewrote its arguments."""
        prepared = self._now_writing.pop(0)
        await self._wait_for_early_calls()
        if skips or self._ports.mailbox.user_steers:
            reason = SKIPPED_BY_REFUSAL if skips else SKIPPED_BY_STEERING
            await self.refuse((prepared.call,), "skipped", reason)
            return []
        refusal = await self._run_permitted(prepared)
        return [refusal] if refusal else []

    async def _run_one(self, candidate: _Candidate) -> Refusal | None:
        prepared = await self._permit(candidate)
        if isinstance(prepared, Refusal):
            await self._complete([refuse_call(candidate.call_now, prepared)])
            return prepared
        if prepared.effect == "write" and (
            not candidate.writes or prepared.scope != candidate.scope
        ):
            # A hook rewrote the arguments, and other calls may be running.
            self._now_writing.append(prepared)
            return None
        return await self._run_permitted(prepared)

    async def _run_permitted(self, prepared: PreparedCall) -> Refusal | None:
        ended = await run_call(prepared, self._ports)
        if prepared.was_stopped:
            self._stopped.append((prepared, ended))
            return None
        await self._complete([ended])
        rejected = ended.error_kind == "denied"
        return Refusal("denied", ended.output, REJECTED) if rejected else None

    async def _permit(self, candidate: _Candidate) -> PreparedCall | Refusal:
        prepared, repeats = candidate.prepared, candidate.repeats
        if repeats and (refusal := await self._ports.tools.permit_repetition(candidate.call)):
            return refusal
        if isinstance(prepared, Refusal):
            return prepared
        return await prepared.permit() or prepared

    async def _complete(self, calls: Sequence[ToolCall]) -> None:
        """Put results into history and announce them."""
        for call in calls:
            self._history.replace(call)
        await self._emit_completions(calls)

    async def _emit_completions(self, calls: Sequence[ToolCall]) -> None:
        if calls:
            await self._ports.emit(*(body for call in calls for body in completion_events(call)))


def _candidate(call: ToolCall, prepared: PreparedCall | Refusal, *, repeats: bool) -> _Candidate:
    if isinstance(prepared, Refusal):
        return _Candidate(call, prepared, repeats, writes=False, scope=None)
    writes = prepared.effect == "write"
    return _Candidate(prepared.call, prepared, repeats, writes, prepared.scope)


def _fit(one: _Candidate, other: _Candidate) -> bool:
    """Whether two calls may run concurrently."""
    if not (one.writes or other.writes):
        return True
    if not (one.writes and other.writes and one.scope and other.scope):
        return False
    return not one.scope.overlaps(other.scope)
