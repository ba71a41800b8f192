"""The state directory: its lock, which tells frontends where the daemon's sockets are."""

import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from tiller_daemon import DAEMON_VERSION
from tiller_daemon.transport.lock_file import LockFile, LockTaken
from tiller_daemon.transport.runtime import (
    AlreadyRunning,
    RuntimeDirectory,
    RuntimeDirectoryError,
)
from tiller_protocol.places import LOCK_FILE, STATE_LOCK_FILE, Places

LEAVING_S = 10.0
"""How long to wait for a daemon whose runtime directory was removed; it notices that and ends."""

POLL_S = 0.05

WORD_BYTES = 8
"""How many random bytes tell this daemon from others that use the directory."""

EXIT_TAKEN_AWAY = 1

log = structlog.get_logger()


class StateDirectory:
    """A locked state directory, as a context manager; enter it before the runtime directory.

    The lock names the daemon's version, a random word and the daemon's runtime directory. So a
    frontend finds the daemon even if the frontend's own environment names another runtime
    directory. Leave this last: a daemon that starts must not find the runtime directory in use.
    """

    def __init__(self, path: Path, runtime: Path) -> None:
        self.path = path
        self.previous: Path | None = None
        """The runtime directory of the last daemon, once this is entered; None if none is known."""
        words = f"{DAEMON_VERSION} {secrets.token_hex(WORD_BYTES)}".encode()
        self._lock = LockFile(path / STATE_LOCK_FILE, os.fsencode(runtime), words)

    def __enter__(self) -> Self:
        """Lock the directory; raises `AlreadyRunning` or `RuntimeDirectoryError`."""
        deadline = time.monotonic() + LEAVING_S
        while True:
            try:
                last = self._lock.take()
            except LockTaken as taken:
                if time.monotonic() > deadline or not _is_leaving(taken):
                    raise AlreadyRunning(self.path, taken.pid, "--state") from None
                time.sleep(POLL_S)
            except OSError as error:
                raise RuntimeDirectoryError(
                    f"cannot use the state directory {self.path}: {error.strerror};"
                    " give another --state directory"
                ) from error
            else:
                self.previous = Path(os.fsdecode(last)) if last else None
                return self

    def __exit__(self, *_: object) -> None:
        """Unlock the directory."""
        self._lock.release()

    def missing(self) -> str:
        """Return the name of the lock file if it was removed, or ""."""
        return "" if self._lock.is_current() else STATE_LOCK_FILE

    def leave_if_taken(self) -> None:
        """End this process at once if another daemon has written its word into the lock file.

        That happens on a file system whose locks have no effect, such as one that two machines
        share. Each further write would damage the log, so this ends like `kill -9`.
        """
        if self._lock.is_overwritten():
            log.critical(
                "state_directory_taken",
                directory=str(self.path),
                message="another daemon uses this state directory, as its file system does not "
                "lock files reliably, so this daemon has ended: give each its own --state",
            )
            os._exit(EXIT_TAKEN_AWAY)


class HeldDirectories(NamedTuple):
    """The state directory and the runtime directory, both locked."""

    state: StateDirectory
    runtime: RuntimeDirectory

    def missing(self) -> Path | None:
        """Return a missing file that frontends need to find this daemon."""
        for directory in self:
            if name := directory.missing():
                return directory.path / name
        return None


@contextmanager
def hold_directories(places: Places, after_crash: str) -> Generator[HeldDirectories]:
    """Lock both directories; raises the errors of `StateDirectory` and `RuntimeDirectory`."""
    with (
        StateDirectory(places.state, places.runtime) as state,
        RuntimeDirectory(places.runtime, after_crash, state.previous) as runtime,
    ):
        yield HeldDirectories(state, runtime)


def _is_leaving(holder: LockTaken) -> bool:
    """Whether the runtime directory of the daemon with the lock was removed."""
    return bool(holder.line) and not Path(os.fsdecode(holder.line), LOCK_FILE).exists()
