"""The options from the command line and the configuration with which a daemon starts."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tiller_daemon.config import Configuration
from tiller_protocol.places import Places


class Options(Struct, frozen=True):
    """The options with which this process was started."""

    places: Places
    """The directories for configuration, state and runtime."""
    configuration: Configuration
    """The configuration as it was loaded at the start."""
    load: Callable[[], Configuration]
    """Loads the configuration again; raises `ConfigurationError`."""
    load_project: Callable[[Path], Configuration]
    """Loads the configuration with a trusted project's on top; raises `ConfigurationError`."""
    file: Path
    """The configuration file, which may not exist."""
    after_crash: str = ""
    """The stamp of the token that a crashed daemon has left; empty to start in any case."""
