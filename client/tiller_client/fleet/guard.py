"""A small process that stops tasks in time if their gateway can't.

Another host may take a task once the lease of its host has expired. The gateway keeps a file with
the sessions of such tasks, and with the time until which the lease holds. If that time passes,
because the gateway was killed or the network is gone, the guard interrupts the sessions. A gateway
that was started again writes the same file, so the guard of the former one goes on for it.
"""

import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import my_places
from tiller_client.errors import RejectedError, TillerError
from tiller_protocol.answers import SessionListResult
from tiller_protocol.ops import Interrupt, SessionList

FILE, LOCK = "guarded.json", "guard.lock"

NAME = "tiller fleet guard"

TICK_S = 1.0
"""How often the guard looks at the file."""

LINGER_S = 60.0
"""How long the guard stays without anything to guard."""


def clock() -> float:
    """Seconds since the machine was booted, including the time that it slept."""
    name = "CLOCK_BOOTTIME" if hasattr(time, "CLOCK_BOOTTIME") else "CLOCK_MONOTONIC"
    return time.clock_gettime(getattr(time, name))


class Guarded(msgspec.Struct, frozen=True):
    """The file."""

    holds_until: float
    """Until when the lease holds, by `clock`."""
    sessions: dict[str, str]
    """The session of each attempt, by the id of the submission that interrupts it."""


class Guard:
    """The gateway's end: keeps the file, and a process that looks at it."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the gateway's own."""
        self._directory = directory
        self._sessions: dict[str, str] = {}
        self._holds_until = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def renewed(self, holds_until: float) -> None:
        """The lease holds until then, by `clock`."""
        self._holds_until = holds_until
        if self._sessions:
            self._write()

    def watch(self, submission_id: str, session_id: str) -> None:
        """Guard a session, until `forget`."""
        self._sessions[submission_id] = session_id
        self._write()

    def forget(self, submission_id: str) -> None:
        """Guard a session no longer."""
        if self._sessions.pop(submission_id, None):
            self._write()

    def _write(self) -> None:
        new = self._directory / f"{FILE}.new"
        new.write_bytes(msgspec.json.encode(Guarded(self._holds_until, self._sessions)))
        new.replace(self._directory / FILE)
        if self._sessions and (self._process is None or self._process.poll() is not None):
            command = [sys.executable, "-m", "tiller_client.fleet.guard", str(self._directory)]
            # Of its own session, so that no signal to the gateway's group reaches it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, start_new_session=True
            )


def main() -> int:
    """Guard until there is nothing to guard for a while; only one guard does."""
    directory = Path(sys.argv[1])
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    needed_at = clock()
    done: set[str] = set()
    while clock() - needed_at < LINGER_S:
        guarded = _read(directory)
        open_ = {key: one for key, one in guarded.sessions.items() if key not in done}
        if open_:
            needed_at = clock()
            if clock() >= guarded.holds_until:
                done |= _interrupt(open_)
        time.sleep(TICK_S)
    return 0


def _read(directory: Path) -> Guarded:
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Guarded)
    except FileNotFoundError:
        return Guarded(0.0, {})


def _interrupt(sessions: dict[str, str]) -> set[str]:
    """Interrupt the sessions that work; return the submissions that the daemon has answered.

    A session that does not work yet is interrupted later, as the answer to a submission is final.
    Without a daemon, nothing works.
    """
    answered: set[str] = set()
    connect = partial(DaemonConnection, my_places(), NAME, may_start=False)
    with suppress(TillerError), connect() as connection:
        op = SessionList(sessions=tuple(sessions.values()))
        listed = connection.ask(op, SessionListResult).sessions
        busy = {one.session_id for one in listed if one.working_since is not None}
        for submission_id, session_id in sessions.items():
            if session_id in busy:
                with suppress(RejectedError):
                    connection.submit(Interrupt(session_id), submission_id=submission_id)
                answered.add(submission_id)
    return answered


if __name__ == "__main__":
    raise SystemExit(main())
