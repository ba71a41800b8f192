"""The table of processes of this machine: one small interface, two ways to read it.

Linux reads `/proc`; other systems ask `ps`. What is done with the processes is in `process_tree`.
"""

import os
import subprocess
import sys
import time
from typing import Final, NamedTuple, Protocol

PS_TIMEOUT_S: Final = 5.0
"""`ps` answers in some 20 ms; one that hangs must not hang the daemon."""

_READ_BYTES: Final = 1 << 20
_PS_OF_ALL, _PS_OF_ONE = ("-axEww", "-Eww") if sys.platform == "darwin" else ("axeww", "eww")


class ProcessEntry(NamedTuple):
    """One process.

    `start` tells apart two that had the same `pid` at different times; it is counted from a fixed
    moment in the system's own unit.
    """

    pid: int
    parent: int
    group: int
    session: int
    start: int
    dead: bool


class ProcessTable(Protocol):
    """What this machine says about its processes."""

    def entries(self) -> dict[int, ProcessEntry]:
        """Return every process there is now, by pid; dead ones that nobody reaped included."""
        ...

    def entry(self, pid: int) -> ProcessEntry | None:
        """Return one process, if there is one of that pid."""
        ...

    def variables(self, pid: int) -> bytes:
        """Return the text that holds the environment of `pid` at its start; empty if unknown."""
        ...

    def marked(self, mark: bytes) -> set[int]:
        """Return the pids whose environment at their start held `mark` (`NAME=value`)."""
        ...

    def named(self, mark: bytes) -> set[int]:
        """Return the pids whose command line ends in `mark`."""
        ...


class ProcTable:
    """The table as Linux shows it under `/proc`: some 7 us for each process."""

    def entries(self) -> dict[int, ProcessEntry]:
        """Return every process, by pid."""
        read = (self.entry(pid) for pid in _pids())
        return {entry.pid: entry for entry in read if entry is not None}

    def entry(self, pid: int) -> ProcessEntry | None:
        """Return one process, if there is one of that pid."""
        text = _read(f"/proc/{pid}/stat")
        if not text:
            return None
        # The name in parentheses may hold anything, so the fields are counted from its end.
        fields = text[text.rindex(b")") + 2 :].split()
        parent, group, session = int(fields[1]), int(fields[2]), int(fields[3])
        if session < 0:
            # It is being reaped just now: it is in no session and no group any more.
            return None
        # A process whose first thread has ended looks dead while its other threads run on.
        dead = fields[0] in b"ZX" and int(fields[17]) <= 1
        return ProcessEntry(pid, parent, group, session, int(fields[19]), dead)

    def variables(self, pid: int) -> bytes:
        """Return `NAME=value` pairs parted by NUL; empty for a dead or a foreign process."""
        return _read(f"/proc/{pid}/environ")

    def marked(self, mark: bytes) -> set[int]:
        """Return the pids whose environment held `mark`."""
        return {pid for pid in _pids() if mark in self.variables(pid)}

    def named(self, mark: bytes) -> set[int]:
        """Return the pids whose command line ends in `mark`."""
        return {pid for pid in _pids() if _read(f"/proc/{pid}/cmdline").endswith(b"\0%b\0" % mark)}


class PsTable:
    """The table as POSIX `ps` shows it: for macOS, which has no `/proc`."""

    def entries(self) -> dict[int, ProcessEntry]:
        """Return every process, by pid."""
        found = (_parse_entry(line) for line in _ps("-axo", "pid=,ppid=,pgid=,stat=,lstart="))
        return {entry.pid: entry for entry in found if entry is not None}

    def entry(self, pid: int) -> ProcessEntry | None:
        """Return one process, if there is one of that pid."""
        return self.entries().get(pid)

    def variables(self, pid: int) -> bytes:
        """Return the command line followed by the environment, parted by spaces."""
        return b"\n".join(_ps(_PS_OF_ONE, "-o", "command=", "-p", str(pid)))

    def marked(self, mark: bytes) -> set[int]:
        """Return the pids whose environment held `mark`."""
        lines = _ps(_PS_OF_ALL, "-o", "pid=,command=")
        return {int(line.split(maxsplit=1)[0]) for line in lines if mark in line}

    def named(self, mark: bytes) -> set[int]:
        """Return the pids whose command line ends in `mark`."""
        lines = _ps("-axwwo", "pid=,command=")
        return {int(line.split(maxsplit=1)[0]) for line in lines if line.endswith(b" %b" % mark)}


def choose_table() -> ProcessTable:
    """Return the way to read the table that works on this machine."""
    return ProcTable() if _read("/proc/self/stat") else PsTable()


def _pids() -> list[int]:
    with os.scandir("/proc") as found:
        return [int(one.name) for one in found if one.name.isdigit()]


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
    """Return the content of a file of the kernel; empty when the process is gone or foreign."""
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
