"""One call of a server's tool: a task of the connection waits for its answer, a turn's task for it.

So an interrupt ends at once whatever the server does: the turn's task leaves, and that of the
connection tells the server in its own time. What a call says meanwhile is passed on by the turn's
task, so that nothing of a turn happens after its end.
"""

from typing import Any

import trio
from mcp.client import Client
from mcp_types import CallToolResult

from tiller_daemon.tools.base import ToolEnvironment

Progress = tuple[float, float | None, str | None]
"""How far it is, of how much, and in words."""


class Gone(Exception):
    """The connection ended before the call had."""


class Call:
    """A call on its way. `run` is the connection's task, `wait` the turn's."""

    def __init__(self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment) -> None:
        self._tool = tool
        self._arguments = arguments
        self._environment = environment
        self._scope = trio.CancelScope()
        self._progress: list[Progress] = []
        self._news = trio.Event()
        self._outcome: CallToolResult | Exception | None = None
        self._over = False

    async def run(self, client: Client) -> None:
        """Make the call and keep its outcome; cancelled, the server is told."""
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

    async def wait(self, timeout_s: float) -> CallToolResult:
        """Wait for the outcome and show progress; raises it when it is an exception.

        Raises `trio.TooSlowError` after `timeout_s`, and `Gone`.
        """
        try:
            with trio.fail_after(timeout_s):
                while not self._over or self._progress:
                    await self._show_progress()
                    if not self._over:
                        await self._news.wait()
        finally:
            self._scope.cancel()
        if self._outcome is None:
            raise Gone
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def _note_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        self._progress.append((progress, total, message))
        self._wake()

    async def _show_progress(self) -> None:
        self._news = trio.Event()
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
