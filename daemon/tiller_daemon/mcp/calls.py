"""One call of a server's tool: a task of the connection waits for its answer, a turn's task for it.

So an interrupt ends at once whatever the server does: the turn's task leaves, and that of the
connection tells the server in its own time. What a call says and asks meanwhile is passed on by the
turn's task, so that nothing of a turn happens after its end.
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
"""How far it is, of how much, and in words."""

CURRENT_CALL: ContextVar["McpCall | None"] = ContextVar("mcp_call", default=None)
"""The call that a task of the connection works on."""


class ConnectionEnded(Exception):
    """The connection ended before the call had."""


@dataclass(eq=False)
class _Elicitation:
    """What the server asks, and the user's answer once it is there."""

    params: types.ElicitRequestParams
    answered: trio.Event = field(default_factory=trio.Event)
    result: types.ElicitResult = field(default_factory=lambda: types.ElicitResult(action="cancel"))


class McpCall:
    """A call on its way. `execute` is the connection's task, `wait` the turn's."""

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
        """Make the call and keep its outcome; cancelled, the server is told."""
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
            self._wake()

    async def wait(self, timeout_s: float) -> types.CallToolResult:
        """Wait for the outcome and show progress; raises it when it is an exception.

        Raises `trio.TooSlowError` after `timeout_s`, in which questions to the user do not count,
        and `ConnectionEnded`.
        """
        self._limit = trio.CancelScope(deadline=trio.current_time() + timeout_s)
        try:
            with self._limit:
                await self._forward()
        finally:
            self._scope.cancel()
        if self._limit.cancelled_caught:
            raise trio.TooSlowError
        if self._outcome is None:
            raise ConnectionEnded
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Have the turn's task ask the user."""
        elicitation = _Elicitation(params)
        self._elicitations.append(elicitation)
        self._wake()
        await elicitation.answered.wait()
        return elicitation.result

    async def _forward(self) -> None:
        """Show progress and put questions until the call is over."""
        async with trio.open_nursery() as nursery:
            while True:
                changed = self._changed = trio.Event()
                await self._show_progress()
                while self._elicitations:
                    nursery.start_soon(self._ask_user, self._elicitations.popleft())
                if self._finished:
                    break
                await changed.wait()
            # A question of a call that is over has nobody to go to.
            self._environment.withdraw()

    async def _ask_user(self, elicitation: _Elicitation) -> None:
        """Ask the user; the time limit stands still while anything is asked."""
        if not self._questions_open:
            self._time_left_s = self._limit.deadline - trio.current_time()
            self._limit.deadline = math.inf
        self._questions_open += 1
        elicitation.result = await ask_user(self._server, elicitation.params, self._environment.ask)
        self._questions_open -= 1
        if not self._questions_open:
            self._limit.deadline = trio.current_time() + self._time_left_s
        elicitation.answered.set()

    async def _add_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        await trio.lowlevel.checkpoint()
        self._progress.append((progress, total, message))
        self._wake()

    async def _show_progress(self) -> None:
        # Each came in a task of its own, so what came together may be out of order.
        shown = sorted(self._progress, key=lambda one: one[0])
        self._progress.clear()
        for one in shown:
            await self._environment.output(_line(one))

    def _wake(self) -> None:
        self._changed.set()


def _line(progress: Progress) -> str:
    done, total, message = progress
    far = f"{done:g}" if not total else f"{done:g}/{total:g}"
    return f"[{far}] {message}\n" if message else f"[{far}]\n"
