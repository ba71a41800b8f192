"""Telling systemd that the daemon is ready: one datagram, nothing where there is no systemd.

The protocol is that of sd_notify(3): `READY=1`, `STOPPING=1`, sent to the socket that the variable
`NOTIFY_SOCKET` names.
"""

import os
import socket


def notify_service_manager(state: str) -> None:
    """Send `state` if a service manager listens; a failure to do so is none of the daemon's."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
        try:
            notify.connect(address)
            notify.send(state.encode())
        except OSError:
            return
