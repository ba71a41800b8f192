"""What the service has to do with the running daemon, which may have been started by hand."""

import os
import re
import subprocess
from typing import NamedTuple

from tiller_client.service import find_service
from tiller_client.service.definition import Service

SHOW_S = 5.0
"""How long the service manager may take to say what it runs."""

_PID = re.compile(r'(?:MainPID=|"PID" = )(\d+)')
"""The pid, as `systemctl show` and `launchctl list` print it."""


class ServiceState(NamedTuple):
    """An installed service. Without `good`, it is not what runs the daemon."""

    service: Service
    text: str
    """The service and what it does, for users."""
    good: bool = True


def service_state(daemon_pid: int | None) -> ServiceState | None:
    """Return the service's state beside the daemon with this pid; `None` without a service."""
    service = find_service(os.environ)
    if service is None or not service.is_enabled():
        return None
    name, manager = service.name, service.manager
    pid = _pid_of(service) if daemon_pid else None
    if pid is None:
        return ServiceState(service, f"{name}, installed for {manager}")
    if pid == daemon_pid:
        return ServiceState(service, f"{name}, started by {manager}")
    text = f"{name} is installed, but {manager} did not start this daemon; to let it: "
    return ServiceState(service, f"{text}tiller daemon restart --drain", good=False)


def _pid_of(service: Service) -> int | None:
    """Return what the manager runs as this service, 0 for nothing; `None` if it does not say."""
    try:
        shown = subprocess.run(
            service.show, capture_output=True, text=True, check=False, timeout=SHOW_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if shown.returncode:
        return None
    found = _PID.search(shown.stdout)
    return int(found[1]) if found else 0
