"""Decides when each call of a response runs, which calls run concurrently, and which are skipped.

Each call is in one state, and `TRANSITIONS` lists where it can go from there:

- `waiting`: the call has not begun. Calls begin in call order. Read-only calls run concurrently. So
  do tasks that declare scopes which do not overlap; any other call runs alone.
- `running`: calls that need no question and can be repeated start early, while the response still
  streams. No call starts early after a call that may write, nor once steering has arrived.
- `withheld`: a call that started early has a result. It is not in history before the response is
  complete, so that a failed stream can be retried.
- `postponed`: a call is permitted, but a hook has rewritten its arguments, so that it must run
  alone, after the calls with which it began.
- `stopped`: a call that seemed only to read was stopped when it tried to write. Once nothing else
  runs, the user is asked whether to run it again.
- `done`: the result is in history and was announced.

If steering arrives or a call ends the turn, calls that wait or are postponed are skipped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import trio

from tiller_daemon.tools.write_scope import WriteScope
from tiller_daemon.turn.call import completion_events, refuse_call, run_call, run_stopped_call
from tiller_daemon.turn.decisions import is_doom_loop, recent_calls
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import REJECTED, Ports, PreparedCall, Refusal, ToolRuntime
from tiller_daemon.turn.tasks import Tasks, run_with_tasks
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import ToolCall, ToolErrorKind

SKIPPED_BY_STEERING = "skipped: the user sent new input"
SKIPPED_BY_REFUSAL = "skipped: another call in this response was refused, which ended the turn"

State = Literal["waiting", "running", "withheld", "postponed", "stopped", "done"]

TRANSITIONS: Final[Mapping[State, tuple[State, ...]]] = {
    "waiting": ("running", "postponed", "done"),
    "running": ("withheld", "stopped", "done"),
    "withheld": ("done",),
    "postponed": ("running", "done"),
    "stopped": ("done",),
    "done": (),
}


@dataclass
class _Call:
    """A call of the response."""

    call: ToolCall
    """The call as the model made it."""
    repeats: bool
    """Whether the call completes a loop, so that the user must be asked."""
    state: State = "waiting"
    """The state; see `TRANSITIONS`."""
    since: int = 0
    """Orders calls by when they came into their state."""
    prepared: PreparedCall = field(init=False)
    """The call with its tool and valid arguments; unset before `prepare`, and if that refuses."""
    refusal: Refusal | None = None
    """What is wrong with the call."""
    writes: bool = False
    """Whether the call may write, unless a hook changes it."""
    scope: WriteScope | None = None
    """The scope that the call declares, unless a hook changes it; None if it declares none."""
    result: ToolCall = field(init=False)
    """The call with its result, or if it was stopped, with its first result; unset before."""
    early: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Cancels the call if it has started early."""
    ended: trio.Event = field(default_factory=trio.Event)
    """Set when the call has ended if it has started early."""

    @property
    def now(self) -> ToolCall:
        """The call after `prepare`, with its title and the changes that hooks have made."""
        return self.call if self.refusal else self.prepared.call

    def prepare(self, tools: ToolRuntime) -> None:
        """Find the tool and validate the arguments, as things are now."""
        prepared = tools.prepare(self.call)
        if isinstance(prepared, Refusal):
            self.refusal, self.writes, self.scope = prepared, False, None
        else:
            self.refusal, self.prepared = None, prepared
            self.writes, self.scope = prepared.effect == "write", prepared.scope

    def fits(self, other: "_Call") -> bool:
        """Whether two calls may run concurrently."""
        if not (self.writes or other.writes):
            return True
        if not (self.writes and other.writes and self.scope and other.scope):
            return False
        return not self.scope.overlaps(other.scope)


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
        self._calls: dict[str, _Call] = {}
        self._moves = 0
        self._streams = True
        self._allow_early = early
        self._early_closed = not early
        self._rollback: Callable[[], None] | None = None
        self._rejected: ErrorInfo | None = None

    def offer(self, call: ToolCall) -> None:
        """Take the next complete call while the response streams, and start it if it may run."""
        one = self._known(call)
        self._early_closed = self._early_closed or self._ports.mailbox.user_steers
        if self._early_closed:
            return
        one.prepare(self._ports.tools)
        if one.refusal:
            # `run` prepares the call again, since earlier calls may make it valid.
            return
        self._early_closed = one.writes
        if one.writes:
            self._tasks.start_soon(self._ports.changes.prepare)
        if not one.repeats and one.prepared.permit_early():
            self._rollback = self._rollback or self._ports.tools.savepoint()
            self._move(one, "running")
            self._tasks.start_soon(self._run_early, one)

    async def drop(self) -> frozenset[str]:
        """Stop started calls and roll back their records; return the calls' ids once all ended."""
        begun = [one for one in self._calls.values() if one.state != "waiting"]
        for one in begun:
            one.early.cancel()
        for one in begun:
            await one.ended.wait()
        if self._rollback:
            self._rollback()
        self._rollback = None
        self._calls.clear()
        self._early_closed = not self._allow_early
        return frozenset(one.call.id for one in begun)

    async def announce_withheld(self) -> None:
        """Announce withheld results although the response failed for good, as the calls did run."""
        await self._announce(self._in("withheld", "stopped"))

    async def run(self, calls: Sequence[ToolCall], *, skips: bool = True) -> ErrorInfo | None:
        """Give each of `calls`, all calls of the response, exactly one result in history.

        `calls` are the last items of history. Returns why a call ends the turn, if one does: the
        user rejected the call, or it would have completed a loop. With `skips`, calls that have not
        started are skipped if steering arrives.
        """
        for call in calls:
            self._known(call)
        self._streams = False
        await self._finish(self._in("withheld"))
        while waiting := self._in("waiting"):
            if self._rejected or (skips and self._ports.mailbox.user_steers):
                await self._skip(waiting)
            elif group := self._next_group(waiting):
                await self._run_group(group)
                await self._run_stopped()
            else:
                await self._wait_for_early_calls()
        await self._run_stopped()
        return self._rejected

    async def refuse(self, calls: Iterable[ToolCall], kind: ToolErrorKind, output: str) -> None:
        """Complete every call with the same error, without running it."""
        for call in calls:
            await self._refuse(self._known(call), call, Refusal(kind, output))

    def _known(self, call: ToolCall) -> _Call:
        if call.id not in self._calls:
            before = (*self._previous_calls, *(one.call for one in self._calls.values()))
            self._calls[call.id] = _Call(call, is_doom_loop(before, call))
        return self._calls[call.id]

    def _move(self, one: _Call, state: State) -> None:
        if state not in TRANSITIONS[one.state]:
            raise RuntimeError(f"a call that is {one.state} can't become {state}")
        self._moves += 1
        one.state, one.since = state, self._moves

    def _in(self, *states: State) -> list[_Call]:
        """Return the calls in these states, in the order in which they came into them."""
        found = [one for one in self._calls.values() if one.state in states]
        return sorted(found, key=lambda one: one.since)

    async def _run_early(self, one: _Call) -> None:
        with one.early:
            await self._run_to_end(one)
        one.ended.set()

    async def _run_to_end(self, one: _Call) -> None:
        """Run a call that is `running`."""
        one.result = await run_call(one.prepared, self._ports)
        if one.prepared.was_stopped:
            self._move(one, "stopped")
        elif self._streams:
            self._move(one, "withheld")
        else:
            await self._finish([one])

    async def _wait_for_early_calls(self) -> None:
        for one in self._in("running"):
            await one.ended.wait()

    def _next_group(self, waiting: Sequence[_Call]) -> list[_Call]:
        """Return the next calls that may run concurrently, or one call that must run alone.

        The group is empty if the next call must wait for calls that started early. A call is
        prepared only after all earlier calls that may write have ended, because they can change
        where its paths lead.
        """
        group: list[_Call] = []
        for one in waiting:
            one.prepare(self._ports.tools)
            if (one.writes and self._in("running")) or not all(map(one.fits, group)):
                break
            group.append(one)
        return group

    async def _run_group(self, group: Sequence[_Call]) -> None:
        """Run calls concurrently, started in call order; then those that must run alone."""

        async def run_all(tasks: Tasks) -> None:
            for one in group:
                await tasks.start(self._run_one, one)

        # A call that runs alone needs no nursery.
        await (self._run_one(group[0]) if len(group) == 1 else run_with_tasks(run_all))
        for one in self._in("postponed"):
            await self._wait_for_early_calls()
            if self._rejected or self._ports.mailbox.user_steers:
                await self._skip([one])
            else:
                await self._run_permitted(one)

    async def _run_one(self, one: _Call) -> None:
        refusal = one.refusal
        if one.repeats:
            refusal = await self._ports.tools.permit_repetition(one.now) or refusal
        if refusal or (refusal := await one.prepared.permit()):
            await self._refuse(one, one.now, refusal)
        elif one.prepared.effect == "write" and (not one.writes or one.prepared.scope != one.scope):
            # A hook rewrote the arguments, and other calls may be running.
            self._move(one, "postponed")
        else:
            await self._run_permitted(one)

    async def _run_permitted(self, one: _Call) -> None:
        self._move(one, "running")
        await self._run_to_end(one)
        if one.state == "done" and one.result.error_kind == "denied":
            self._rejected = self._rejected or REJECTED

    async def _run_stopped(self) -> None:
        """Ask about calls that were stopped when they tried to write; run approved calls again."""
        await self._wait_for_early_calls()
        if not (self._rejected or self._ports.mailbox.user_steers):
            for one in self._in("stopped"):
                one.result = await run_stopped_call(one.prepared, one.result, self._ports)
                await self._finish([one])
        await self._finish(self._in("stopped"))

    async def _skip(self, calls: Iterable[_Call]) -> None:
        reason = SKIPPED_BY_REFUSAL if self._rejected else SKIPPED_BY_STEERING
        for one in calls:
            call = one.call if one.state == "waiting" else one.now
            await self._refuse(one, call, Refusal("skipped", reason))

    async def _refuse(self, one: _Call, call: ToolCall, refusal: Refusal) -> None:
        one.result = refuse_call(call, refusal)
        await self._finish([one])
        self._rejected = self._rejected or refusal.ends_turn

    async def _finish(self, calls: Sequence[_Call]) -> None:
        """Put results into history and announce them."""
        for one in calls:
            self._history.replace(one.result)
            self._move(one, "done")
        await self._announce(calls)

    async def _announce(self, calls: Sequence[_Call]) -> None:
        if calls:
            await self._ports.emit(
                *(body for one in calls for body in completion_events(one.result))
            )
