"""The parts of the daemon that depend on its configuration, which may change while it runs."""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from tiller_daemon.config import Configuration, LiveConfiguration, Notify
from tiller_daemon.config.http_proxy import proxies_of
from tiller_daemon.isolation import environment_of_commands
from tiller_daemon.lsp.definitions import list_definitions
from tiller_daemon.lsp.servers import LanguageServers
from tiller_daemon.mcp.environment import ServerEnvironment
from tiller_daemon.mcp.login_store import LoginStore
from tiller_daemon.mcp.servers import McpServers
from tiller_daemon.notify.targets import Targets
from tiller_daemon.options import Options
from tiller_daemon.processes.environment import CALL_MARKER, child_environment, without_secrets
from tiller_daemon.providers import Providers
from tiller_daemon.sandbox_setup import home, key_files, key_variables, make_sandboxes
from tiller_daemon.search_tools import SearchTools
from tiller_daemon.service_manager import notify_reloaded, notify_reloading
from tiller_daemon.store.base import Log
from tiller_daemon.tools.base import WebAccess
from tiller_daemon.worktrees.records import WORKTREES_FOLDER, Records

QUARANTINE_FOLDER: Final = "quarantine"
"""The folder for records of running commands (see `sandbox.quarantine`)."""

REACHED: Final = (
    "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DISPLAY", "TILLER_HOME",
    "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR",
)  # fmt: skip
"""Variables by which a program reaches the user's desktop, and `tiller` this daemon."""

LOGINS_FOLDER: Final = "mcp-logins"
"""The folder for MCP servers' tokens."""


class LiveParts:
    """The parts that depend on the configuration; a changed file takes effect with the next op."""

    def __init__(
        self,
        options: Options,
        opened: Log,
        providers: Providers,
        servers: McpServers,
        languages: LanguageServers,
    ) -> None:
        self.configuration = LiveConfiguration(options.configuration, options.load, options.file)
        self.providers = providers
        self.servers = servers
        self.languages = languages
        self.search_tools = SearchTools(os.environ)
        self.search_tools.configure(options.configuration, providers.secret_names)
        records = options.places.state / QUARANTINE_FOLDER
        self.worktrees = Records(options.places.state / WORKTREES_FOLDER)
        self.sandboxes = make_sandboxes(
            options.places, options.configuration, self.worktrees, records
        )
        self.targets = Targets(
            os.environ, home(), self.own_variables, lambda: providers.secret_names
        )
        self._log_id = opened.log_id
        self._refreshing = trio.Lock()

    async def refresh(self) -> None:
        """Apply the configuration file if it has changed."""
        # Usually nothing has changed, and not even the lock is needed.
        if self.configuration.is_current:
            return
        async with self._refreshing:
            if not await self.configuration.refresh():
                return
            now = self.configuration.now
            self.providers.configure(now)
            self.search_tools.configure(now, self.providers.secret_names)
            logins = self.servers.environment.logins
            environment = _server_environment(now, self._log_id, self.providers, logins)
            self.servers.configure(now.mcp, environment)
            self.languages.configure(list_definitions(now.lsp), environment.inherited)
            self.sandboxes.hide(key_files(now))

    async def refresh_on_signal(self) -> None:
        """Apply a changed configuration file also at SIGHUP, which service managers send."""
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            async for _ in signals:
                notify_reloading()
                await self.refresh()
                notify_reloaded(self.configuration.problem)

    def variables(self, call_id: str) -> Mapping[str, str]:
        """Return the environment of a process that works for a call, or for no call if ""."""
        # Keys fetched since the start, from a file or a command, may be in a variable as well.
        keys = (*self.providers.secret_values(), *self.search_tools.secrets())
        inherited = without_secrets(self.servers.environment.inherited, keys)
        return {**inherited, CALL_MARKER: call_id} if call_id else inherited

    def own_variables(self) -> Mapping[str, str]:
        """Return the environment of a program that the user lets the daemon run by itself.

        It can reach the user's desktop and this daemon.
        """
        reached = {name: os.environ[name] for name in REACHED if name in os.environ}
        return {**self.variables(""), **reached}

    def secret_values(self) -> tuple[str, ...]:
        """Return the keys in use, which must appear in no text."""
        return (
            *self.providers.secret_values(),
            *self.servers.secrets(),
            *self.search_tools.secrets(),
            *self.targets.secrets(),
        )

    def rules(self) -> Sequence[Notify]:
        """Return the rules for messages to a user who looks elsewhere."""
        return self.configuration.now.notify

    def keeps_awake(self) -> bool:
        """Whether the machine is kept from sleeping while a turn works."""
        return self.configuration.now.awake

    async def discover(self, session_id: str) -> None:
        """Prepare the configuration, MCP servers and models for a turn of the session."""
        # Turns also start without an op, for example when a new daemon resumes them.
        await self.refresh()
        # Usually no models have to be searched for, so no task is needed.
        if self.providers.has_default:
            await self.servers.ready(session_id)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.servers.ready, session_id)
            await self.providers.discover()


def mcp_servers(options: Options, opened: Log, providers: Providers) -> McpServers:
    """Return the MCP servers of the configuration, which have not been started."""
    configuration = options.configuration
    logins = LoginStore(options.places.state / LOGINS_FOLDER)
    environment = _server_environment(configuration, opened.log_id, providers, logins)
    return McpServers(configuration.mcp, environment)


def _server_environment(
    configuration: Configuration, log_id: str, providers: Providers, logins: LoginStore
) -> ServerEnvironment:
    hidden, started = providers.secret_names, environment_of_commands()
    hidden |= key_variables(configuration)
    return ServerEnvironment(
        inherited=child_environment(started, hidden, log_id, "", configuration.env_keep),
        environ=os.environ,
        provider_key_names=providers.secret_names,
        provider_keys=providers.secret_values,
        home=home(),
        logins=logins,
        web=WebAccess(configuration.fetch.private_addresses, proxies_of(os.environ)),
    )
