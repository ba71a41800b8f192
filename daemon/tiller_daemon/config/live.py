"""The configuration in use. It is read again when its file has changed.

If the file is invalid, sessions get a warning and the old configuration stays. The composition root
applies a new one to clients, servers and environments.
"""

from collections.abc import Callable
from pathlib import Path

import structlog
import trio

from tiller_daemon.config.schema import Configuration, ConfigurationError

log = structlog.get_logger()

Load = Callable[[], Configuration]
FileState = tuple[int, int, int] | None
"""Modification time in nanoseconds, size and inode of a file; `None` if there is none. Files that
agree in all three are taken for the same."""


class LiveConfiguration:
    """`now` is the configuration in use; `problem` says why the file could not replace it."""

    def __init__(self, now: Configuration, load: Load, file: Path) -> None:
        """`now` is what `load` returned at start; `load` raises `ConfigurationError`."""
        self.now = now
        self.problem = ""
        self._load = load
        self._file = file
        self._file_state = _file_state(file)

    async def refresh(self) -> bool:
        """Read the file again if it has changed; returns whether the configuration did."""
        file_state = _file_state(self._file)
        if file_state == self._file_state:
            return False
        # Set before loading, so that an invalid file is reported once and not before every turn.
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
