"""The processes of one command: who they are, and how they are all ended.

A process belongs to a command when it descends from its shell, lives in a session that began
there, or carries the command's token in its environment. The daemon is a subreaper (Linux), so an
orphan becomes the daemon's child instead of vanishing under init: that is how one that called
`setsid`, forked twice and cleared its environment is still found. Never by name.

Starting a command and reading its output is in `process`.
"""

import ctypes
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import trio

from tiller_daemon.workspace.environment import DAEMON_MARKER
from tiller_daemon.workspace.table import Entry, choose_table

COMMAND_MARKER: Final = "TILLER_COMMAND"
"""Holds a token of this very run; call ids alone may repeat from session to session."""

POLL_S: Final = 0.005
"""How often it is looked whether processes that were signalled are gone."""

YOUNG_S: Final = 0.04
"""Below this age a process that carries no mark may still be on its way to exec."""

YOUNG_LOOKS: Final = 10
"""How often it is looked again for such a one to grow up."""

KILL_WAIT_S: Final = 2.0
"""How long SIGKILL is repeated; what lives on then is stuck in the kernel or another user's."""

SWEEP_WAIT_S: Final = 5.0
"""The same for what a killed daemon left behind; five hundred processes take 0.6 s."""

_PR_SET_CHILD_SUBREAPER: Final = 36  # <linux/prctl.h>
_PR_SET_DUMPABLE: Final = 4

_TABLE = choose_table()
_own: set[int] = set()
_trees: set["Tree"] = set()
_adopts: list[bool] = [False]


class Ended(NamedTuple):
    """How many processes were alive when the end began, and how many could not be ended."""

    processes: int
    survivors: int


def close_to_others() -> None:
    """Let no process of this user read the daemon's memory or environment, where keys are (G13).

    Linux; root can read them all the same.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def become_subreaper() -> bool:
    """Make orphans of commands children of this process; call once, before the first command.

    Returns False where the system has no such thing (macOS): then an orphan that cleared its
    environment and left its session can't be found.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        _adopts[0] = libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    return _adopts[0]


def own(pid: int) -> None:
    """Say that the child `pid` is the daemon's own: no command's end touches or reaps it."""
    _own.add(pid)


def disown(pid: int) -> None:
    """Say that the child `pid` has been waited for."""
    _own.discard(pid)


