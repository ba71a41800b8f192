"""What frontends lend to sessions: MCP servers, such as those of an editor, and reading files.

A loan has a lease, so that nothing stays of an editor that was killed. What is taken back or
changed ends at once, but never under a running turn.
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
"""Maximum number of frontends that lend to one session; each server is a process."""

LENT_ADVICE = "Its key belongs in the settings of the editor that lends it to this session."

RETURNED = "The editor has taken it back, or was closed."

Make = Callable[[str, McpServer], ManagedServer]


@dataclass
class _Loan:
    """What one frontend lends to one session."""

    servers: dict[str, ManagedServer]
    ends_at: float
    """When the lease ends, by trio's clock."""
    reads_files: bool
    """Whether it is asked for files."""


class Loans:
    """The loans by session and lender."""

    def __init__(self) -> None:
        self._loans: dict[str, dict[str, _Loan]] = {}
        self._replaced: dict[str, list[ManagedServer]] = {}
        """By session, what is no longer lent but may still be used by a running turn."""
        self._owners: dict[str, str] = {}
        """The owners of the sub-agents' sessions that are in memory."""

    def lend(self, session_id: str, lender: str, loan: Lent, make: Make) -> None:
        """Begin, change or renew a loan; servers that it drops end with the next `end_over`.

        Raises `RejectionError` if there are too many lenders.
        """
        loans = self._loans.setdefault(session_id, {})
        before, servers = loans.get(lender), loan.servers
        if not servers and not loan.reads_files:
            if before:
                before.ends_at = trio.current_time()
            return
        if before is None and len(loans) >= LENDERS_MAX:
            message = f"{LENDERS_MAX} frontends lend to this session. Close one of them."
            raise RejectionError("overloaded", message)
        old = before.servers if before else {}
        kept = {name: one for name, one in old.items() if one.settings == servers.get(name)}
        made = {name: kept.get(name) or make(name, one) for name, one in servers.items()}
        loans[lender] = _Loan(made, trio.current_time() + LEASE_S, loan.reads_files)
        replaced = [server for name, server in old.items() if name not in kept]
        self._replaced.setdefault(session_id, []).extend(replaced)

    def of(self, session_id: str) -> dict[str, ManagedServer]:
        """Return the servers of a session by name; of two with one name, the one lent first."""
        servers: dict[str, ManagedServer] = {}
        for loan in self._loans.get(self._lent_to(session_id), {}).values():
            servers = {**servers, **loan.servers, **servers}
        return servers

    def readers(self, session_id: str) -> tuple[str, tuple[str, ...]]:
        """Return the session that is lent to, and the lenders that may be asked for files."""
        now, lent_to = trio.current_time(), self._lent_to(session_id)
        loans = self._loans.get(lent_to, {}).items()
        return lent_to, tuple(
            lender for lender, loan in loans if loan.reads_files and loan.ends_at > now
        )

    def ask_no_more(self, session_id: str, lender: str) -> None:
        """Ask a lender for no file until it lends again."""
        if loan := self._loans.get(session_id, {}).get(lender):
            loan.reads_files = False

    def _lent_to(self, session_id: str) -> str:
        """The session whose loans this one uses: for a sub-agent, that of its owner."""
        while owner_id := self._owners.get(session_id):
            session_id = owner_id
        return session_id

    def __iter__(self) -> Iterator[ManagedServer]:
        """All servers of all loans, and those that turns still use."""
        for replaced in self._replaced.values():
            yield from replaced
        for loans in self._loans.values():
            for loan in loans.values():
                yield from loan.servers.values()

    def share(self, owner_id: str, session_id: str) -> None:
        """Let the session of a sub-agent use what its owner is lent."""
        self._owners[session_id] = owner_id

    def unshare(self, session_id: str) -> None:
        """Forget the owner of a session that leaves memory."""
        self._owners.pop(session_id, None)

    def end_over(self, is_in_use: Callable[[str], bool]) -> None:
        """End the loans whose time is over, and what is replaced, except of sessions in use."""
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
