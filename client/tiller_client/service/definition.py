"""The daemon's service: its definition, and what each service manager does with it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tiller_protocol.places import DAEMON_OUTPUT_FILE, ENVIRONMENT_FILE, Places

Command = tuple[str, ...]

XDG_VARIABLES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")
KEPT_VARIABLES = ("PATH", "TILLER_HOME", *XDG_VARIABLES, "LANG")
"""The variables that the service keeps from the environment in which it is installed; they locate
commands and directories. Keys are not included, as others can read a service's file."""


class Definition(NamedTuple):
    """The service, with all that a service manager needs to know."""

    command: Command
    """The command that runs the daemon in the foreground."""
    variables: Mapping[str, str]
    """Variables to add to the environment that the manager sets."""
    output: Path
    """The file to which the daemon's output is appended."""
    environment: Path
    """The user's file with further variables; it need not exist."""
    no_new_privileges: bool
    """Whether setuid programs may be forbidden, because the sandbox works without them."""


class Service(NamedTuple):
    """The service of one service manager, installed or not."""

    manager: str
    """Name of the service manager."""
    program: str
    """The manager's program for its commands."""
    name: str
    """The manager's name for the service."""
    file: Path
    """The file that defines the service; it need not exist."""
    files: tuple[Path, ...]
    """All files of an installed service."""
    is_enabled: Callable[[], bool]
    """Returns whether the manager starts the service at login."""
    enable: tuple[Command, ...]
    """Make the manager read the file, and start the service at every login."""
    start: Command
    """Start the service."""
    show: Command
    """Print the pid of the service's daemon, among other text."""
    disable: tuple[Command, ...]
    """Stop the service, and no longer start it at login."""
    forget: tuple[Command, ...]
    """Make the manager notice that the file is gone."""
    render: Callable[[Definition], bytes]
    """Returns the content of the file."""


def define(
    places: Places, environ: Mapping[str, str], command: Command, *, no_new_privileges: bool
) -> Definition:
    """Describe the daemon of this environment as a service that runs `command`."""
    variables = {name: environ[name] for name in KEPT_VARIABLES if environ.get(name)}
    if home := variables.get("TILLER_HOME"):
        variables["TILLER_HOME"] = str(Path(home).absolute())
    return Definition(
        command,
        variables,
        places.state / DAEMON_OUTPUT_FILE,
        places.config / ENVIRONMENT_FILE,
        no_new_privileges,
    )
