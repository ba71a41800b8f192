"""Builds a server's environment: variables, a directory, its key, but never a provider's key."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from tiller_daemon.config import McpServer, OAuthClient
from tiller_daemon.isolation import isolated
from tiller_daemon.mcp.login_store import LoginStore
from tiller_daemon.models.keys import Key, find_key
from tiller_daemon.processes.environment import SECRET_NAME, is_secret_header, without_secrets
from tiller_daemon.redaction.text import redact
from tiller_daemon.tools.base import WebAccess

SECRET_CHARS_MIN: Final = 8
"""Shorter values are not redacted in a server's output, because they may be ordinary words."""


class EnvironmentProblem(Exception):
    """A server's environment can't be built. The message is a sentence with the reason."""


class ServerEnvironment(Struct, frozen=True):
    """The sources from which the environments of all servers are built."""

    inherited: Mapping[str, str]
    """The environment of commands, from which a server gets what loads no code."""
    environ: Mapping[str, str]
    """The daemon's own environment."""
    provider_key_names: Collection[str]
    """The names of the variables that hold keys of providers."""
    provider_keys: Callable[[], Collection[str]]
    """The keys of providers known so far."""
    home: Path
    """Working directory of servers without `cwd`."""
    logins: LoginStore
    """The logins of servers that have no key."""
    web: WebAccess = field(default_factory=WebAccess)
    """How the addresses are reached that servers name for their logins."""
    key_advice: str = ""
    """Advice on where to set the key of a lent server; empty for configured servers."""
    _keys: dict[int, Key | None] = field(default_factory=dict[int, Key | None])
    """The keys of servers and the secrets of OAuth clients, by the identity of their settings."""

    def variables(self, settings: McpServer) -> dict[str, str]:
        """Return the complete environment of a server, without any key of a provider.

        Raises `EnvironmentProblem`.
        """
        passed: dict[str, str] = {}
        for name in settings.env_vars:
            if name in self.provider_key_names:
                raise EnvironmentProblem(f"`env_vars` lists {name}, which holds a provider's key.")
            if name not in self.environ:
                raise EnvironmentProblem(
                    f"`env_vars` lists {name}, which is not set in the daemon's environment."
                )
            passed[name] = self.environ[name]
        passed |= settings.env
        for name, value in passed.items():
            # The key may be in a variable with another name, or part of a longer value.
            if any(key in value for key in self.provider_keys()):
                raise EnvironmentProblem(f"Its variable {name} holds a provider's key.")
        inherited = without_secrets(self.inherited, self.provider_keys())
        return {**isolated(inherited), **passed}

    def key(self, settings: McpServer) -> Key | None:
        """Return the key of a server. It is cached, so that renewed keys stay known as secrets."""
        if id(settings) not in self._keys:
            self._keys[id(settings)] = find_key(settings, self.environ, self.provider_key_names)
        return self._keys[id(settings)]

    def client_secret(self, client: OAuthClient) -> Key | None:
        """Return the secret of a registered OAuth client, cached like a key."""
        if id(client) not in self._keys:
            places, names = client.secret_places, self.provider_key_names
            self._keys[id(client)] = find_key(places, self.environ, names)
        return self._keys[id(client)]

    def secrets(self, settings: McpServer) -> set[str]:
        """Return the secrets that a server was given, to be redacted in the server's output."""
        given = {**{name: self.environ.get(name, "") for name in settings.env_vars}, **settings.env}
        secrets = {value for name, value in given.items() if SECRET_NAME.search(name)}
        secrets |= {value for name, value in settings.headers.items() if is_secret_header(name)}
        secret = self.client_secret(settings.oauth) if settings.oauth else None
        for key in (self.key(settings), secret):
            secrets |= set(key.secrets if key else ())
        if settings.url:
            secrets |= self.logins.secrets(settings.url)
        return {value for value in secrets if len(value) >= SECRET_CHARS_MIN}

    def without_secrets(self, settings: McpServer, text: str) -> str:
        """Return a server's `text` with the server's secrets and providers' keys redacted."""
        return redact(text, sorted({*self.secrets(settings), *self.provider_keys()}))
