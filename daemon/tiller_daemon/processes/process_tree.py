"""Finds all processes of a command, and ends them.

Every command runs below its own reaper (`reaper`), and the kernel makes orphans below a reaper its
children. A process belongs to the command if it descends from that reaper. Nothing that a process
controls matters, such as its name, session or environment. Processes in a sandbox's namespace
descend from the reaper as well.

Without subreapers (macOS), an orphan is found by its session, by a token in its environment, or
because it was seen before. A process that evades all three escapes.
"""

import ctypes
import math
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
from tiller_daemon.processes.process_table import ProcessEntry, choose_table, descendants_in

COMMAND_MARKER: Final = "TILLER_COMMAND"
"""The variable with a token for each run of a command, on systems without subreapers."""

POLL_S: Final = 0.005
"""How often to check whether signalled processes are gone."""

KILL_WAIT_S: Final = 2.0
"""How long SIGKILL is repeated while no process dies. The processes that are left then are stuck in
the kernel or belong to another user."""

SWEEP_WAIT_S: Final = 5.0
"""How long `sweep` repeats SIGKILL; five hundred processes take 0.6 s."""

_PR_SET_DUMPABLE: Final = 4  # <linux/prctl.h>

_TABLE = choose_table()


class EndedProcesses(NamedTuple):
    """How many processes were alive before they were ended, and how many could not be ended."""

    processes: int
    survivors: int


def forbid_tracing() -> None:
    """Keep other processes from reading the daemon's memory and environment, which contain keys.

    This works only on Linux, and not against root.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class ProcessTree:
    """A running command with all its processes; always call `close`."""

    def __init__(
        self,
        arguments: Sequence[str],
        directory: os.PathLike[str],
        variables: Mapping[str, str],
        descriptors: Mapping[int, int],
    ) -> None:
        """Start the command; see `ForkServer.start`."""
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
        """Stop watching the command; call this after `end`. The reaper kills living processes."""
        self.running.close()

    def left_nothing(self) -> bool:
        """Whether the reaper has reported that no process is left."""
        return self._adopts and self.running.is_empty

    async def wait_until_empty(self) -> None:
        """Wait until no process of this command is left."""
        await self.running.emptied()
        while not self._adopts and self._members():  # noqa: ASYNC110 - there is no event for this
            await trio.sleep(POLL_S)

    async def end(self, grace_s: float) -> EndedProcesses:
        """End all processes: send SIGTERM, wait for `grace_s`, and send SIGKILL until none is left.

        This takes at most `grace_s`, the time in which the processes die, and `KILL_WAIT_S`. It
        leaves only survivors alive. After a cancellation, call this in a shield.
        """
        members = self._members()
        identities = _identities(members)
        _signal(members, signal.SIGTERM)
        # A stopped process handles SIGTERM only after it continues.
        _signal(members, signal.SIGCONT)
        with trio.move_on_after(grace_s):
            await self.wait_until_empty()
            return EndedProcesses(len(identities), 0)
        fewest, died_at = math.inf, trio.current_time()
        while True:
            members = self._members()
            # On a busy machine, killed processes wait for their turn to die.
            if len(members) < fewest:
                fewest, died_at = len(members), trio.current_time()
            elif trio.current_time() - died_at > KILL_WAIT_S:
                return EndedProcesses(len(identities), len(members))
            identities |= _identities(members)
            _signal(members, signal.SIGKILL)
            with trio.move_on_after(POLL_S):
                await self.wait_until_empty()
                return EndedProcesses(len(identities), 0)

    def _members(self) -> list[ProcessEntry]:
        """Return this command's living processes, as far as one reading of the table shows them.

        This may miss processes that fork and exit all the time. The reaper knows when none is left.
        """
        if self.left_nothing():
            return []
        members = _TABLE.descendants(self.running.reaper)
        if not self._adopts:
            table = _TABLE.entries()
            members |= _with_descendants(self._roots_without_adoption(table), table)
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
    """End the processes that a killed daemon has left; return how many there were.

    Call this at the start, before the first command. Reapers end their own commands, and this
    function waits for them. In case they were killed too, it also ends the processes with the
    daemon's marker, all processes in their sessions, and all descendants. A process whose reaper is
    dead can escape by clearing its environment and calling `setsid`, but not in a namespace,
    because bubblewrap's own process keeps the marker. This process and its ancestors are spared.
    """
    mark = f"{DAEMON_MARKER}={log_id}".encode()
    ended: set[tuple[int, int]] = set()
    with trio.move_on_after(SWEEP_WAIT_S):
        while members := _leftovers(mark):
            reapers = _TABLE.named(mark)
            ended.update((entry.pid, entry.start) for entry in members if entry.pid not in reapers)
            # One by one instead of by group, because this process may belong to one of the groups.
            for entry in members:
                # A reaper is not killed, as its descendants could escape. It is continued, as it
                # may have been stopped.
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
    members = _with_descendants(roots, living)
    return [entry for pid, entry in members.items() if pid not in spared]


def _with_descendants(
    roots: Iterable[ProcessEntry], table: dict[int, ProcessEntry]
) -> dict[int, ProcessEntry]:
    named = {entry.pid: entry for entry in roots}
    return named | descendants_in(table, *named)


def _ancestry(pid: int, table: dict[int, ProcessEntry]) -> set[int]:
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


def _identities(members: Iterable[ProcessEntry]) -> set[tuple[int, int]]:
    return {(entry.pid, entry.start) for entry in members}


def _signal(members: Iterable[ProcessEntry], number: signal.Signals) -> None:
    # By group, so that no member can escape by forking before the signal arrives. A group never
    # spans sessions, so all its processes belong to the command.
    for group in {entry.group for entry in members}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
