"""Starts the daemon in the background, with its output in a file, and waits until it listens.

If the daemon is installed as a service, the service manager starts it.

If several frontends start a daemon at the same time, only one daemon gets the lock. The others exit
at once, and every frontend connects to the winner. A frontend that only replaces a crashed daemon
says which one, so that no daemon is started if the winner is stopped at that moment.

Both the daemon and a verb spend some time importing modules. `begin` starts the daemon first, so
that they do so at the same time. This module therefore imports little.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tiller_client.connecting.runtime import check_runtime, is_running
from tiller_client.errors import NoDaemon, NotPrivate, StartFailed
from tiller_client.service import start_command
from tiller_protocol.places import DAEMON_OUTPUT_FILE, SET_ASIDE, Places

START_DEADLINE_S = 15.0
"""Longest wait for a new daemon; it usually takes a quarter of a second."""

POLL_S = 0.002
SPAWN_AGAIN_S = 1.0
"""A daemon that lost the race exits with status 0. If none listens after this, start another."""

OUTPUT_LINES_SHOWN = 8
OUTPUT_TAIL_BYTES = 16 * 1024

DAEMON_COMMAND = (
    *(sys.executable, "-E", "-P", *(("-B",) if sys.dont_write_bytecode else ())),
    *("-m", "tiller_daemon"),
)
"""Python's options `-E` and `-P` keep the daemon from importing modules that PYTHONPATH or the
current directory has. They hide the user's choice about writing bytecode, too."""

STOPPED_SINCE = "no daemon is running: one crashed, and the daemon that replaced it has ended, too"

if TYPE_CHECKING:
    import subprocess


class DaemonStart:
    """A start of the daemon, or of the service manager's command that starts it.

    The daemon may not listen yet. Its process has its own process session and outlives this one.
    """

    def __init__(self, places: Places, environ: Mapping[str, str], after_crash: str = "") -> None:
        """Start the daemon; raises `OSError` if its output can't be stored.

        With `after_crash`, only replace the crashed daemon whose token has that stamp.
        """
        self.places = places
        self._environ = environ
        command = start_command(environ)
        # A service manager starts one daemon at a time, and knows whether it was stopped.
        self._after_crash = "" if command else after_crash
        arguments = ("--after-crash", after_crash) if after_crash else ()
        self._command = command or (*DAEMON_COMMAND, *arguments)
        self._output = places.state / DAEMON_OUTPUT_FILE
        for directory in (*reversed(places.state.parents), places.state):
            directory.mkdir(exist_ok=True, mode=0o700)
        self._offset = self._output.stat().st_size if self._output.exists() else 0
        self.process = _spawn(self._command, self._output, environ)
        _starts[:] = [start for start in _starts if start.process.poll() is None] + [self]

    def wait(self, is_up: Callable[[], bool]) -> None:
        """Return once `is_up`; raises `StartFailed` with the last lines of the daemon's output.

        Raises `NoDaemon` if another daemon has replaced the crashed one, and was stopped.
        """
        deadline = time.monotonic() + START_DEADLINE_S
        ended_at: float | None = None
        while not is_up():
            now = time.monotonic()
            if now > deadline:
                raise StartFailed(
                    f"the daemon did not start within {START_DEADLINE_S:g} s; "
                    f"the last lines of {self._output}:\n{_tail(self._output, self._offset)}"
                )
            if status := self.process.poll():
                raise StartFailed(
                    f"{_failure(status)}; its output:\n{_tail(self._output, self._offset)}"
                )
            if self.process.returncode == 0:
                if self._after_crash and not is_running(self.places):
                    raise NoDaemon(STOPPED_SINCE)
                ended_at = ended_at or now
                if now - ended_at > SPAWN_AGAIN_S:
                    self.process = _spawn(self._command, self._output, self._environ)
                    ended_at = None
            time.sleep(POLL_S)


_starts: list[DaemonStart] = []
"""The daemons that this process started. Their handles are kept, because Python warns if a handle
is dropped while its process is running."""

_begun: list[DaemonStart] = []
"""The start that `begin` has made, until `start_daemon` takes it."""


def begin(places: Places, environ: Mapping[str, str]) -> None:
    """Start a daemon if none is running, without waiting; `start_daemon` will report a failure."""
    with suppress(OSError, NotPrivate):
        with suppress(NoDaemon):
            check_runtime(places.runtime)
        if not is_running(places):
            _begun[:] = [DaemonStart(places, environ)]


def start_daemon(
    places: Places,
    environ: Mapping[str, str],
    is_up: Callable[[], bool],
    after_crash: str = "",
) -> None:
    """Start a daemon, unless `begin` has, and return once `is_up`.

    Raises the same errors as `DaemonStart.wait`.
    """
    begun = _begun.pop() if _begun else None
    if begun is None or begun.places != places:
        begun = DaemonStart(places, environ, after_crash)
    begun.wait(is_up)


def wait_for_daemons(places: Places) -> None:
    """Wait until the daemons that this process started at these places have ended."""
    for start in [start for start in _starts if start.places == places]:
        start.process.wait()


def last_lines(path: Path, count: int, offset: int = 0) -> str:
    """The last `count` lines of a file, from byte `offset` on; empty if the file is missing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - OUTPUT_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-count:])


def _spawn(
    command: Sequence[str], output: Path, environ: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    import subprocess

    # Python reads PYTHONUSERBASE in spite of `-E`.
    variables = {
        f"{SET_ASIDE}{name}" if name.startswith("PYTHON") else name: value
        for name, value in environ.items()
    }
    if home := variables.get("TILLER_HOME"):
        variables["TILLER_HOME"] = str(Path(home).absolute())
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env=variables,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _failure(status: int) -> str:
    """How a daemon ended, by its exit status; a negative status is a signal."""
    if status > 0:
        return "the daemon could not start"
    import signal  # only few verbs need it, but all import this module

    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = f"signal {-status}"
    return f"the daemon was killed by {name} while it started"


def _tail(output: Path, offset: int) -> str:
    return last_lines(output, OUTPUT_LINES_SHOWN, offset) or "(nothing)"
