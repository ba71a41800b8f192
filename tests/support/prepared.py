"""Starts daemons from a process that has imported the daemon's program already.

Importing is three quarters of a start's CPU time, and the tests start hundreds of daemons. One
process for each test worker imports the program, and forks a daemon whenever a test starts one.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

REQUEST_BYTES_MAX = 1 << 16
STATUS_BYTES_MAX = 16
"""Bytes of a waited process's status in decimal digits."""

AT_START = ("PYTHON", "LD_", "TZ", "LC_", "COVERAGE")
"""Prefixes of variables that count only when an interpreter starts."""


class Forked:
    """A daemon that is a child of the process that forked it; it looks like a `Popen`."""

    def __init__(self, pid: int, pidfd: int, status: int) -> None:
        self.pid, self.pidfd = pid, pidfd
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit status if the process is known to have ended."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit status, or the negative number of the signal."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("tillerd", timeout or 0)
            said = os.read(self._status, STATUS_BYTES_MAX)
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(int(said))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def forked(variables: Mapping[str, str], output: int) -> Forked | None:
    """Fork a daemon with these variables; None if they count for its interpreter, too."""
    if any(name.startswith(AT_START) for name in variables):
        return None
    status, told = os.pipe()
    asked = _prepared()
    message = json.dumps(dict(variables)).encode()
    socket.send_fds(asked, [message], [output, told])
    os.close(told)
    pid, (pidfd,), _, _ = socket.recv_fds(asked, STATUS_BYTES_MAX, 1)
    return Forked(int(pid), pidfd, status)


@cache
def _prepared() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-E", "-P", __file__],
            stdin=theirs.fileno(),
            cwd="/",
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def _serve(asked: socket.socket) -> Mapping[str, str]:
    """Fork a daemon for each request. Returns the variables of a daemon, and only in its process.

    Exits when nobody can ask any more.
    """
    tellers: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != asked.fileno():
                pid, told = tellers.pop(descriptor)
                poll.unregister(descriptor)
                os.write(told, b"%d" % os.waitpid(pid, 0)[1])
                os.close(descriptor)
                os.close(told)
                continue
            message, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 2)
            if not message:
                sys.exit()
            output, told = descriptors
            pid = os.fork()
            if not pid:
                _become(output)
                return json.loads(message)
            pidfd = os.pidfd_open(pid)
            poll.register(pidfd, select.POLLIN)
            tellers[pidfd] = pid, told
            os.close(output)
            socket.send_fds(asked, [b"%d" % pid], [pidfd])


def _become(output: int) -> None:
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def main() -> None:
    """Import the program as `tillerd` does, and run it in each process that is forked."""
    import gc

    from tiller_daemon.isolation import isolate
    from tiller_daemon.unused_modules import without_unused

    gc.disable()
    with without_unused():
        from tiller_daemon.program import run
    gc.freeze()
    gc.enable()
    variables = _serve(socket.socket(fileno=os.dup(0)))
    os.environ.clear()
    os.environ.update(variables)
    sys.argv[:] = [str(Path(__file__))]
    isolate()
    status = run([])
    atexit._run_exitfuncs()  # coverage, if it is measured
    # The interpreter's own end would touch, and so copy, most of the memory that is shared.
    os._exit(status)


if __name__ == "__main__":
    main()
