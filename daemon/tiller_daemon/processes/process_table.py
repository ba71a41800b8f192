"""The table of this machine's processes: two classes with the same methods.

On Linux it reads `/proc`; on other systems it runs `ps`. `process_tree` uses the table.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

PS_TIMEOUT_S: Final = 5.0
"""How long `ps` may take, so that the daemon does not hang if `ps` does; it takes some 20 ms."""

_READ_BYTES: Final = 1 << 20
_PASSES: Final = 2
_HAS_CHILDREN: Final = os.access(f"/proc/self/task/{os.getpid()}/children", os.R_OK)
"""Whether the kernel lists children, which needs CONFIG_PROC_CHILDREN."""

_PS_OF_ALL: Final = "-axEww" if sys.platform == "darwin" else "axeww"
"""The options with which `ps` also prints the environment of every process."""


class ProcessEntry(NamedTuple):
    """One process."""

    pid: int
    """The process id."""
    parent: int
    """The pid of the current parent."""
    group: int
    """The id of the process group."""
    session: int
    """The id of the process session."""
    start: int
    """The start time in the system's unit, which distinguishes processes with the same pid."""
    dead: bool
    """Whether the process has exited but was not reaped yet."""


class ProcTable:
    """The table that Linux has in `/proc`; reading takes some 7 to 30 us per process."""

    def entries(self) -> dict[int, ProcessEntry]:
        """Return every process, by pid."""
        read = (self.entry(pid) for pid in _pids())
        return {entry.pid: entry for entry in read if entry is not None}

    def entry(self, pid: int) -> ProcessEntry | None:
        """Return the process with this pid, if there is one."""
        text = _read(f"/proc/{pid}/stat")
        if not text:
            return None
        # The name in parentheses may contain anything, so fields are counted from its end.
        fields = text[text.rindex(b")") + 2 :].split()
        parent, group, session = int(fields[1]), int(fields[2]), int(fields[3])
        if session < 0:
            # The process is being reaped and no longer belongs to a session or group.
            return None
        # A process whose main thread has ended looks dead while other threads still run.
        dead = fields[0] in b"ZX" and int(fields[17]) <= 1
        return ProcessEntry(pid, parent, group, session, int(fields[19]), dead)

    def descendants(self, pid: int) -> dict[int, ProcessEntry]:
        """Return all descendants of a process, from the kernel's lists of children if possible.

        With a hundred processes on the machine, that takes a thirtieth of the time that reading the
        entry of every process takes.
        """
        if not _HAS_CHILDREN:
            return descendants_in(self.entries(), pid)
        found: dict[int, ProcessEntry] = {}
        # An orphan moves to the list of its reaper, which may have been read before. So all lists
        # are read twice; more would never end if processes fork and exit all the time.
        for _ in range(_PASSES):
            waiting = [pid, *found]
            while waiting:
                for child in _children(waiting.pop()):
                    if child not in found and (entry := self.entry(child)):
                        found[child] = entry
                        waiting.append(child)
        return found

    def marked(self, mark: bytes) -> set[int]:
        """Return the pids whose initial environment contained `mark`."""
        return {pid for pid in _pids() if mark in _read(f"/proc/{pid}/environ")}

    def named(self, mark: bytes) -> set[int]:
        """Return the pids whose command line ends in `mark`."""
        return {pid for pid in _pids() if _read(f"/proc/{pid}/cmdline").endswith(b"\0%b\0" % mark)}


class PsTable:
    """The table that POSIX `ps` prints, for macOS, which has no `/proc`."""

    def entries(self) -> dict[int, ProcessEntry]:
        """Return every process, by pid."""
        entries = (_parse_entry(line) for line in _ps("-axo", "pid=,ppid=,pgid=,stat=,lstart="))
        return {entry.pid: entry for entry in entries if entry is not None}

    def descendants(self, pid: int) -> dict[int, ProcessEntry]:
        """Return all descendants of a process, by pid."""
        return descendants_in(self.entries(), pid)

    def marked(self, mark: bytes) -> set[int]:
        """Return the pids whose initial environment contained `mark`."""
        lines = _ps(_PS_OF_ALL, "-o", "pid=,command=")
        return {int(line.split(maxsplit=1)[0]) for line in lines if mark in line}

    def named(self, mark: bytes) -> set[int]:
        """Return the pids whose command line ends in `mark`."""
        lines = _ps("-axwwo", "pid=,command=")
        return {int(line.split(maxsplit=1)[0]) for line in lines if line.endswith(b" %b" % mark)}


def choose_table() -> ProcTable | PsTable:
    """Return the table that works on this machine."""
    return ProcTable() if _read("/proc/self/stat") else PsTable()


def descendants_in(table: Mapping[int, ProcessEntry], *pids: int) -> dict[int, ProcessEntry]:
    """Return all processes of a table that descend from one of these pids."""
    children: dict[int, list[ProcessEntry]] = {}
    for entry in table.values():
        children.setdefault(entry.parent, []).append(entry)
    found: dict[int, ProcessEntry] = {}
    waiting = [*pids]
    while waiting:
        new = [one for one in children.get(waiting.pop(), ()) if one.pid not in found]
        found.update((one.pid, one) for one in new)
        waiting.extend(one.pid for one in new)
    return found


def _children(pid: int) -> Iterator[int]:
    """Yield the pids of the children of all threads of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a third of the time
    except OSError:
        return
    for thread in threads:
        yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(one.name) for one in entries if one.name.isdigit()]


def _parse_entry(line: bytes) -> ProcessEntry | None:
    pid, parent, group, state, start = line.decode(errors="replace").split(maxsplit=4)
    try:
        session = os.getsid(int(pid))
    except OSError:
        return None
    started = int(time.mktime(time.strptime(start.strip(), "%a %b %d %H:%M:%S %Y")))
    dead = state.startswith("Z") and "l" not in state
    return ProcessEntry(int(pid), int(parent), int(group), session, started, dead)


def _read(path: str) -> bytes:
    """Return the content of a kernel file; empty if the process is gone or another user's."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(opened, _READ_BYTES)
    except OSError:
        return b""
    finally:
        os.close(opened)


def _ps(*arguments: str) -> list[bytes]:
    asked = subprocess.run(
        ["ps", *arguments],
        capture_output=True,
        check=False,
        env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
        timeout=PS_TIMEOUT_S,
    )
    return asked.stdout.splitlines()
