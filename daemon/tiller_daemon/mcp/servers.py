"""All MCP servers of the daemon: started when a turn needs them, ended with the daemon."""

from collections.abc import Callable, Iterable, Mapping

import trio
from msgspec import structs

from tiller_daemon.config import McpServer
from tiller_daemon.mcp.base import ListedTool
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.loans import LENT_ADVICE, Loans
from tiller_daemon.mcp.logins import Logins
from tiller_daemon.mcp.managed_server import ManagedServer
from tiller_daemon.mcp.prompts import summary
from tiller_daemon.mcp.tool import make_tool
from tiller_daemon.mcp.tool_names import name_tools
from tiller_daemon.session.services import Lent
from tiller_daemon.tools.base import Tool, ToolFailure, ToolResult
from tiller_protocol.answers import McpLoginResult
from tiller_protocol.catalog import CommandSummary, ServerSummary
from tiller_protocol.ops import McpLogin

READY_S_MAX = 20.0
"""How long a turn waits for servers that start for the first time. Frontends give up after 30 s
without an answer to their input."""

STILL_STARTING = "It is still starting. Its tools are offered from the next turn on."


class OfferedTools:
    """The tools that some servers list, by the names that models see."""

    def __init__(self) -> None:
        self._by_name: Mapping[str, Tool] = {}
        self._listed: tuple[tuple[ManagedServer, tuple[ListedTool, ...]], ...] = ()

    def of(self, servers: Iterable[ManagedServer]) -> Mapping[str, Tool]:
        """Return the tools that these servers list now."""
        # A tool's name depends on the names before it, so any change renames all tools.
        servers = tuple(servers)
        latest = tuple((server, server.tools) for server in servers)
        if latest != self._listed:
            tools = [(server, tool) for server in servers for tool in server.tools]
            names = name_tools((server.name, tool.name) for server, tool in tools)
            made = zip(names, tools, strict=True)
            self._by_name = {name: make_tool(server, tool, name) for name, (server, tool) in made}
            self._listed = latest
        return self._by_name


