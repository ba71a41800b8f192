"""The configuration in use, which is read again when one of its files has changed.

If a file is invalid, sessions get a warning, and the old configuration stays in use. The
composition root applies a new configuration to clients, servers and environments.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog
import trio

from tiller_daemon.config.schema import Configuration, ConfigurationError
from tiller_daemon.stamps import Stamp, take_stamps

log = structlog.get_logger()

Load = Callable[[], Configuration]


class LiveConfiguration:
    """`now` is the configuration in use.

    `problem` says in whole sentences why a changed file was not applied; otherwise it is empty.
    """

    def __init__(self, now: Configuration, load: Load, file: Path) -> None:
        """Start with `now`, which `load` has read from `file`.

        `load` may raise `ConfigurationError`.
        """
        self.now = now
        self.problem = ""
        self._load = load
        self._file = file
        # Unknown, as the files may have changed since they were read.
        self._stamps: tuple[Stamp, ...] | None = None

    @property
    def is_current(self) -> bool:
        """Whether no file has changed since the last completed `refresh`."""
        known, now_ns = self._stamps, time.time_ns()
        return known is not None and known == take_stamps(self._files(), now_ns)

    async def refresh(self) -> bool:
        """Read the files again if one has changed; return whether the configuration changed."""
        if self.is_current:
            return False
        read_at_ns, self._stamps = time.time_ns(), None
        try:
            new = await trio.to_thread.run_sync(self._load)
        except ConfigurationError as error:
            problem = (
                "The configuration file has changed, but the previous configuration stays in "
                f"effect, because the file can't be used: {error}"
            )
            # The same mistake is reported only once, not before every turn.
            if problem != self.problem:
                log.error("configuration_not_read", reason=str(error))
            self.problem = problem
            return False
        changed = new != self.now
        # As long as the stamps are young, the files are read again even if nothing is new.
        if changed or self.problem:
            log.info("configuration_read", changed=changed)
        self.problem, self.now = "", new
        self._stamps = take_stamps(self._files(), read_at_ns)
        return changed

    def _files(self) -> Iterator[Path]:
        """Yield the files from which `now` was read."""
        yield self._file
        for owner in (*self.now.agents.values(), *self.now.families.values()):
            if owner.prompt_file:
                yield Path(owner.prompt_file)
