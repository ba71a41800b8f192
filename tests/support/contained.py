"""Runs a command and, however the command or this program ends, kills all that it started.

    python -I -S contained.py COMMAND [ARGUMENT...]

Three processes: this one, which hands signals on and exits as the command does; below it a keeper,
to which the kernel gives every orphan of the command (a subreaper); and below that the command.
The keeper has its own session, so that signals to the whole process group spare it. When the
command or this process ends, even by `kill -9`, the keeper kills all that is left. Linux only.
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
"""The origin of a signal from the terminal, which the whole process group has received already."""

HANDED_ON = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
ALONE = signal.SIGUSR1
"""The signal that tells the keeper that the process above it has died."""

AWAITED = {*HANDED_ON, ALONE, signal.SIGCHLD}
LEFT_S_MAX = 10.0
"""How long the keeper tries; only processes that it may not kill or the kernel holds are left."""

CONTAINED = "TILLER_TESTS_CONTAINED"
"""The variable that says that tests run below this program; set it to run them without."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(command: list[str]) -> int:
    """Run the command; return its exit status, or 128 plus the number of its signal."""
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
    """Start the command, wait until it or the process above ends, then kill what is left."""
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
    for number in HANDED_ON:  # After `nohup` and `&` these are ignored, and Python leaves them so.
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
    """Kill children until none is left; as orphans become children, nothing survives."""
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
