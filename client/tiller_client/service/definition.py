"""What every service manager is given: how to run the daemon, and in which environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tiller_protocol.places import DAEMON_OUTPUT_FILE, ENVIRONMENT_FILE, Places

Command = tuple[str, ...]

XDG_VARIABLES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")
KEPT_VARIABLES = ("PATH", "TILLER_HOME", *XDG_VARIABLES, "LANG")
"""The variables that the service inherits when it is installed: where its commands and directories
are. No keys: others can read the file of a service."""


class Definition(NamedTuple):
    """What every service manager is told about the daemon."""

    command: Command
    """Runs the daemon in the foreground."""
    variables: Mapping[str, str]
    """Its environment, in addition to what the manager sets."""
    output: Path
    """The file that its output is appended to."""
    environment: Path
    """A file of the user's with further variables; it need not exist."""
    no_new_privileges: bool
    """Whether the sandbox works without programs that run as another user."""


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
