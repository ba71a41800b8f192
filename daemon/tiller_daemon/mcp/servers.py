"""All MCP servers of the daemon: started when a turn needs them, closed when the daemon ends."""

from collections.abc import Mapping

import trio

from tiller_daemon.config import McpServer
from tiller_daemon.mcp.base import ListedTool
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.names import name_tools
from tiller_daemon.mcp.server import Server
from tiller_daemon.mcp.tool import make_tool
from tiller_daemon.tools.base import Tool
from tiller_protocol.answers import ServerSummary

READY_S_MAX = 20.0
"""How long a turn waits for servers that are started for the first time; frontends wait for 30 s
until input is accepted."""

SLOW = "it is still starting; its tools are offered from the next turn on"


class McpServers:
    """The servers of one configuration. `run` owns their tasks."""

    def __init__(self, configured: Mapping[str, McpServer], environment: ServerEnvironment) -> None:
        self._configured = configured
        self.environment = environment
        self._servers: dict[str, Server] = {}
        self._nursery: trio.Nursery | None = None
        self.configure(configured, environment)

    def configure(
        self, configured: Mapping[str, McpServer], environment: ServerEnvironment
    ) -> None:
        """Take over another configuration: servers that it changes or leaves out are ended."""
        self._configured, self.environment = configured, environment
        self._table: dict[str, Tool] = {}
        self._made_of: tuple[tuple[ListedTool, ...], ...] = ()
        before, self._servers = self._servers, {}
        for name, settings in configured.items():
            if settings.enabled:
                old = before.get(name)
                if old is not None and old.settings == settings:
                    self._servers[name] = before.pop(name)
                else:
                    self._servers[name] = Server(name, settings, environment)
                    self._servers[name].nursery = self._nursery
        for server in before.values():
            server.take_out()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the servers until cancelled; then they are ended, with all that they started."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for server in self._servers.values():
                server.nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def ready(self, *, every: bool = False) -> None:
        """Start what a turn needs, and wait for what was never tried before, but not for ever.

        With `every` those that failed or ended are started and waited for as well.
        """
        servers = list(self._servers.values())
        for server in servers:
            if every or server.may_be_tried:
                server.start()
        with trio.move_on_after(READY_S_MAX):
            for server in servers:
                if every or not server.was_tried:
                    await server.settled()

    def tools(self) -> Mapping[str, Tool]:
        """The tools there are now, by the names that models know them by."""
        made_of = tuple(server.listed for server in self._servers.values())
        if made_of != self._made_of:
            listed = [(s, tool) for s in self._servers.values() for tool in s.listed]
            names = name_tools((server.name, tool.name) for server, tool in listed)
            made = zip(names, listed, strict=True)
            self._table = {name: make_tool(server, tool, name) for name, (server, tool) in made}
            self._made_of = made_of
        return self._table

    def problems(self) -> dict[str, str]:
        """Which servers have nothing to offer, and why, as clauses."""
        found: dict[str, str] = {}
        for server in self._servers.values():
            if server.state == "failed":
                found[server.name] = server.problem
            elif server.state == "starting" and not server.listed:
                found[server.name] = SLOW
        return found

    def secrets(self) -> set[str]:
        """What must not be told of what servers were given."""
        return {one for s in self._servers.values() for one in self.environment.secrets(s.settings)}

    def summaries(self) -> tuple[ServerSummary, ...]:
        """Every server of the configuration, and how it is."""
        return tuple(self._summary(name) for name in self._configured)

    def _summary(self, name: str) -> ServerSummary:
        if (server := self._servers.get(name)) is None:
            return ServerSummary(name, "disabled")
        return ServerSummary(name, server.state, len(server.listed), server.problem)
