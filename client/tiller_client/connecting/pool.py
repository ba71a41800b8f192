"""Connections to the daemon for several threads; each submission borrows one."""

import contextlib
import os
import threading
from collections.abc import Generator, Mapping
from contextlib import nullcontext

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import has_crashed
from tiller_client.errors import NoDaemon, RejectedError
from tiller_protocol.places import Places

IDLE_MAX = 4
"""Maximum number of connections to keep open between submissions."""


class ConnectionPool:
    """Connections of one frontend, for any thread; starts a daemon if none is running."""

    def __init__(
        self, places: Places, name: str, *, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Do not connect yet; a daemon that this starts gets `environ`."""
        self.leaves_stopped = False
        """Whether `connection` raises `NoDaemon` instead of starting a daemon that was stopped."""
        self.places = places
        self.name = name
        self._environ = environ
        self._idle: list[DaemonConnection] = []
        self._closed = False
        self._lock = threading.Lock()
        self._starting = threading.Lock()

    @contextlib.contextmanager
    def connection(self) -> Generator[DaemonConnection]:
        """Lend a connection, and close it if it fails; raises the errors of `DaemonConnection`."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self.connect(only_crashed=self.leaves_stopped)
        try:
            with connection.starting_only_crashed() if self.leaves_stopped else nullcontext():
                yield connection
        except RejectedError:
            self._keep(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._keep(connection)

    def start_crashed(self) -> bool:
        """Start the daemon if it has crashed; return false if it runs or was stopped.

        Raises the same errors as `DaemonConnection`. If several threads notice a crash at the same
        time, only one daemon is started.
        """
        with self._starting:
            if not has_crashed(self.places):
                return False
            try:
                # An idle connection would notice the crash only when it is used.
                self._keep(self.connect(only_crashed=True))
            except NoDaemon:
                return False
            return True

    def connect(self, *, may_start: bool = True, only_crashed: bool = False) -> DaemonConnection:
        """Make a connection that the caller closes; see `DaemonConnection`."""
        return DaemonConnection(
            self.places,
            self.name,
            may_start=may_start,
            only_crashed=only_crashed,
            environ=self._environ,
        )

    def close(self) -> None:
        """Close the idle connections now, and the others once they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _keep(self, connection: DaemonConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()
