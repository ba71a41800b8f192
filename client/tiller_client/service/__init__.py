"""The daemon as a service of its user: what the service manager of this platform is given.

Nothing here runs the manager's commands; `verbs/service.py` does, and `starting` for the start.
Imported before every start of a daemon, so it imports little.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tiller_protocol.places import DAEMON_OUTPUT_FILE, ENVIRONMENT_FILE, Places

if TYPE_CHECKING:
    from tiller_client.service.launchd import LaunchAgent
    from tiller_client.service.systemd import SystemdUnit

Command = tuple[str, ...]

NAME = "tillerd"

KEPT_VARIABLES = (
    *("PATH", "TILLER_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "LANG"),
)
"""What the service gets of the environment in which it is installed: where its commands are found,
and where its directories are. No keys: others can read the file of a service."""


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


def find_service(
    environ: Mapping[str, str], platform: str = sys.platform
) -> "SystemdUnit | LaunchAgent | None":
    """The service of this user and `TILLER_HOME`, installed or not; None on other platforms."""
    if platform == "darwin":
        from tiller_client.service.launchd import LaunchAgent as Service
    elif platform == "linux":
        from tiller_client.service.systemd import SystemdUnit as Service
    else:
        return None
    return Service.find(environ, _name(environ))


def start_command(environ: Mapping[str, str]) -> Command:
    """How to start the daemon as a service; empty if no service is installed."""
    service = find_service(environ)
    return service.start if service and service.is_enabled else ()


def _name(environ: Mapping[str, str]) -> str:
    """Daemons with homes of their own are services with names of their own."""
    home = environ.get("TILLER_HOME")
    if not home:
        return NAME
    import zlib  # rather than hashlib, which loads OpenSSL

    return f"{NAME}-{zlib.crc32(os.fsencode(Path(home).absolute())):08x}"
