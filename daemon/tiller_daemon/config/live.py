"""The configuration in use: read again when its file has changed, kept when that can't be read.

What follows from a new one (clients, servers, environments) is the composition root's business.
"""

from collections.abc import Callable
from pathlib import Path

import structlog
import trio

from tiller_daemon.config.schema import Configuration, ConfigurationError

log = structlog.get_logger()

Load = Callable[[], Configuration]
FileState = tuple[int, int, int] | None
"""Of a file: when it was changed, in nanoseconds, its size and its inode. Another one that has all
three in common is taken for the same."""


class LiveConfiguration:
    """`now` is the configuration in use; `problem` says why that is not what the file says."""

    def __init__(self, now: Configuration, load: Load, file: Path) -> None:
        """`now` is what `load` gave at the start; it raises `ConfigurationError`."""
        self.now = now
        self.problem = ""
        self._load = load
        self._file = file
        self._file_state = _file_state(file)

    async def refresh(self) -> bool:
        """Read the file again if it is another one; whether the configuration differs now."""
        file_state = _file_state(self._file)
        if file_state == self._file_state:
            return False
        self._file_state = file_state
        try:
            new = await trio.to_thread.run_sync(self._load)
        except ConfigurationError as error:
            self.problem = str(error)
            log.error("configuration_not_read", reason=self.problem)
            return False
        self.problem = ""
        changed = new != self.now
        self.now = new
        log.info("configuration_read", changed=changed)
        return changed


def _file_state(file: Path) -> FileState:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
