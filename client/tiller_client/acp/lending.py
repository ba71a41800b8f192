"""An editor's loan to a session: MCP servers, and access to the editor's unsaved files.

The loan is renewed from time to time and before each input, because a new daemon has no loans.
"""

import re
import time
from collections.abc import Sequence

from tiller_client.acp.rpc import INVALID_PARAMS, RpcFailure
from tiller_client.acp.schema import McpServer, NamedValue
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.errors import RejectedError
from tiller_protocol.lending import LEASE_S, LentServer, SessionLend

RENEW_S = LEASE_S / 3
"""How often a loan is renewed."""

NAME_CHARS_MAX = 32
"""The daemon's limit for a server's name; an editor's names may be longer."""


class Loan:
    """The loan of `lender` to one session."""

    def __init__(
        self,
        connection: DaemonConnection,
        session_id: str,
        lender: str,
        servers: tuple[LentServer, ...],
        *,
        reads_files: bool,
    ) -> None:
        self._connection = connection
        self._taken_back = SessionLend(session_id, lender)
        self._lent = SessionLend(session_id, lender, servers, reads_files)
        self._renewed_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew the loan."""
        is_empty = self._lent == self._taken_back
        return not is_empty and time.monotonic() - self._renewed_at > RENEW_S

    def renew(self) -> None:
        """Renew the loan, unless it is empty; raises the errors of `DaemonConnection.submit`."""
        if self._lent != self._taken_back:
            self._renewed_at = time.monotonic()
            try:
                self._connection.submit(self._lent)
            except RejectedError as error:
                # If a session has too many lenders, it can do without this editor's files.
                if error.code != "overloaded" or self._lent.mcp_servers:
                    raise

    def take_back(self) -> None:
        """End the loan; a running turn keeps it."""
        if self._lent != self._taken_back:
            self._connection.submit(self._taken_back)


def lent_servers(servers: Sequence[McpServer]) -> tuple[LentServer, ...]:
    """Convert the servers for the daemon; raises `RpcFailure` for an unsupported transport."""
    lent: list[LentServer] = []
    for server in servers:
        name = _name(server.name, {one.name for one in lent})
        match server.type:
            case "stdio":
                env = _values(server.env)
                lent.append(LentServer(name, (server.command, *server.args), env=env))
            case "http":
                lent.append(LentServer(name, url=server.url, headers=_values(server.headers)))
            case other:
                raise RpcFailure(
                    INVALID_PARAMS,
                    f"the MCP server {server.name} has the transport {other}, which is not "
                    "supported: use stdio or http",
                )
    return tuple(lent)


def _name(name: str, taken: set[str]) -> str:
    """A name that the daemon accepts and that no other server here has."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:NAME_CHARS_MAX] or "_"
    number = 1
    unique = plain
    while unique in taken:
        number += 1
        unique = f"{plain[: NAME_CHARS_MAX - len(str(number)) - 1]}_{number}"
    return unique


def _values(pairs: Sequence[NamedValue]) -> dict[str, str]:
    return {pair.name: pair.value for pair in pairs}
