"""The configuration in use, which is read again when one of its files has changed.

If a file is invalid, sessions get a warning, and the old configuration stays in use. The
composition root applies a new configuration to clients, servers and environments.
"""

from collections.abc import Callable

import structlog
import trio

from tiller_daemon.config.schema import Configuration, ConfigurationError
from tiller_daemon.stamps import Stamps

log = structlog.get_logger()

Load = Callable[[], Configuration]


class LiveConfiguration:
    """`now` is the configuration in use.

    `problem` says in whole sentences why a changed file was not applied; otherwise it is empty.
    """

    def __init__(self, now: Configuration, load: Load, stamps: Stamps) -> None:
        """Start with `now`, which `load` returned; `stamps` are of the files that it depends on.

        `load` may raise `ConfigurationError`.
        """
        self.now = now
        self.problem = ""
        self._load = load
        self._stamps = stamps

    @property
    def is_current(self) -> bool:
        """Whether no file has changed since the last completed `refresh`."""
        return self._stamps.are_current()

    async def refresh(self) -> bool:
        """Read the files again if one has changed; return whether the configuration changed."""
        if self.is_current:
            return False
        stamps = Stamps()
        try:
            new = await trio.to_thread.run_sync(stamps.record, self._load)
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
        finally:
            self._stamps = stamps
        changed = new != self.now
        # As long as the stamps are young, the files are read again even if nothing is new.
        if changed or self.problem:
            log.info("configuration_read", changed=changed)
        self.problem, self.now = "", new
        return changed
