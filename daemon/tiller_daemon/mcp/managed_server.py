"""One configured or lent server, started when needed and restarted by the next call if it ends.

The connection itself is in `client`, which is imported when the first server starts.
"""

import importlib
import math
from typing import TYPE_CHECKING, Any

import structlog
import trio
from msgspec import structs

from tiller_daemon.config import McpServer
from tiller_daemon.mcp.base import (
    CallNotSent,
    ListedPrompt,
    ListedTool,
    ServerUnavailable,
    ToolList,
)
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.prompts import read_arguments, unknown_prompt
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure, ToolResult
from tiller_protocol.catalog import ServerState

if TYPE_CHECKING:
    from tiller_daemon.mcp.client import McpClient

log = structlog.get_logger()

RETRY_DELAY_S_MIN = 30.0
RETRY_DELAY_S_MAX = 600.0
"""After a failed start, turns retry with a backoff that doubles up to the maximum."""

REMOVED = "The configuration has changed since the turn began."

CLIENT_MODULE = "tiller_daemon.mcp.client"


class ManagedServer:
    """A server. Its tasks run in `nursery`, which `McpServers` sets.

    `listed` and `prompts` are the latest lists from the server; `problem` says why it is not up.
    """

    def __init__(self, name: str, settings: McpServer, environment: ServerEnvironment) -> None:
        self.name = name
        self.settings = settings
        self.environment = environment
        self.state: ServerState = "idle"
        self.problem = ""
        self.listed = ToolList()
        self.prompts: tuple[ListedPrompt, ...] = ()
        self.start_attempted = False
        self.start_finished = trio.Event()
        """Set once the server is up or its latest start has failed."""
        self.nursery: trio.Nursery | None = None
        self._removed_because = ""
        self._connection: McpClient | None = None
        self._connection_over = trio.Event()
        self._start_scope = trio.CancelScope()
        self._retry_delay_s = RETRY_DELAY_S_MIN
        self._failed_at = -math.inf

    @property
    def tools(self) -> tuple[ListedTool, ...]:
        """The tools that the server offers."""
        return self.listed.offered

    @property
    def should_start(self) -> bool:
        """Whether a turn that begins now should start the server."""
        match self.state:
            case "idle":
                return True
            case "failed" | "needs_login":
                return trio.current_time() >= self._failed_at + self._retry_delay_s
            case "starting" | "up" | "ended" | "disabled":
                return False

    def start(self) -> None:
        """Start the server in the background, unless it is starting or up."""
        if self.state in ("starting", "up") or self._removed_because or self.nursery is None:
            return
        self.state = "starting"
        self.start_finished, self._connection_over = trio.Event(), trio.Event()
        self.nursery.start_soon(self._run_connection)

    def remove(self, why: str = REMOVED) -> None:
        """End the server for good: its configuration has changed, or its loan is over."""
        self._removed_because = self.problem = why
        self._start_scope.cancel()

    async def call(
        self, tool: str, arguments: dict[str, Any], environment: ToolEnvironment
    ) -> ToolResult:
        """Make a call, starting the server if necessary. Raises `ToolFailure`."""
        try:
            return await (await self._ensure_connected()).call(tool, arguments, environment)
        except CallNotSent:
            # The server went away before it took the call, so repeating the call is safe.
            return await (await self._ensure_connected()).call(tool, arguments, environment)

    async def prompt(self, name: str, given: str) -> ToolResult:
        """Return the text of a prompt with the arguments that the user typed.

        Raises `ToolFailure`.
        """
        connection = await self._ensure_connected()
        prompt = next((one for one in self.prompts if one.name == name), None)
        if prompt is None:
            raise ToolFailure(unknown_prompt(self.name, name, self.prompts))
        return self._cleaned(await connection.prompt(name, read_arguments(prompt, given)))

    async def resource(self, uri: str) -> ToolResult:
        """Return the content of a resource. Raises `ToolFailure`."""
        return self._cleaned(await (await self._ensure_connected()).resource(uri))

    def _cleaned(self, content: ToolResult) -> ToolResult:
        output = self.environment.without_secrets(self.settings, content.output)
        return structs.replace(content, output=output)

    def connected(
        self,
        connection: "McpClient",
        listed: ToolList,
        prompts: tuple[ListedPrompt, ...],
    ) -> None:
        """Record that calls can now be made, and the tools and prompts that the server offers."""
        self._start_scope.deadline = math.inf  # `start_timeout_s` no longer applies
        self._connection = connection
        self.listed, self.prompts = listed, prompts
        self.state, self.problem, self._retry_delay_s = "up", "", RETRY_DELAY_S_MIN
        self._note_start_finished()
        log.info("mcp_server_up", server=self.name, tools=len(self.tools))

    def tools_changed(self, listed: ToolList, prompts: tuple[ListedPrompt, ...]) -> None:
        """Record that the server now lists other tools or prompts."""
        self.listed, self.prompts = listed, prompts
        log.info("mcp_tools_changed", server=self.name, tools=len(self.tools))

    async def _ensure_connected(self) -> "McpClient":
        # Wait until the old program has ended: two running at once could disturb each other.
        while self._connection and self._connection.is_over:
            await self._connection_over.wait()
        self.start()
        if not self._removed_because:
            await self.start_finished.wait()
        if self._connection is None:
            raise ToolFailure(f"The MCP server {self.name} can't be used. {self.problem}")
        return self._connection

    async def _run_connection(self) -> None:
        """Connect, stay connected until the server ends, and record the reason."""
        problem = "It has ended."
        failed: ServerState = "failed"
        limit_s = self.settings.start_timeout_s
        self._start_scope = trio.CancelScope(deadline=trio.current_time() + limit_s)
        try:
            with self._start_scope:
                # The import takes a second: in this thread it would block the whole daemon.
                client = await trio.to_thread.run_sync(
                    importlib.import_module, CLIENT_MODULE, abandon_on_cancel=True
                )
                await client.run_client(self)
            if self._removed_because:
                problem = self._removed_because
            elif self._start_scope.cancelled_caught:
                problem = f"It was not ready after {limit_s:g} s (`start_timeout_s`)."
        except ServerUnavailable as error:
            problem, failed = str(error), "needs_login" if error.needs_login else "failed"
        except Exception as error:
            log.exception("mcp_server_crashed", server=self.name)
            problem = f"This is a bug in the daemon: {type(error).__name__}: {error}."
        finally:
            self._note_end(problem, failed)

    def _note_end(self, problem: str, failed: ServerState) -> None:
        """Record the end of the connection. If it was never up, `failed` is the new state."""
        problem = self.problem = self.environment.without_secrets(self.settings, problem)
        if self._connection is None:
            self.state, self.listed, self.prompts = failed, ToolList(), ()
            if self._failed_at > -math.inf:
                self._retry_delay_s = min(2 * self._retry_delay_s, RETRY_DELAY_S_MAX)
            self._failed_at = trio.current_time()
            log.warning("mcp_server_failed", server=self.name, reason=problem)
        else:
            # Keep the tools: the next call starts the server again.
            self.state = "ended"
            log.info("mcp_server_ended", server=self.name, reason=problem)
        self._connection = None
        self._connection_over.set()
        self._note_start_finished()

    def _note_start_finished(self) -> None:
        self.start_attempted = True
        self.start_finished.set()
