"""The processes of one command: who they are, and how they are all ended.

Every command runs below a reaper of its own (`reaper`), which the kernel gives every orphan below
it. A process belongs to the command when it descends from that reaper: nothing that it says of
itself counts, neither its name nor its session nor its environment. That holds for a sandbox too,
whose namespace of processes descends from the reaper as well.

Where there are no subreapers (macOS) an orphan is found by the session that it is in, by what was
seen of it before, or by a token in its environment; one that leaves all of them gets away.
"""

import ctypes
import os
import secrets
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import trio

from tiller_daemon.processes.environment import DAEMON_MARKER
from tiller_daemon.processes.fork_server import RunningProgram, current_fork_server
from tiller_daemon.processes.process_table import ProcessEntry, choose_table

COMMAND_MARKER: Final = "TILLER_COMMAND"
"""Holds a token of this very run, where there are no subreapers."""

POLL_S: Final = 0.005
"""How often it is looked whether processes that were signalled are gone."""

KILL_WAIT_S: Final = 2.0
"""How long SIGKILL is repeated; what lives on then is stuck in the kernel or another user's."""

SWEEP_WAIT_S: Final = 5.0
"""The same for what a killed daemon left behind; five hundred processes take 0.6 s."""

_PR_SET_DUMPABLE: Final = 4  # <linux/prctl.h>

_TABLE = choose_table()


class EndedProcesses(NamedTuple):
    """How many processes were alive when the end began, and how many could not be ended."""

    processes: int
    survivors: int


