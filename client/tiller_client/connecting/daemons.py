"""Finds and starts the daemon on this machine; `remote` does so on other machines."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tiller_client.connecting.runtime import (
    check_runtime,
    crash_stamp,
    daemon_pid,
    is_running,
    known_remote,
    read_token,
    runtime_of,
)
from tiller_client.connecting.silence import not_listening
from tiller_client.connecting.starting import start_daemon
from tiller_client.errors import NoAnswer, NoDaemon
from tiller_protocol.places import Places

if TYPE_CHECKING:
    from tiller_client.connecting.linked import LinkedDaemon

CONNECT_DEADLINE_S = 15.0
"""Longest wait until a starting daemon listens, or a stopping daemon ends."""

POLL_S = 0.01
"""Time between two attempts to connect."""


class LocalDaemon:
    """The daemon of this user on this machine, running or not."""

    greeting_s = 0.0
    """How long to wait on a new connection for the daemon's greeting; 0 if it surely listens."""
    token_deadline_s = 0.25
    """Longest wait for the token of a listening daemon."""
    is_remote = False
    """Whether the daemon is reached over a network, which may take long."""
    was_greeted = False
    """Whether the daemon has answered this process before."""
    program = "tiller"
    """The first words of a command line for this daemon."""
    restart = "once no turn is running, run: tiller daemon restart"
    """The advice on how to start a daemon of the same version as this program."""

    def __init__(self, places: Places, environ: Mapping[str, str]) -> None:
        """A daemon that this starts gets `environ`."""
        self._places = places
        self._environ = environ

    def token(self) -> str:
        """Read the token; raises `NoDaemon` or `NotPrivate`."""
        return read_token(runtime_of(self._places))

    def reach(
        self, connect: Callable[[], bool], *, may_start: bool, only_crashed: bool = False
    ) -> None:
        """Return once `connect` succeeds; raises `NoDaemon`, `StartFailed` or `NoAnswer`.

        With `may_start`, start a daemon if none is running; with `only_crashed`, only if the last
        daemon has crashed. A daemon that holds its lock but does not listen starts or stops.
        """
        deadline = time.monotonic() + CONNECT_DEADLINE_S
        silence = not_listening(self._places)

        def is_connected() -> bool:
            silence.check()
            return connect()

        while not is_connected():
            if not is_running(self._places):
                stamp = crash_stamp(self._places) if only_crashed else ""
                if not may_start or (only_crashed and not stamp):
                    raise NoDaemon("no daemon is running; start one with: tiller daemon start")
                start_daemon(self._places, self._environ, is_connected, stamp)
            elif time.monotonic() > deadline:
                raise NoAnswer(self._unreachable())
            else:
                time.sleep(POLL_S)

    def _unreachable(self) -> str:
        """Why the running daemon can't be reached, and what to do."""
        pid, runtime = daemon_pid(self._places), runtime_of(self._places)
        who = f"the daemon with pid {pid}" if pid else "a daemon"
        try:
            check_runtime(runtime)
        except NoDaemon:
            return (
                f"{who} is running, but its sockets can't be reached: there is no directory "
                f"{runtime} here; stop that daemon, or use it where that directory exists"
            )
        return (
            f"{who} is running, but its sockets in {runtime} have accepted no connection for "
            f"{CONNECT_DEADLINE_S:g} s; see its log: tiller daemon logs"
        )


def daemon_at(places: Places, environ: Mapping[str, str]) -> "LocalDaemon | LinkedDaemon":
    """The daemon with these places: a known remote daemon, or one on this machine."""
    return known_remote(places) or LocalDaemon(places, environ)