class Tree:
    """The processes of one command.

    Made before the command starts, for its `token`; `begin` names the shell. The shell must be
    waited for only after `end`, so that its pid means nothing else until then. One that is
    `lasting` serves many calls: what could be its or a command's is taken for the command's.
    `helpers` processes are of the sandbox around it.
    """

    def __init__(self, *, lasting: bool = False, helpers: int = 0) -> None:
        self.token: Final = secrets.token_hex(8)
        self.helpers: Final = helpers
        self._lasting: Final = lasting
        self._mark: Final = f"{COMMAND_MARKER}={self.token}".encode()
        self._leader = 0
        self._start = 0
        self._sessions: set[int] = set()
        self._known: dict[int, int] = {}

    def begin(self, leader: int) -> None:
        """Say which process is the shell; it leads a session of its own."""
        own(leader)
        self._leader = leader
        self._sessions.add(leader)
        entry = _TABLE.entry(leader)
        self._start = entry.start if entry else 0
        _trees.add(self)

    def close(self) -> None:
        """Forget the tree; call after `end`, in any case."""
        _trees.discard(self)

    def left_nothing(self) -> bool:
        """Whether the shell, which has exited, surely left no process: the quick and usual case.

        What it left would be a child of the daemon now, or descend from one. Costs a twentieth of
        a look at the whole table.
        """
        return _adopts[0] and _has_only_own_children()

    async def settle(self) -> None:
        """Wait until no process of this command is left; the dead are reaped on the way."""
        while members := await self._members():
            _reap(members)
            await _gone(members)

    async def end(self, grace_s: float) -> Ended:
        """End every process: SIGTERM, up to `grace_s` seconds, then SIGKILL until none is left.

        When it returns they are dead, and those that had no parent left are reaped. Takes at most
        `grace_s` + `KILL_WAIT_S`; run it in a shield when the command was cancelled.
        """
        if not (members := await self._members()):
            return Ended(0, 0)
        seen = _living(members)
        _signal(members, signal.SIGTERM)
        # A stopped process acts on SIGTERM only once it runs again.
        _signal(members, signal.SIGCONT)
        with trio.move_on_after(grace_s):
            await self.settle()
            return Ended(len(seen), 0)
        with trio.move_on_after(KILL_WAIT_S):
            while members := await self._members():
                seen |= _living(members)
                _signal(members, signal.SIGKILL)
                _reap(members)
                await trio.sleep(POLL_S)
        return Ended(len(seen), len(_living(members)))

    async def _members(self) -> list[Entry]:
        """Return the processes of this command, with the dead that were not reaped yet.

        Only when there are not even dead ones is it quiet: of processes that fork and exit all
        the time, a look at the table may miss every living one.
        """
        members, young = self._look()
        for _ in range(YOUNG_LOOKS):
            if not young:
                break
            await trio.sleep(POLL_S)
            members, young = self._look()
        self._known = {entry.pid: entry.start for entry in members}
        self._sessions.update(entry.session for entry in members)
        return members

    def _look(self) -> tuple[list[Entry], bool]:
        """Return the members, and whether there is a process too young to be told what it is."""
        table = _TABLE.entries()
        orphans = [entry for entry in table.values() if _is_orphan(entry)]
        marked = set[int]() if _adopts[0] else _TABLE.marked(self._mark)
        roots = [
            entry
            for entry in table.values()
            if entry.session in self._sessions
            or self._known.get(entry.pid) == entry.start
            or entry.pid in marked
        ]
        claims = {orphan.pid: self._claims(orphan, table) for orphan in orphans}
        roots.extend(orphan for orphan in orphans if claims[orphan.pid])
        members = _with_descendants(roots, table)
        shell = members.get(self._leader)
        if shell and shell.dead:
            # It stays unreaped to the end, so that its pid and its group are nobody else's.
            del members[self._leader]
        return list(members.values()), None in claims.values()

    def _claims(self, orphan: Entry, table: dict[int, Entry]) -> bool | None:
        """Whether an orphan is of this command; None if that can't be said yet."""
        # A process is judged by the leader of its session while that one lives, so that a helper
        # of one of the daemon's servers is not taken for a stranger.
        judged = table.get(orphan.session, orphan)
        if judged.pid in _own:
            return False
        variables = _TABLE.variables(judged.pid)
        if self._mark in variables:
            return True
        if COMMAND_MARKER.encode() in variables or DAEMON_MARKER.encode() in variables:
            return False
        # It carries no mark at all: it goes to the last of the commands that can have left it.
        older = [tree for tree in _trees if tree._start <= orphan.start]
        if ([tree for tree in older if not tree._lasting] or older) != [self]:
            return False
        return None if not orphan.dead and _is_young(orphan) else True


def reap_orphans() -> None:
    """Reap what died in the care of the daemon; cheap when there is nothing to reap.

    For now and then while a long command runs: its dead daemons would fill the process table. A
    child in the daemon's own session is one that somebody is about to wait for.
    """
    if not _adopts[0]:
        return
    try:
        children = _children()
    except OSError:
        table = _TABLE.entries()
        children = {pid for pid, entry in table.items() if entry.parent == os.getpid()}
    for pid in children - _own:
        with suppress(ChildProcessError, ProcessLookupError):
            if os.getsid(pid) != os.getsid(0):
                os.waitpid(pid, os.WNOHANG)