class McpServers:
    """The configured servers, for all sessions, and the servers lent to single sessions.

    `run` owns the servers' tasks.
    """

    def __init__(self, configured: Mapping[str, McpServer], environment: ServerEnvironment) -> None:
        self._servers: dict[str, ManagedServer] = {}
        self.loans = Loans()
        self._nursery: trio.Nursery | None = None
        self._logins = Logins(self._login_changed)
        self.configure(configured, environment)

    def configure(
        self, configured: Mapping[str, McpServer], environment: ServerEnvironment
    ) -> None:
        """Apply a new configuration and end the servers that it changes or removes."""
        self._configured = configured
        self.environment = environment
        self._offered = OfferedTools()
        self._offered_to: dict[str, OfferedTools] = {}
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
        """Own the servers until cancelled, then end them and all their descendant processes."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for server in self._servers.values():
                server.nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def lend(self, session_id: str, lender: str, lent: Lent) -> None:
        """Begin, change or renew a loan, and start its servers; see `Loans.lend`."""
        environment = structs.replace(self.environment, key_advice=LENT_ADVICE)

        def make(name: str, settings: McpServer) -> ManagedServer:
            server = ManagedServer(name, settings, environment)
            server.nursery = self._nursery
            return server

        self.loans.lend(session_id, lender, lent, make)
        for name, server in self.loans.of(session_id).items():
            # The first input usually comes soon, and then need not wait for the start.
            if name not in self._servers and server.should_start:
                server.start()

    async def ready(self, session_id: str = "", *, every: bool = False) -> None:
        """Start the servers that a turn needs; wait for servers that start for the first time.

        With `every`, also start servers that failed or ended, and wait for all servers. Waits at
        most `READY_S_MAX`.
        """
        servers = self._of(session_id)
        for server in servers:
            if every or server.should_start:
                server.start()
        with trio.move_on_after(READY_S_MAX):
            for server in servers:
                if every or not server.start_attempted:
                    await server.start_finished.wait()

    def tools(self, session_id: str = "") -> Mapping[str, Tool]:
        """Return the current tools of a session, by the names that models see."""
        lent = self.loans.of(session_id)
        if not lent:
            self._offered_to.pop(session_id, None)
            return self._offered.of(self._servers.values())
        return self._offered_to.setdefault(session_id, OfferedTools()).of(self._of(session_id))

    def names(self, session_id: str) -> frozenset[str]:
        """Return the names of the servers that a session can use."""
        return frozenset(server.name for server in self._of(session_id))

    def commands(self, session_id: str = "") -> tuple[CommandSummary, ...]:
        """Return the prompts of a session's servers as commands."""
        found = ((server.name, one) for server in self._of(session_id) for one in server.prompts)
        return tuple(summary(name, prompt) for name, prompt in found)

    async def prompt(self, session_id: str, server: str, name: str, given: str) -> ToolResult:
        """Return the text of a server's prompt. Raises `ToolFailure`."""
        return await self._find(session_id, server).prompt(name, given)

    async def resource(self, session_id: str, server: str, uri: str) -> ToolResult:
        """Return the content of a server's resource. Raises `ToolFailure`."""
        return await self._find(session_id, server).resource(uri)

    def problems(self, session_id: str = "") -> dict[str, str]:
        """Return the reason, as a sentence, for each server without tools."""
        problems: dict[str, str] = {}
        for server in self._of(session_id):
            if server.state in ("failed", "needs_login"):
                problems[server.name] = server.problem
            elif server.state == "starting" and not server.tools:
                problems[server.name] = STILL_STARTING
        return problems

    def left_out(self, session_id: str = "") -> dict[str, tuple[str, ...]]:
        """Return why tools are left out, as clauses, for each server with such tools."""
        return {s.name: s.listed.left_out for s in self._of(session_id) if s.listed.left_out}

    def share(self, owner_id: str, session_id: str) -> None:
        """Let the session of a sub-agent use the loans of its owner."""
        self.loans.share(owner_id, session_id)

    def unload(self, session_id: str) -> None:
        """Forget a session that leaves memory, but keep its loans."""
        self.loans.unshare(session_id)
        self._offered_to.pop(session_id, None)

    def end_loans(self, is_in_use: Callable[[str], bool]) -> None:
        """End expired loans, except those of sessions in use."""
        self.loans.end_over(is_in_use)

    def secrets(self) -> set[str]:
        """Return the secrets that servers were given, to be redacted."""
        servers = (*self._servers.values(), *self.loans)
        return {one for s in servers for one in self.environment.secrets(s.settings)}

    async def log_in(self, op: McpLogin) -> McpLoginResult:
        """Log in to a server or out of it. Raises `RejectionError`."""
        assert self._nursery
        return await self._logins.handle(op, self._configured, self.environment, self._nursery)

    def _login_changed(self, name: str) -> None:
        """Reconnect to a server after a login or logout."""
        if old := self._servers.get(name):
            old.remove()
            server = ManagedServer(name, old.settings, self.environment)
            server.nursery = self._nursery
            self._servers[name] = server
            server.start()

    def summaries(self, session_id: str = "") -> tuple[ServerSummary, ...]:
        """Return the state of every configured server, and of every server lent to the session."""
        disabled = self._configured.keys() - self._servers.keys()
        usable = {server.name: _summary(server) for server in self._of(session_id)}
        configured = {
            name: ServerSummary(name, "disabled") if name in disabled else usable[name]
            for name in self._configured
        }
        return tuple({**configured, **usable}.values())

    def _of(self, session_id: str) -> tuple[ManagedServer, ...]:
        """Return the servers that a session can use, configured servers first."""
        return tuple({**self._servers, **self.loans.of(session_id), **self._servers}.values())

    def _find(self, session_id: str, name: str) -> ManagedServer:
        """Return the server called `name`. Raises `ToolFailure`."""
        servers = {server.name: server for server in self._of(session_id)}
        if name not in servers:
            known = ", ".join(servers) or "none"
            raise ToolFailure(f"There is no MCP server {name}. Configured: {known}.")
        return servers[name]


def _summary(server: ManagedServer) -> ServerSummary:
    return ServerSummary(server.name, server.state, len(server.tools), server.problem)