def forbid_tracing() -> None:
    """Let no process of this user read the daemon's memory or environment, where keys are (G13).

    Linux; root can read them all the same.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class ProcessTree:
    """A command that was started, with all its processes; `close` it in any case."""

    def __init__(
        self,
        arguments: Sequence[str],
        directory: os.PathLike[str],
        variables: Mapping[str, str],
        descriptors: Mapping[int, int],
    ) -> None:
        """Start it, as `ForkServer.start` does."""
        token = secrets.token_hex(8)
        self._adopts: Final = current_fork_server().adopts
        self._mark: Final = f"{COMMAND_MARKER}={token}".encode()
        marked = variables if self._adopts else {**variables, COMMAND_MARKER: token}
        self.running: Final[RunningProgram] = current_fork_server().start(
            arguments, directory, marked, descriptors
        )
        self._sessions: set[int] = {self.running.pid}
        self._known: dict[int, int] = {}

    def close(self) -> None:
        """Let go of it; call after `end`. What should be left all the same is killed."""
        self.running.close()

    def left_nothing(self) -> bool:
        """Whether surely no process is left; known without a look at the table."""
        return self._adopts and self.running.is_empty

    async def wait_until_empty(self) -> None:
        """Wait until no process of this command is left."""
        await self.running.emptied()
        while not self._adopts and self._members():  # noqa: ASYNC110 - nobody tells of their end
            await trio.sleep(POLL_S)

    async def end(self, grace_s: float) -> EndedProcesses:
        """End every process: SIGTERM, up to `grace_s` seconds, then SIGKILL until none is left.

        When it returns they are dead. Takes at most `grace_s` + `KILL_WAIT_S`; run it in a shield
        when the command was cancelled.
        """
        members = self._members()
        seen = _identities(members)
        _signal(members, signal.SIGTERM)
        # A stopped process acts on SIGTERM only once it runs again.
        _signal(members, signal.SIGCONT)
        with trio.move_on_after(grace_s):
            await self.wait_until_empty()
            return EndedProcesses(len(seen), 0)
        with trio.move_on_after(KILL_WAIT_S):
            while True:
                members = self._members()
                seen |= _identities(members)
                _signal(members, signal.SIGKILL)
                # It reaps those, and may have been stopped itself.
                with suppress(ProcessLookupError):
                    os.kill(self.running.reaper, signal.SIGCONT)
                with trio.move_on_after(POLL_S):
                    await self.wait_until_empty()
                    return EndedProcesses(len(seen), 0)
        return EndedProcesses(len(seen), len(self._members()))

    def _members(self) -> list[ProcessEntry]:
        """The living processes of this command, as far as one look at the table shows them.

        Of those that fork and exit all the time it may miss some; the reaper knows when none is
        left.
        """
        if self.left_nothing():
            return []
        table = _TABLE.entries()
        roots = [table[self.running.reaper]] if self.running.reaper in table else []
        if not self._adopts:
            roots += self._roots_without_adoption(table)
        members = _with_descendants(roots, table)
        members.pop(self.running.reaper, None)
        living = [entry for entry in members.values() if not entry.dead]
        self._known = {entry.pid: entry.start for entry in living}
        self._sessions.update(entry.session for entry in living)
        return living

    def _roots_without_adoption(self, table: dict[int, ProcessEntry]) -> list[ProcessEntry]:
        marked = _TABLE.marked(self._mark)
        return [
            entry
            for entry in table.values()
            if entry.session in self._sessions
            or self._known.get(entry.pid) == entry.start
            or entry.pid in marked
        ]


async def sweep(log_id: str) -> int:
    """End what is left over from a daemon that was killed; return how many processes were.

    Call at start, before the first command. Reapers end what is theirs by themselves; here it is
    waited for. Beside that it finds processes by the daemon's marker, whatever lives in their
    sessions, and what descends from them: for when the reapers were killed with the daemon. Then
    what has neither the marker nor such a session, as it cleared its environment and called
    `setsid`, lives on; but not in a namespace, as bubblewrap's own process keeps the marker, and
    nothing in there can change that. Spares this process and its ancestors.
    """
    mark = f"{DAEMON_MARKER}={log_id}".encode()
    ended: set[tuple[int, int]] = set()
    with trio.move_on_after(SWEEP_WAIT_S):
        while found := _leftovers(mark):
            reapers = _TABLE.named(mark)
            ended.update((entry.pid, entry.start) for entry in found if entry.pid not in reapers)
            # One by one, as the one who sweeps may have been started in a group of theirs.
            for entry in found:
                # A reaper is not killed: what is below it could get away. It may stand still.
                number = signal.SIGCONT if entry.pid in reapers else signal.SIGKILL
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(entry.pid, number)
            await trio.sleep(POLL_S)
    return len(ended)


def _leftovers(mark: bytes) -> list[ProcessEntry]:
    table = _TABLE.entries()
    living = {pid: entry for pid, entry in table.items() if not entry.dead}
    spared = _ancestry(os.getpid(), table)
    marked = _TABLE.marked(mark) | _TABLE.named(mark)
    roots = [living[pid] for pid in marked if pid in living and pid not in spared]
    sessions = {entry.session for entry in roots} - {table[pid].session for pid in spared}
    roots += [entry for entry in living.values() if entry.session in sessions]
    found = _with_descendants(roots, living)
    return [entry for pid, entry in found.items() if pid not in spared]


def _with_descendants(
    roots: Iterable[ProcessEntry], table: dict[int, ProcessEntry]
) -> dict[int, ProcessEntry]:
    children: dict[int, list[ProcessEntry]] = {}
    for entry in table.values():
        children.setdefault(entry.parent, []).append(entry)
    found = {entry.pid: entry for entry in roots}
    waiting = list(found.values())
    while waiting:
        new = [one for one in children.get(waiting.pop().pid, ()) if one.pid not in found]
        found.update((one.pid, one) for one in new)
        waiting.extend(new)
    return found


def _ancestry(pid: int, table: dict[int, ProcessEntry]) -> set[int]:
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


def _identities(members: Iterable[ProcessEntry]) -> set[tuple[int, int]]:
    return {(entry.pid, entry.start) for entry in members}


def _signal(members: Iterable[ProcessEntry], number: signal.Signals) -> None:
    # By group: the kernel then lets no member fork away between the look and the signal. A group
    # never reaches over its session, so it holds nothing that is not the command's.
    for group in {entry.group for entry in members}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
