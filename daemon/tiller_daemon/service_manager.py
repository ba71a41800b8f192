"""Reports to systemd the daemon's state, and that it is alive, if it runs under systemd.

The protocol is sd_notify(3): a datagram such as `READY=1` or `STOPPING=1` is sent to the socket in
the variable `NOTIFY_SOCKET`. Other service managers don't set this variable and get no reports.
"""

import faulthandler
import os
import socket
import time
from collections.abc import Mapping
from math import inf

import trio

SOCKET_VARIABLE = "NOTIFY_SOCKET"

EXIT_TAKEN = 75
"""The exit status under systemd if another daemon is running (EX_TEMPFAIL in sysexits.h).

If a service ends with 0 before it is ready, systemd starts it again and again.
"""

FEEDINGS = 3
"""How often the watchdog is fed within its time limit, so that one late feeding is harmless."""

MICROSECONDS = 1_000_000


def has_service_manager() -> bool:
    """Whether systemd has started this daemon and waits for notifications."""
    return bool(os.environ.get(SOCKET_VARIABLE))


def notify_service_manager(state: str) -> None:
    """Send `state` if there is a service manager; failures are ignored."""
    address = os.environ.get(SOCKET_VARIABLE, "")
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


def notify_reloading() -> None:
    """Report that the configuration is being read again; `notify_reloaded` must follow."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
    notify_service_manager(f"RELOADING=1\nMONOTONIC_USEC={now}")


def notify_reloaded(problem: str) -> None:
    """Report that the configuration was read, and the `problem` with it, if there is one."""
    status = " ".join(problem.split()) or "configuration applied"
    notify_service_manager(f"READY=1\nSTATUS={status}")


async def feed_watchdog(*, task_status: trio.TaskStatus[None]) -> None:
    """Show systemd that the event loop runs, until cancelled; systemd kills a hung daemon.

    systemd uses SIGABRT, so that the log gets a traceback of the place where the daemon hung. The
    task reports that it has started once tracebacks are enabled, as the daemon may hang after that.
    """
    interval_s = watchdog_s(os.environ, os.getpid()) / FEEDINGS
    if interval_s == inf:
        task_status.started()
        return
    # The other threads go on running while their stacks are read, which crashed 2 daemons of 60.
    faulthandler.enable(all_threads=False)
    task_status.started()
    while True:
        notify_service_manager("WATCHDOG=1")
        await trio.sleep(interval_s)


def watchdog_s(environ: Mapping[str, str], pid: int) -> float:
    """Return after how long systemd kills a process that does not feed its watchdog, or `inf`."""
    text, owner = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    if owner != str(pid) or not (text.isascii() and text.isdecimal()) or not int(text):
        return inf
    return int(text) / MICROSECONDS
