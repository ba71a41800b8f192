"""One server: started at need, found out when it has gone, started again for the next call.

How it is talked to is in `connection`, which is imported here when the first server is started.
"""

import importlib
import math
from typing import Any

import structlog
import trio

from tiller_daemon.config import McpServer
from tiller_daemon.mcp.base import Connection, ListedTool, NotTaken, ServerProblem
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure, ToolResult
from tiller_protocol.answers import ServerState

log = structlog.get_logger()

AGAIN_S_MIN = 30.0
AGAIN_S_MAX = 600.0
"""A server that could not be started is tried again by a turn after so long, and then rarer."""

TAKEN_OUT = "the configuration has changed since the turn began"

CONNECTION = "tiller_daemon.mcp.connection"


class Server:
    """A server of the configuration. Its tasks run in the `nursery` that `servers` sets.

    `listed` are the tools that it was last known to have, `problem` is why it is not `up`.
    """

    def __init__(self, name: str, settings: McpServer, environment: ServerEnvironment) -> None:
        self.name = name
        self.settings = settings
        self.environment = environment
        self.state: ServerState = "idle"
        self.problem = ""
        self.listed: tuple[ListedTool, ...] = ()
        self.was_tried = False
        self.nursery: trio.Nursery | None = None
        self._taken_out = False
        self._connection: Connection | None = None
        self._settled = trio.Event()
        self._over = trio.Event()
        self._starting = trio.CancelScope()
        self._again_s = AGAIN_S_MIN
        self._failed_at = -math.inf

    @property
    def may_be_tried(self) -> bool:
        """Whether a turn that begins now should start it."""
        match self.state:
            case "idle":
                return True
            case "failed":
                return trio.current_time() >= self._failed_at + self._again_s
            case "starting" | "up" | "ended" | "disabled":
                return False

    def start(self) -> None:
        """Begin to start it, unless it is starting or up."""
        if self.state in ("starting", "up") or self._taken_out or self.nursery is None:
            return
        self.state = "starting"
        self._settled, self._over = trio.Event(), trio.Event()
        self.nursery.start_soon(self._live)

    def take_out(self) -> None:
        """End it for good, as the configuration names it no more, or another one by its name."""
        self._taken_out = True
        self.problem = TAKEN_OUT
        self._starting.cancel()

    async def settled(self) -> None:
        """Wait until it is up, or has failed."""
        await self._settled.wait()

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call, for which the server is started if it has gone; raises `ToolFailure`."""
        try:
            return await (await self._connected()).call(tool, arguments, environment)
        except NotTaken:
            return await (await self._connected()).call(tool, arguments, environment)

    def up(self, connection: Connection, tools: tuple[ListedTool, ...]) -> None:
        """Say that calls can be made; see `Owner`."""
        self._starting.deadline = math.inf
        self._connection = connection
        self.listed = tools
        self.state, self.problem, self._again_s = "up", "", AGAIN_S_MIN
        self._tried()
        log.info("mcp_server_up", server=self.name, tools=len(tools))

    def changed(self, tools: tuple[ListedTool, ...]) -> None:
        """Say that it lists other tools now; see `Owner`."""
        self.listed = tools
        log.info("mcp_tools_changed", server=self.name, tools=len(tools))

    async def _connected(self) -> Connection:
        while self._connection and self._connection.is_over:
            await self._over.wait()
        self.start()
        if not self._taken_out:
            await self._settled.wait()
        if self._connection is None:
            raise ToolFailure(f"The MCP server {self.name} can't be used: {self.problem}.")
        return self._connection

    async def _live(self) -> None:
        """Start it and stay with it until it has gone."""
        problem = "it has ended"
        limit_s = self.settings.start_timeout_s
        self._starting = trio.CancelScope(deadline=trio.current_time() + limit_s)
        try:
            with self._starting:
                # Imported here it would keep everybody else waiting for more than a second.
                room = await trio.to_thread.run_sync(
                    importlib.import_module, CONNECTION, abandon_on_cancel=True
                )
                await room.hold(self)
            if self._taken_out:
                problem = TAKEN_OUT
            elif self._starting.cancelled_caught:
                problem = f"it was not ready after {limit_s:g} s (`start_timeout_s`)"
        except ServerProblem as error:
            problem = str(error)
        except Exception as error:
            log.exception("mcp_server_crashed", server=self.name)
            problem = f"a defect of the daemon: {type(error).__name__}: {error}"
        finally:
            self._gone(problem)

    def _gone(self, problem: str) -> None:
        problem = self.problem = self.environment.without_secrets(self.settings, problem)
        if self._connection is None:
            self.state, self.listed = "failed", ()
            if self._failed_at > -math.inf:
                self._again_s = min(2 * self._again_s, AGAIN_S_MAX)
            self._failed_at = trio.current_time()
            log.warning("mcp_server_failed", server=self.name, reason=problem)
        else:
            self.state = "ended"
            log.info("mcp_server_ended", server=self.name, reason=problem)
        self._connection = None
        self._over.set()
        self._tried()

    def _tried(self) -> None:
        self.was_tried = True
        self._settled.set()
