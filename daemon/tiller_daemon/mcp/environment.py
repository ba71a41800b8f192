"""What servers are given of the daemon's: variables, a directory, keys. Never a provider's key."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tiller_daemon.config import McpServer
from tiller_daemon.models.keys import Key, find_key
from tiller_daemon.processes.environment import SECRET_NAME, without_secrets
from tiller_daemon.redaction.text import redact

SECRET_CHARS_MIN: Final = 8
"""A shorter value is not looked for in what a server says: it may be an ordinary word."""

SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that hold secrets and are not named like variables that do."""


class NotForServers(Exception):
    """A variable that a server may not have; the message is a clause that says why."""


@dataclass(frozen=True)
class ServerEnvironment:
    """`inherited` is the environment of every child process, `environ` the daemon's own.

    `provider_names` are the variables that keys of providers are in, `provider_values` those keys.
    """

    inherited: Mapping[str, str]
    environ: Mapping[str, str]
    provider_names: Collection[str]
    provider_values: Callable[[], Collection[str]]
    home: Path
    _keys: dict[int, Key | None] = field(default_factory=dict[int, Key | None])

    def variables(self, settings: McpServer) -> dict[str, str]:
        """The whole environment of a server; raises `NotForServers` (G13)."""
        passed: dict[str, str] = {}
        for name in settings.env_vars:
            if name in self.provider_names:
                raise NotForServers(f"`env_vars` names {name}, which holds a provider's key")
            if name not in self.environ:
                raise NotForServers(f"`env_vars` names {name}, which is not set for the daemon")
            passed[name] = self.environ[name]
        passed |= settings.env
        for name, value in passed.items():
            if any(key in value for key in self.provider_values()):
                raise NotForServers(f"its variable {name} holds a provider's key")
        return {**without_secrets(self.inherited, self.provider_values()), **passed}

    def key(self, settings: McpServer) -> Key | None:
        """The key of a server that is reached, the same one at every call."""
        if id(settings) not in self._keys:
            self._keys[id(settings)] = find_key(settings, self.environ, self.provider_names)
        return self._keys[id(settings)]

    def secrets(self, settings: McpServer) -> set[str]:
        """What must not be told of what a server was given."""
        given = {**{name: self.environ.get(name, "") for name in settings.env_vars}, **settings.env}
        found = {value for name, value in given.items() if SECRET_NAME.search(name)}
        found |= {value for name, value in settings.headers.items() if _is_secret(name)}
        key = self.key(settings)
        found |= set(key.secrets if key else ())
        return {value for value in found if len(value) >= SECRET_CHARS_MIN}

    def without_secrets(self, settings: McpServer, text: str) -> str:
        """What a server said, without what it must not tell (G13)."""
        return redact(text, sorted({*self.secrets(settings), *self.provider_values()}))


def _is_secret(header: str) -> bool:
    name = header.lower()
    return name in SECRET_HEADERS or bool(SECRET_NAME.search(name.replace("-", "_")))
