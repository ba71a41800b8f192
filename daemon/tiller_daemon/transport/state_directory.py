"""The state directory: its lock, which tells frontends where the daemon's sockets are."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

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


class StateDirectory:
    """A locked state directory, as a context manager; enter it before the runtime directory.

    The lock names the daemon's runtime directory. So a frontend finds the daemon even if the
    frontend's own environment names another runtime directory. Leave this last: a daemon that
    starts must not find the runtime directory in use.
    """

    def __init__(self, path: Path, runtime: Path) -> None:
        self.path = path
        self.previous: Path | None = None
        """The runtime directory of the last daemon, once this is entered; None if none is known."""
        self._lock = LockFile(path / STATE_LOCK_FILE, os.fsencode(runtime))

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
