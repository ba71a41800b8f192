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

KILL_WAIT_S: Final = 2.0
"""How long SIGKILL is repeated; what lives on then is stuck in the kernel or another user's."""

SWEEP_WAIT_S: Final = 2.0
"""The same for what a killed daemon left behind."""

_PR_SET_CHILD_SUBREAPER: Final = 36  # <linux/prctl.h>

_TABLE = choose_table()
_own: set[int] = set()
_trees: set["Tree"] = set()
_adopts: list[bool] = [False]


class Ended(NamedTuple):
    """How many processes were alive when the end began, and how many could not be ended."""

    processes: int
    survivors: int


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
    waited for only after `end`, so that its pid means nothing else until then.
    """

    def __init__(self) -> None:
        self.token: Final = secrets.token_hex(8)
        self._mark: Final = f"{COMMAND_MARKER}={self.token}".encode()
        self._start = 0
        self._sessions: set[int] = set()
        self._known: dict[int, int] = {}

    def begin(self, leader: int) -> None:
        """Say which process is the shell; it leads a session of its own."""
        own(leader)
        self._sessions.add(leader)
        self._start = _start_of(leader)
        _trees.add(self)

    def close(self) -> None:
        """Forget the tree; call after `end`, in any case."""
        _trees.discard(self)

    def alive(self) -> list[Entry]:
        """Return the processes of this command that live now; reaps dead orphans on the way."""
        table = _TABLE.entries()
        _reap(table.values())
        members = self._members(table)
        self._known = {entry.pid: entry.start for entry in members}
        self._sessions.update(entry.session for entry in members)
        return [entry for entry in members if not entry.dead]

    async def end(self, grace_s: float) -> Ended:
        """End every process: SIGTERM, up to `grace_s` seconds, then SIGKILL until none is left.

        When it returns they are dead, and those that had no parent left are reaped. Takes at most
        `grace_s` + `KILL_WAIT_S`; run it in a shield when the command was cancelled.
        """
        if not (members := self.alive()):
            return Ended(0, 0)
        seen = {(entry.pid, entry.start) for entry in members}
        _signal(members, signal.SIGTERM)
        # A stopped process acts on SIGTERM only once it runs again.
        _signal(members, signal.SIGCONT)
        with trio.move_on_after(grace_s):
            while members:
                await self.gone(members)
                members = self.alive()
                seen.update((entry.pid, entry.start) for entry in members)
        with trio.move_on_after(KILL_WAIT_S):
            while members := self.alive():
                seen.update((entry.pid, entry.start) for entry in members)
                _signal(members, signal.SIGKILL)
                await trio.sleep(POLL_S)
        return Ended(len(seen), len(members))

    async def gone(self, members: Iterable[Entry]) -> None:
        """Wait until none of `members` lives, at a cost that does not grow with the machine."""
        for entry in members:
            while _lives(entry):  # noqa: ASYNC110 - orphans tell nobody of their end
                await trio.sleep(POLL_S)

    def _members(self, table: dict[int, Entry]) -> list[Entry]:
        children: dict[int, list[Entry]] = {}
        for entry in table.values():
            children.setdefault(entry.parent, []).append(entry)
        marked = set[int]() if _adopts[0] else _TABLE.marked(self._mark)
        found = {
            entry.pid: entry
            for entry in table.values()
            if entry.pid in marked or self._holds(entry, table)
        }
        waiting = list(found.values())
        while waiting:
            new = [one for one in children.get(waiting.pop().pid, ()) if one.pid not in found]
            found.update((one.pid, one) for one in new)
            waiting.extend(new)
        return list(found.values())

    def _holds(self, entry: Entry, table: dict[int, Entry]) -> bool:
        if entry.session in self._sessions or self._known.get(entry.pid) == entry.start:
            return True
        return _is_orphan(entry) and self._claims(entry, table)

    def _claims(self, orphan: Entry, table: dict[int, Entry]) -> bool:
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
        return all(tree is self for tree in _trees if tree._start <= orphan.start)


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
            _signal(found, signal.SIGKILL)
            await trio.sleep(POLL_S)
    return len(killed)


def _left_over(mark: bytes) -> list[Entry]:
    table = _TABLE.entries()
    _reap(table.values())
    spared = _line_of(os.getpid(), table)
    living = [one for one in table.values() if not one.dead and one.pid not in spared]
    roots = _TABLE.marked(mark) & {one.pid for one in living}
    sessions = {table[pid].session for pid in roots} - {table[pid].session for pid in spared}
    return [
        one
        for one in living
        if one.session in sessions or not roots.isdisjoint(_line_of(one.pid, table))
    ]


def _line_of(pid: int, table: dict[int, Entry]) -> set[int]:
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


def _start_of(pid: int) -> int:
    entry = _TABLE.entry(pid)
    return entry.start if entry else 0


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


def _reap(entries: Iterable[Entry]) -> None:
    for entry in entries:
        if entry.dead and _is_orphan(entry):
            with suppress(ChildProcessError):
                os.waitpid(entry.pid, os.WNOHANG)


def _signal(members: Iterable[Entry], number: signal.Signals) -> None:
    # By group: the kernel then lets no member fork away between the look and the signal. A group
    # never reaches over its session, so it holds nothing that is not the command's.
    for group in {entry.group for entry in members}:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
