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

from tiller_daemon.mcp.questions import put_questions
from tiller_daemon.tools.base import ToolEnvironment

Progress = tuple[float, float | None, str | None]
"""How far it is, of how much, and in words."""

CURRENT: ContextVar["Call | None"] = ContextVar("mcp_call", default=None)
"""The call that a task of the connection works on."""


class Gone(Exception):
    """The connection ended before the call had."""


@dataclass(eq=False)
class _Asked:
    """What the server asks, and the user's answer once it is there."""

    params: types.ElicitRequestParams
    answered: trio.Event = field(default_factory=trio.Event)
    answer: types.ElicitResult = field(default_factory=lambda: types.ElicitResult(action="cancel"))


class Call:
    """A call on its way. `run` is the connection's task, `wait` the turn's."""

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
        self._asked: deque[_Asked] = deque()
        self._asking = 0
        self._left_s = 0.0
        self._news = trio.Event()
        self._outcome: types.CallToolResult | Exception | None = None
        self._over = False

    async def run(self, client: Client) -> None:
        """Make the call and keep its outcome; cancelled, the server is told."""
        CURRENT.set(self)
        try:
            with self._scope:
                self._outcome = await client.call_tool(
                    self._tool, self._arguments, progress_callback=self._note_progress
                )
        except Exception as error:
            self._outcome = error
        finally:
            self._over = True
            self._wake()

    async def wait(self, timeout_s: float) -> types.CallToolResult:
        """Wait for the outcome and show progress; raises it when it is an exception.

        Raises `trio.TooSlowError` after `timeout_s`, in which questions to the user do not count,
        and `Gone`.
        """
        self._limit = trio.CancelScope(deadline=trio.current_time() + timeout_s)
        try:
            with self._limit:
                await self._pass_on()
        finally:
            self._scope.cancel()
        if self._limit.cancelled_caught:
            raise trio.TooSlowError
        if self._outcome is None:
            raise Gone
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Have the turn's task ask the user."""
        asked = _Asked(params)
        self._asked.append(asked)
        self._wake()
        await asked.answered.wait()
        return asked.answer

    async def _pass_on(self) -> None:
        """Show progress and put questions until the call is over."""
        async with trio.open_nursery() as nursery:
            while True:
                news = self._news = trio.Event()
                await self._show_progress()
                while self._asked:
                    nursery.start_soon(self._put, self._asked.popleft())
                if self._over:
                    break
                await news.wait()
            # A question of a call that is over has nobody to go to.
            self._environment.withdraw()

    async def _put(self, asked: _Asked) -> None:
        """Ask the user; the time limit stands still while anything is asked."""
        if not self._asking:
            self._left_s = self._limit.deadline - trio.current_time()
            self._limit.deadline = math.inf
        self._asking += 1
        asked.answer = await put_questions(self._server, asked.params, self._environment.ask)
        self._asking -= 1
        if not self._asking:
            self._limit.deadline = trio.current_time() + self._left_s
        asked.answered.set()

    async def _note_progress(
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
        self._news.set()


def _line(progress: Progress) -> str:
    done, total, message = progress
    far = f"{done:g}" if not total else f"{done:g}/{total:g}"
    return f"[{far}] {message}\n" if message else f"[{far}]\n"
