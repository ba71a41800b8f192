"""Runs a command, and ends with it everything that it started; however it ends, and however this.

    python -I -S contained.py COMMAND [ARGUMENT...]

Three processes: this one, which hands signals on and exits as the command does; below it a keeper,
to which the kernel gives every orphan of the command (a subreaper); and below that the command.
The keeper has a session of its own, so that what is sent to the whole process group spares it. When
the command or this process ends, be it by `kill -9`, it kills all that is left. For Linux.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SI_KERNEL = 0x80
"""Where a signal comes from that the terminal sends: the whole group has got it already."""

HANDED_ON = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
ALONE = signal.SIGUSR1
"""What tells the keeper that the process above it has died."""

AWAITED = {*HANDED_ON, ALONE, signal.SIGCHLD}
LEFT_S_MAX = 10.0
"""How long the keeper tries; longer lives only what it may not kill, or what the kernel holds."""

CONTAINED = "TILLER_TESTS_CONTAINED"
"""The variable that says that tests run below this; set it yourself to run them without."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(command: list[str]) -> int:
    """Run the command; returns its exit status, or 128 and the number of the signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    own = os.getpid()
    keeper = os.fork()
    if not keeper:
        os._exit(_keep(own, command))
    while True:
        received = signal.sigwaitinfo(AWAITED)
        if received.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(keeper, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        elif received.si_code != SI_KERNEL:
            os.kill(keeper, received.si_signo)


def _keep(above: int, command: list[str]) -> int:
    """Start the command, wait for its end or that of the process above, then kill what is left."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    _libc.prctl(PR_SET_PDEATHSIG, int(ALONE))
    own = os.getpid()
    child = os.fork()
    if not child:
        _become(own, command)
    os.setsid()
    result = 128 + signal.SIGKILL
    while os.getppid() == above:
        received = signal.sigwaitinfo(AWAITED).si_signo
        if received in HANDED_ON:
            with suppress(ProcessLookupError):
                os.kill(child, received)
        status = _reaped().get(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            result = code if code >= 0 else 128 - code
            break
    _kill_all(own)
    return result


def _become(keeper: int, command: list[str]) -> None:
    """Turn into the command, which ends with its keeper."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    for number in HANDED_ON:  # `nohup` and `&` have them ignored, and Python leaves it at that.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
    try:
        if os.getppid() == keeper:
            os.execvp(command[0], command)
    finally:
        os._exit(127)


def _reaped() -> dict[int, int]:
    """Reap the children that have ended; returns their wait statuses."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def _kill_all(own: int) -> None:
    """Kill until no child is left: orphans become children, so then nothing is."""
    deadline = time.monotonic() + LEFT_S_MAX
    while time.monotonic() < deadline:
        _reaped()
        below = _descendants(own)
        if not below:
            return
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _descendants(own: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: set[int] = set()
    waiting = [own]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
