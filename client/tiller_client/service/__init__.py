"""The daemon as a service of the user, for this platform's service manager.

Nothing here runs the manager's commands: `verbs/machine/service.py` installs the service, and
`starting` starts it. Every start of a daemon imports this module, so it imports little.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiller_client.service.definition import Command, Service

NAME = "tillerd"


def find_service(environ: Mapping[str, str], platform: str = sys.platform) -> "Service | None":
    """The service for this user and `TILLER_HOME`, installed or not; `None` on other platforms."""
    if platform == "darwin":
        from tiller_client.service.launchd import launch_agent as service
    elif platform == "linux":
        from tiller_client.service.systemd import systemd_unit as service
    else:
        return None
    return service(environ, _name(environ))


def start_command(environ: Mapping[str, str]) -> "Command":
    """The command that starts the daemon as a service; empty if no service is installed."""
    service = find_service(environ)
    return service.start if service and service.is_enabled() else ()


def _name(environ: Mapping[str, str]) -> str:
    """The name of the service, which is different for each `TILLER_HOME`."""
    home = environ.get("TILLER_HOME")
    if not home:
        return NAME
    import zlib  # rather than hashlib, which loads OpenSSL

    return f"{NAME}-{zlib.crc32(os.fsencode(Path(home).absolute())):08x}"