async def sweep(log_id: str) -> int:
    """Kill what is left over from a daemon that was killed; return how many processes were.

    Call at start, before the first command. Finds processes by the daemon's marker, whatever
    lives in their sessions, and what descends from them. Spares this process and its ancestors.
    """
    mark = f"{DAEMON_MARKER}={log_id}".encode()
    killed: set[tuple[int, int]] = set()
    with trio.move_on_after(SWEEP_WAIT_S):
        while found := _left_over(mark):
            killed.update((entry.pid, entry.start) for entry in found)
            # One by one, as the one who sweeps may have been started in a group of theirs.
            for entry in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(entry.pid, signal.SIGKILL)
            await trio.sleep(POLL_S)
    return len(killed)


def _left_over(mark: bytes) -> list[Entry]:
    table = _TABLE.entries()
    _reap(entry for entry in table.values() if _is_orphan(entry))
    living = {pid: entry for pid, entry in table.items() if not entry.dead}
    spared = _line_of(os.getpid(), table)
    marked = [living[pid] for pid in _TABLE.marked(mark) if pid in living and pid not in spared]
    sessions = {entry.session for entry in marked} - {table[pid].session for pid in spared}
    roots = [*marked, *(entry for entry in living.values() if entry.session in sessions)]
    found = _with_descendants(roots, living)
    return [entry for pid, entry in found.items() if pid not in spared]


def _with_descendants(roots: Iterable[Entry], table: dict[int, Entry]) -> dict[int, Entry]:
    children: dict[int, list[Entry]] = {}
    for entry in table.values():
        children.setdefault(entry.parent, []).append(entry)
    found = {entry.pid: entry for entry in roots}
    waiting = list(found.values())
    while waiting:
        new = [one for one in children.get(waiting.pop().pid, ()) if one.pid not in found]
        found.update((one.pid, one) for one in new)
        waiting.extend(new)
    return found


def _line_of(pid: int, table: dict[int, Entry]) -> set[int]:
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


async def _gone(members: Iterable[Entry]) -> None:
    """Wait until none of `members` lives, at a cost that does not grow with the machine."""
    for entry in members:
        while _lives(entry):  # noqa: ASYNC110 - orphans tell nobody of their end
            await trio.sleep(POLL_S)
    await trio.lowlevel.checkpoint()


def _lives(entry: Entry) -> bool:
    now = _TABLE.entry(entry.pid)
    return now is not None and not now.dead and now.start == entry.start


def _is_orphan(entry: Entry) -> bool:
    """Whether a command, not the daemon, may have started this child of the daemon.

    Children that other parts of the daemon start stay in the daemon's session; a command begins
    a session of its own and none of its processes can come back from there.
    """
    return (
        _adopts[0]
        and entry.parent == os.getpid()
        and entry.pid not in _own
        and entry.session != os.getsid(0)
    )


def _is_young(entry: Entry) -> bool:
    """Whether it may still be on its way to its own environment, between fork and exec."""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - entry.start / os.sysconf("SC_CLK_TCK")
    return age_s < YOUNG_S


def _living(members: Iterable[Entry]) -> set[tuple[int, int]]:
    return {(entry.pid, entry.start) for entry in members if not entry.dead}


def _has_only_own_children() -> bool:
    """Whether the daemon surely has no child but those it started itself.

    The kernel may leave out a child while another one exits, so two readings must agree; without
    the file (it is an option of the kernel) it is not known.
    """
    try:
        first, second = _children(), _children()
    except OSError:
        return False
    return first == second and first <= _own


def _children() -> set[int]:
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - half the cost of a Path
        descriptor = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while piece := os.read(descriptor, 1 << 16):
                found.update(int(pid) for pid in piece.split())
        finally:
            os.close(descriptor)
    return found


def _reap(members: Iterable[Entry]) -> None:
    for entry in members:
        if entry.dead and entry.parent == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(entry.pid, os.WNOHANG)


def _signal(members: Iterable[Entry], number: signal.Signals) -> None:
    # By group: the kernel then lets no member fork away between the look and the signal. A group
    # never reaches over its session, so it holds nothing that is not the command's.
    for group in {entry.group for entry in members}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
