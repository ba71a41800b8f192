"""Notifies systemd of the daemon's state, if the daemon runs under systemd.

The protocol is sd_notify(3): a datagram such as `READY=1` or `STOPPING=1` to the socket in the
variable `NOTIFY_SOCKET`.
"""

import os
import socket


def notify_service_manager(state: str) -> None:
    """Send `state` if there is a service manager; failures are ignored."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # the abstract namespace of Linux
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
        try:
            notify.connect(address)
            notify.send(state.encode())
        except OSError:
            return
