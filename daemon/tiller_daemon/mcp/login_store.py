"""Keeps each login of an MCP server in a private file. Does not import the MCP package.

A login is used only for the address at which it was made, so that a token never goes to another
server that is later configured under the same name.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from tiller_daemon.private import make_directory, replace_private

log = structlog.get_logger()

TOKENS_REMEMBERED_MAX: Final = 64
"""How many tokens are remembered for redaction; some are replaced every hour."""

SECRETS: Final = ("access_token", "refresh_token", "client_secret")


class StoredLogin(Struct, frozen=True):
    """The data needed to use and refresh one server's tokens, in the MCP package's format."""

    url: str
    """The server's address."""
    tokens: dict[str, Any]
    """The latest answer from the token endpoint."""
    client: dict[str, Any]
    """Our registration as an OAuth client."""
    expires_at: float | None = None
    """When the access token expires, in Unix seconds; None if the server did not say."""
    authorization_server: dict[str, Any] | None = None
    """The metadata of the authorization server, which name the token endpoint."""
    resource: dict[str, Any] | None = None
    """The metadata of the MCP server as a protected resource."""
    is_private: bool | None = None
    """Whether the server may name private addresses; None in older files."""


class LoginStore:
    """The logins by server name, each in a file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logins: dict[str, StoredLogin | None] = {}
        self._tokens: list[str] = []

    def read(self, name: str, url: str) -> StoredLogin | None:
        """Return the login at this address, if there is one."""
        if name not in self._logins:
            self._logins[name] = self._load(name)
        login = self._logins[name]
        return login if login and login.url == url else None

    def write(self, name: str, login: StoredLogin) -> None:
        """Store a login on disk, so that it survives a restart. Raises `OSError`."""
        self._remember(login)
        self._logins[name] = login
        make_directory(self._directory)
        replace_private(self._file(name), msgspec.json.encode(login))

    def forget(self, name: str) -> bool:
        """Forget the login of a server; return whether there was a login. Raises `OSError`."""
        found = self._load(name) if self._logins.get(name) is None else self._logins[name]
        self._logins[name] = None
        self._file(name).unlink(missing_ok=True)
        return found is not None

    def secrets(self, url: str) -> set[str]:
        """Return every token known for the server at this address, to be redacted."""
        current = {
            secret for login in self._logins.values() if login and login.url == url
            for secret in _secrets(login)
        }  # fmt: skip
        return current | set(self._tokens)

    def _load(self, name: str) -> StoredLogin | None:
        file = self._file(name)
        try:
            login = msgspec.json.decode(file.read_bytes(), type=StoredLogin)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("mcp_login_unreadable", server=name, reason=str(error))
            return None
        self._remember(login)
        return login

    def _remember(self, login: StoredLogin) -> None:
        new = [one for one in _secrets(login) if one not in self._tokens]
        self._tokens = [*self._tokens, *new][-TOKENS_REMEMBERED_MAX:]

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _secrets(login: StoredLogin) -> list[str]:
    values = [table.get(key) for table in (login.tokens, login.client) for key in SECRETS]
    return [value for value in values if isinstance(value, str)]
