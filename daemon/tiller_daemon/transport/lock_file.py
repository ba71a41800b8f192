"""A file that at most one daemon locks, and whose first line begins with that daemon's pid.

The kernel unlocks the file when the daemon ends, however it ends.
"""

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from tiller_daemon.private import open_private

TRIES_MAX = 100
"""How often to try to lock a file that another process keeps removing."""

LOCK_TIMEOUT_S = 0.05
"""How long to try to lock a file that is locked.

A frontend that checks whether a daemon is running takes the lock for some microseconds if no daemon
is running.
"""

LOCK_POLL_S = 0.001
CONTENT_BYTES_MAX = 8192
"""Far more than a pid and a path need."""


class LockTaken(Exception):
    """Another daemon has locked the file; `pid` is None if it has not written its pid yet.

    `line` is the file's second line.
    """

    def __init__(self, pid: int | None, line: bytes) -> None:
        super().__init__(pid, line)
        self.pid = pid
        self.line = line


class LockFile:
    """A lock file at `path`; `words` follow the pid in the first line, `line` is the second."""

    def __init__(self, path: Path, line: bytes = b"", words: bytes = b"") -> None:
        self.path = path
        self._line = line
        self._words = words
        self._lock = -1

    def take(self) -> bytes:
        """Lock the file; return the second line that the last daemon has written.

        Raises `LockTaken`, or `OSError` if the file can't be used.
        """
        for _ in range(TRIES_MAX):
            self._lock = open_private(self.path, os.O_RDWR | os.O_CREAT)
            try:
                self._flock()
                # If the file was removed meanwhile, another daemon may lock a new one.
                if self.is_current():
                    last = self._read()[1]
                    # At once: until then, a frontend reads the pid of a daemon that crashed.
                    self._write(b" ".join(filter(None, (b"%d" % os.getpid(), self._words))))
                    return last
            except BlockingIOError:
                pid, line = self._read()
                os.close(self._lock)
                raise LockTaken(int(pid) if pid.isdigit() else None, line) from None
            except BaseException:
                os.close(self._lock)
                raise
            os.close(self._lock)
        raise OSError(errno.EBUSY, f"another program keeps removing {self.path}")

    def release(self) -> None:
        """Remove the pid and unlock the file."""
        with suppress(OSError):
            self._write(b"")
        os.close(self._lock)  # the file is kept, as otherwise two daemons could lock two files
        self._lock = -1

    def is_current(self) -> bool:
        """Whether the locked file is still the one at `path`."""
        try:
            return os.path.samestat(os.fstat(self._lock), self.path.lstat())
        except OSError:
            return False

    def is_overwritten(self) -> bool:
        """Whether another daemon has written its words into the file, in spite of the lock."""
        try:
            # Opened anew, as a network file system may show an open file as it was earlier.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return self._words not in os.read(descriptor, CONTENT_BYTES_MAX)
            finally:
                os.close(descriptor)
        except OSError:  # for example, no more files can be opened
            return False

    def _flock(self) -> None:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_POLL_S)

    def _read(self) -> tuple[bytes, bytes]:
        first, _, rest = os.pread(self._lock, CONTENT_BYTES_MAX, 0).partition(b"\n")
        return first.partition(b" ")[0], rest.removesuffix(b"\n")

    def _write(self, first: bytes) -> None:
        content = b"\n".join((first, self._line)) + b"\n" if self._line else first + b"\n"
        # In place, which needs no space on a full disk, and leaves readers no incomplete content.
        os.pwrite(self._lock, content, 0)
        os.ftruncate(self._lock, len(content))
