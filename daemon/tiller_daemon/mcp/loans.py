"""Loans of frontends to sessions: MCP servers, such as an editor's, and access to unsaved files.

Each loan has a lease, so that the loans of a killed editor end. Servers that are taken back or
changed end at once, unless a running turn uses them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import trio

from tiller_daemon.config import McpServer
from tiller_daemon.errors import RejectionError
from tiller_daemon.mcp.managed_server import ManagedServer
from tiller_daemon.session.services import Lent
from tiller_protocol.lending import LEASE_S

LENDERS_MAX = 8
"""Maximum number of frontends that lend to one session; each lent server is a process."""

LENT_ADVICE = "Set its key in the editor that lends this server to the session."

RETURNED = "The server was lent by an editor, which withdrew it or was closed."

Make = Callable[[str, McpServer], ManagedServer]


@dataclass
class _Loan:
    """The loan of one frontend to one session."""

    servers: dict[str, ManagedServer]
    ends_at: float
    """When the lease ends, by trio's clock."""
    reads_files: bool
    """Whether the frontend is asked for unsaved files."""


class Loans:
    """All loans, by session and lender."""

    def __init__(self) -> None:
        self._loans: dict[str, dict[str, _Loan]] = {}
        self._replaced: dict[str, list[ManagedServer]] = {}
        """By session, servers that are no longer lent but that a running turn may still use."""
        self._owners: dict[str, str] = {}
        """The owner of each sub-agent's session in memory, by session."""

    def lend(self, session_id: str, lender: str, loan: Lent, make: Make) -> None:
        """Begin, change or renew a loan. The next `end_over` ends the servers that it drops.

        Raises `RejectionError` if there are too many lenders.
        """
        loans = self._loans.setdefault(session_id, {})
        before, servers = loans.get(lender), loan.servers
        if not servers and not loan.reads_files:
            if before:
                before.ends_at = trio.current_time()
            return
        if before is None and len(loans) >= LENDERS_MAX:
            message = (
                f"{LENDERS_MAX} frontends already lend servers or files to this session. Close one "
                "of these frontends."
            )
            raise RejectionError("overloaded", message)
        old = before.servers if before else {}
        kept = {name: one for name, one in old.items() if one.settings == servers.get(name)}
        made = {name: kept.get(name) or make(name, one) for name, one in servers.items()}
        loans[lender] = _Loan(made, trio.current_time() + LEASE_S, loan.reads_files)
        replaced = [server for name, server in old.items() if name not in kept]
        self._replaced.setdefault(session_id, []).extend(replaced)

    def of(self, session_id: str) -> dict[str, ManagedServer]:
        """Return the servers of a session by name. If two share a name, the one lent first wins."""
        servers: dict[str, ManagedServer] = {}
        for loan in self._loans.get(self._lent_to(session_id), {}).values():
            servers = {**servers, **loan.servers, **servers}
        return servers

    def readers(self, session_id: str) -> tuple[str, tuple[str, ...]]:
        """Return the session with the loans, and the lenders that may be asked for files."""
        now, lent_to = trio.current_time(), self._lent_to(session_id)
        loans = self._loans.get(lent_to, {}).items()
        return lent_to, tuple(
            lender for lender, loan in loans if loan.reads_files and loan.ends_at > now
        )

    def ask_no_more(self, session_id: str, lender: str) -> None:
        """Do not ask a lender for files until it lends again."""
        if loan := self._loans.get(session_id, {}).get(lender):
            loan.reads_files = False

    def _lent_to(self, session_id: str) -> str:
        """Return the session whose loans this session uses: a sub-agent uses its owner's loans."""
        while owner_id := self._owners.get(session_id):
            session_id = owner_id
        return session_id

    def __iter__(self) -> Iterator[ManagedServer]:
        """Yield all servers of all loans, and replaced servers that turns may still use."""
        for replaced in self._replaced.values():
            yield from replaced
        for loans in self._loans.values():
            for loan in loans.values():
                yield from loan.servers.values()

    def share(self, owner_id: str, session_id: str) -> None:
        """Let the session of a sub-agent use the loans of its owner."""
        self._owners[session_id] = owner_id

    def unshare(self, session_id: str) -> None:
        """Forget the owner of a session that leaves memory."""
        self._owners.pop(session_id, None)

    def end_over(self, is_in_use: Callable[[str], bool]) -> None:
        """End expired loans and replaced servers, except those of sessions in use."""
        now = trio.current_time()
        for session_id in [one for one in self._replaced if not is_in_use(one)]:
            _end(self._replaced.pop(session_id))
        for session_id, loans in list(self._loans.items()):
            over = [lender for lender, loan in loans.items() if loan.ends_at <= now]
            if over and is_in_use(session_id):
                continue
            for lender in over:
                _end(loans.pop(lender).servers.values())
            if not loans:
                del self._loans[session_id]

    def end_all(self, session_id: str) -> None:
        """End the loans of a session that is deleted."""
        _end(self._replaced.pop(session_id, ()))
        for loan in self._loans.pop(session_id, {}).values():
            _end(loan.servers.values())


def _end(servers: Iterable[ManagedServer]) -> None:
    for server in servers:
        server.remove(RETURNED)
