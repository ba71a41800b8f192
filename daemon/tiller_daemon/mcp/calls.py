"""One call of a server's tool. A task of the connection sends the call; a task of the turn waits.

Therefore an interrupt never waits for a server: the turn's task returns at once, and the
connection's task notifies the server. The turn's task handles progress and questions, so that
nothing happens in a turn after its end.
"""

import math
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import trio
from mcp.client import Client

from tiller_daemon.mcp.elicitation import ask_user
from tiller_daemon.tools.base import ToolEnvironment

Progress = tuple[float, float | None, str | None]
"""Progress so far, the total if known, and a message."""

CURRENT_CALL: ContextVar["McpCall | None"] = ContextVar("mcp_call", default=None)
"""The call that the connection's current task works for."""


class ConnectionEnded(Exception):
    """The connection ended before the call was answered."""


@dataclass(eq=False)
class _Elicitation:
    """A question from the server; `result` is valid once `answered` is set."""

    params: types.ElicitRequestParams
    answered: trio.Event = field(default_factory=trio.Event)
    result: types.ElicitResult = field(default_factory=lambda: types.ElicitResult(action="cancel"))


class McpCall:
    """A call in flight. `execute` runs in the connection's task, `wait` in the turn's task."""

    def __init__(
        self, server: str, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> None:
        self.session_id = environment.session_id
        self._server = server
        self._tool = tool
        self._arguments = arguments
        self._environment = environment
        self._scope = trio.CancelScope()
        self._limit = trio.CancelScope()
        self._progress: list[Progress] = []
        self._elicitations: deque[_Elicitation] = deque()
        self._questions_open = 0
        self._time_left_s = 0.0
        self._changed = trio.Event()
        self._outcome: types.CallToolResult | Exception | None = None
        self._finished = False

    async def execute(self, client: Client) -> None:
        """Make the call and store its outcome. On cancellation, the package notifies the server."""
        CURRENT_CALL.set(self)
        try:
            with self._scope:
                self._outcome = await client.call_tool(
                    self._tool, self._arguments, progress_callback=self._add_progress
                )
        except Exception as error:
            self._outcome = error
        finally:
            self._finished = True
            self._changed.set()

    async def wait(self, timeout_s: float) -> types.CallToolResult:
        """Show progress until the outcome is there; return it, or raise it if it is an exception.

        Raises `ConnectionEnded`, and `trio.TooSlowError` after `timeout_s`. Time in which a
        question to the user is open does not count.
        """
        self._limit = trio.CancelScope(deadline=trio.current_time() + timeout_s)
        try:
            with self._limit:
                await self._forward()
        finally:
            # Ends `execute` if the call is still in flight; the package then notifies the server.
            self._scope.cancel()
        if self._limit.cancelled_caught:
            raise trio.TooSlowError
        if self._outcome is None:
            raise ConnectionEnded
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Let the turn's task ask the user, and wait for the answer."""
        elicitation = _Elicitation(params)
        self._elicitations.append(elicitation)
        self._changed.set()
        await elicitation.answered.wait()
        return elicitation.result

    async def _forward(self) -> None:
        """Show progress and ask questions until the call is over."""
        async with trio.open_nursery() as nursery:
            while True:
                changed = self._changed = trio.Event()
                await self._show_progress()
                while self._elicitations:
                    nursery.start_soon(self._ask_user, self._elicitations.popleft())
                if self._finished:
                    break
                await changed.wait()
            # The call is over, so nobody waits for answers to open questions.
            self._environment.user.withdraw()

    async def _ask_user(self, elicitation: _Elicitation) -> None:
        """Ask the user; the time limit is suspended while any question is open."""
        if not self._questions_open:
            # The limit applies to the server; the user may take hours to answer.
            self._time_left_s = self._limit.deadline - trio.current_time()
            self._limit.deadline = math.inf
        self._questions_open += 1
        elicitation.result = await ask_user(
            self._server, elicitation.params, self._environment.user.ask
        )
        self._questions_open -= 1
        if not self._questions_open:
            self._limit.deadline = trio.current_time() + self._time_left_s
        elicitation.answered.set()

    async def _add_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        await trio.lowlevel.checkpoint()
        self._progress.append((progress, total, message))
        self._changed.set()

    async def _show_progress(self) -> None:
        # The package delivers each notification in a separate task, in any order.
        shown = sorted(self._progress, key=lambda one: one[0])
        self._progress.clear()
        for one in shown:
            await self._environment.user.output(_line(one))


def _line(progress: Progress) -> str:
    done, total, message = progress
    amount = f"{done:g}" if not total else f"{done:g}/{total:g}"
    return f"[{amount}] {message}\n" if message else f"[{amount}]\n"
