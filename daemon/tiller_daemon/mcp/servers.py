"""All MCP servers of the daemon: started when a turn needs them, ended with the daemon."""

from collections.abc import Mapping

import trio
from msgspec import structs

from tiller_daemon.config import McpServer
from tiller_daemon.mcp.base import ListedTool
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.login_store import LoginStore
from tiller_daemon.mcp.logins import Logins
from tiller_daemon.mcp.managed_server import ManagedServer
from tiller_daemon.mcp.prompts import summary
from tiller_daemon.mcp.tool import make_tool
from tiller_daemon.mcp.tool_names import name_tools
from tiller_daemon.tools.base import Tool, ToolFailure, ToolResult
from tiller_protocol.answers import CommandSummary, McpLoginResult, ServerSummary
from tiller_protocol.ops import McpLogin

READY_S_MAX = 20.0
"""How long a turn waits for servers that start for the first time. Frontends give up after 30 s
without an answer to their input."""

STILL_STARTING = "It is still starting. Its tools are offered from the next turn on."


class McpServers:
    """The servers of the current configuration. `run` owns their tasks."""

    def __init__(
        self,
        configured: Mapping[str, McpServer],
        environment: ServerEnvironment,
        logins: LoginStore | None = None,
    ) -> None:
        self._login_store = logins or LoginStore()
        self._servers: dict[str, ManagedServer] = {}
        self._nursery: trio.Nursery | None = None
        self._logins = Logins(self._login_changed)
        self.configure(configured, environment)

    def configure(
        self, configured: Mapping[str, McpServer], environment: ServerEnvironment
    ) -> None:
        """Apply another configuration; servers that it changes or removes are ended."""
        self._configured = configured
        self.environment = structs.replace(environment, logins=self._login_store)
        self._tools_by_name: dict[str, Tool] = {}
        self._listed_tools: tuple[tuple[ListedTool, ...], ...] = ()
        before, self._servers = self._servers, {}
        for name, settings in configured.items():
            if settings.enabled:
                old = before.get(name)
                if old is not None and old.settings == settings:
                    self._servers[name] = before.pop(name)
                else:
                    self._servers[name] = ManagedServer(name, settings, self.environment)
                    self._servers[name].nursery = self._nursery
        for server in before.values():
            server.remove()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the servers until cancelled; then end them and all their descendants."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for server in self._servers.values():
                server.nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def ready(self, *, every: bool = False) -> None:
        """Start the servers that a turn needs, and wait for those never tried before.

        With `every`, also start servers that failed or ended, and wait for all. Waits at most
        `READY_S_MAX`.
        """
        servers = list(self._servers.values())
        for server in servers:
            if every or server.should_start:
                server.start()
        with trio.move_on_after(READY_S_MAX):
            for server in servers:
                if every or not server.start_attempted:
                    await server.start_finished()

    def tools(self) -> Mapping[str, Tool]:
        """The current tools by the names under which models see them."""
        # A tool's name depends on the names before it, so all are made anew after any change.
        latest = tuple(server.tools for server in self._servers.values())
        if latest != self._listed_tools:
            tools = [(s, tool) for s in self._servers.values() for tool in s.tools]
            names = name_tools((server.name, tool.name) for server, tool in tools)
            made = zip(names, tools, strict=True)
            self._tools_by_name = {
                name: make_tool(server, tool, name) for name, (server, tool) in made
            }
            self._listed_tools = latest
        return self._tools_by_name

    def names(self) -> frozenset[str]:
        """The names of the servers that can be used."""
        return frozenset(self._servers)

    def commands(self) -> tuple[CommandSummary, ...]:
        """The prompts of servers, as commands."""
        found = ((server.name, one) for server in self._servers.values() for one in server.prompts)
        return tuple(summary(name, prompt) for name, prompt in found)

    async def prompt(self, server: str, name: str, given: str) -> ToolResult:
        """Return what a server's prompt says; raises `ToolFailure`."""
        if (found := self._servers.get(server)) is None:
            known = ", ".join(self._servers) or "none"
            raise ToolFailure(f"There is no MCP server {server}. Configured: {known}.")
        return await found.prompt(name, given)

    async def resource(self, server: str, uri: str) -> ToolResult:
        """Return the content of a server's resource; raises `ToolFailure`."""
        return await self._servers[server].resource(uri)

    def problems(self) -> dict[str, str]:
        """The servers without tools, each with the reason as a clause."""
        problems: dict[str, str] = {}
        for server in self._servers.values():
            if server.state in ("failed", "needs_login"):
                problems[server.name] = server.problem
            elif server.state == "starting" and not server.tools:
                problems[server.name] = STILL_STARTING
        return problems

    def secrets(self) -> set[str]:
        """The secrets that servers were given, to be redacted."""
        return {one for s in self._servers.values() for one in self.environment.secrets(s.settings)}

    async def log_in(self, op: McpLogin) -> McpLoginResult:
        """Log in at a server, or out; raises `RejectionError`."""
        assert self._nursery
        return await self._logins.handle(op, self._configured, self._login_store, self._nursery)

    def _login_changed(self, name: str) -> None:
        """Connect anew to a server whose login is there, or gone."""
        if old := self._servers.get(name):
            old.remove()
            server = ManagedServer(name, old.settings, self.environment)
            server.nursery = self._nursery
            self._servers[name] = server
            server.start()

    def summaries(self) -> tuple[ServerSummary, ...]:
        """The state of every server of the configuration."""
        return tuple(self._summary(name) for name in self._configured)

    def _summary(self, name: str) -> ServerSummary:
        if (server := self._servers.get(name)) is None:
            return ServerSummary(name, "disabled")
        return ServerSummary(name, server.state, len(server.tools), server.problem)
