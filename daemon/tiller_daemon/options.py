"""How a daemon is started, as its command line and configuration say."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tiller_daemon.config import Configuration
from tiller_daemon.stamps import Stamps
from tiller_protocol.places import Places


class Options(Struct, frozen=True):
    """How this process was started."""

    places: Places
    """Directories of configuration, state and runtime."""
    configuration: Configuration
    """As loaded at start."""
    load: Callable[[], Configuration]
    """Loads the configuration again; raises `ConfigurationError`."""
    load_project: Callable[[Path], Configuration]
    """Loads it with that of a trusted project on top; raises `ConfigurationError`."""
    stamps: Stamps
    """What `configuration` was read from."""
    after_crash: str = ""
    """The stamp of the token that a crashed daemon left; empty to start in any case."""
