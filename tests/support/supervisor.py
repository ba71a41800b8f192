"""A service manager for one daemon, which speaks systemd's protocol with it."""

import os
import select
import socket
import subprocess
import time
from typing import Self

from support.daemon import START_S, Daemon


class Hung(Exception):
    """Raised when the daemon has not fed the watchdog in time."""


class Supervisor:
    """Starts the daemon as systemd does with `Type=notify`; a context manager."""

    def __init__(self, daemon: Daemon, watchdog_s: float, *, starts: bool = True) -> None:
        """Wait until the daemon is ready, unless it never `starts`."""
        self._daemon = daemon
        self._watchdog_s = watchdog_s
        self._starts = starts
        self._fed_at = time.monotonic()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        address = str(self._daemon.home / "supervisor")
        self._socket.bind(address)
        self.process = self._daemon.spawn(
            NOTIFY_SOCKET=address, WATCHDOG_USEC=str(int(self._watchdog_s * 1e6))
        )
        self._ended = os.pidfd_open(self.process.pid)
        if self._starts:
            self.until("READY=1", START_S)
        self._fed_at = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ended)
        self._socket.close()

    def until(self, word: str, timeout_s: float | None = None) -> list[str]:
        """Wait for a notification with this line; return all up to it, or raise `Hung`."""
        seen: list[str] = []
        while True:
            left = timeout_s or self._fed_at + self._watchdog_s - time.monotonic()
            ready = select.select([self._socket, self._ended], [], [], max(left, 0))[0]
            if self._socket in ready:
                seen.append(self._socket.recv(4096).decode())
                if "WATCHDOG=1" in seen[-1].splitlines():
                    self._fed_at = time.monotonic()
                if any(line.startswith(word) for line in seen[-1].splitlines()):
                    return seen
            elif self._ended in ready:
                raise AssertionError(f"it ended: {self._daemon.said}")
            else:
                raise Hung(self._daemon.said)
