"""A program of its own: starts commands, and keeps all that they start within reach.

Run once for a daemon, as `python -I -S reaper.py MARK` with a socket as its standard input, by
`fork_server`; it can be found again by the mark. For each command it forks a reaper, which is a
subreaper: the kernel gives it every orphan below it. So the processes of a command are those that
descend from its reaper, whatever session, name or environment they give themselves, and when the
reaper has no child none is left.

A reaper ends all of them as soon as the daemon lets go of its socket, be it by `kill -9`. What is
left by a command that killed its own reaper comes to the first process, which kills it at once;
when that one is killed, every reaper ends its command. Outside of a sandbox only a command gets
away that kills both at the same moment; it could kill the daemon as well.

Nothing of tiller is imported, as this has to start quickly, and no key was ever in this memory.
Where there are no subreapers (macOS) an orphan gets away; `tree` has other ways to find it then.
"""

import ctypes
import errno
import fcntl
import gc
import marshal
import os
import select
import signal
import struct
import sys
import time
from _socket import CMSG_LEN, SCM_RIGHTS, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812 - the module `socket` takes 8 ms to import
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

WITHOUT_ADOPTION = "--without-adoption"
"""An option: do as where there are no subreapers."""

SIZE = struct.Struct("=I")
"""Goes before what to run: how many bytes that has, by `marshal`."""

STARTED = struct.Struct("=iii")
"""The pids of reaper and command, and what was wrong (errno)."""

ENDED = struct.Struct("=i?")
"""The wait status of the command, and whether it has left nothing."""

POLL_S = 0.002
"""How often it is looked again for processes that were born while others were killed."""

_DESCRIPTORS_MAX = 200
"""Linux passes at most 253 at once."""

_INT = struct.calcsize("i")
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
_NAME = b"tiller-reaper"
"""What `killall` knows these processes by; it must not be the name of a command's own tools."""

_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""What a command may send to its parent by mistake, and what would end this."""

_DEFAULTS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""What a command must not ignore: Python ignores the last two, `nohup` and `&` the others."""

StartRequest = tuple[tuple[bytes, ...], dict[bytes, bytes], tuple[int, ...]]
"""Words, variables, and the numbers that the descriptors get which come along.

The first descriptor is the directory to start in, and gets none.
"""


def main(arguments: Sequence[str]) -> None:
    """Fork a reaper for each request, until the daemon is gone and no reaper is left."""
    adopt = _adopt if WITHOUT_ADOPTION not in arguments else _adopt_nothing
    requests = Socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    gc.disable()  # It would touch all the memory that a fork shares.
    signal.signal(signal.SIGUSR1, _ignore)
    for number in _ENDING:
        signal.signal(number, _ignore)
    adopt()
    changed = _child_signal_pipe()
    reapers: set[int] = set()
    accepting, strays = True, False
    while accepting or reapers or strays:
        sources = [changed, requests] if accepting else [changed]
        ready = select.select(sources, [], [], POLL_S if strays else None)[0]
        _drain(changed)
        for pid, status in _reap_dead():
            if pid in reapers:
                reapers.remove(pid)
                strays = strays or status != 0
        if strays:
            strays = _kill_below(reapers)
        if requests in ready:
            accepting = _fork_reaper(requests, reapers, adopt)


def _fork_reaper(requests: Socket, reapers: set[int], adopt: Callable[[], None]) -> bool:
    """Take a request; returns False when there will be no more."""
    room = CMSG_LEN(_DESCRIPTORS_MAX * _INT)
    try:
        message, given, _, _ = requests.recvmsg(1, room)
    except OSError:
        return False
    passed = [
        number
        for level, kind, data in given
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS)
        for (number,) in struct.iter_unpack("i", data[: len(data) - len(data) % _INT])
    ]
    for number in passed:
        os.set_inheritable(number, False)  # noqa: FBT003
    if not message:
        return False
    fork_server_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        pid = -1  # Too many processes; the daemon sees that its socket is closed.
    if pid == 0:
        status = 1
        try:
            requests.close()
            os.setsid()
            adopt()
            _supervise(Socket(fileno=passed[0]), passed[1:], fork_server_pid)
            status = 0
        finally:
            os._exit(status)
    if pid > 0:
        reapers.add(pid)
    for number in passed:
        os.close(number)
    return True


def _supervise(control: Socket, passed: Sequence[int], fork_server_pid: int) -> None:
    """Be the reaper of one command; returns when nothing of it is left."""
    changed = _child_signal_pipe()
    encoded = _receive(control, SIZE.unpack(_receive(control, SIZE.size))[0])
    request: StartRequest = marshal.loads(encoded)  # noqa: S302 - it comes from the daemon
    command, wrong = _start(request, passed)
    for number in passed:
        os.close(number)
    _send(control, STARTED.pack(os.getpid(), command, wrong))
    if wrong:
        return
    while os.getppid() == fork_server_pid:
        # Nothing is sent from there any more: it can be read when it is closed.
        if control in select.select([control, changed], [], [])[0]:
            break
        _drain(changed)
        ended = [status for pid, status in _reap_dead() if pid == command]
        empty = not _has_children()
        for status in ended:
            _send(control, ENDED.pack(status, empty))
        if empty:
            return
    _end_all()


def _start(request: StartRequest, passed: Sequence[int]) -> tuple[int, int]:
    """Start a command; returns its pid, and the errno of what went wrong."""
    words, variables, numbers = request
    directory, *given = passed
    # Aside first: a number may be wanted for one that has the number of another.
    above = max(numbers) + 1
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for one in given]
    moves = [(os.POSIX_SPAWN_DUP2, *pair) for pair in zip(aside, numbers, strict=True)]
    try:
        os.fchdir(directory)
        # It is looked for where the command would look.
        os.putenv("PATH", os.fsdecode(variables.get(b"PATH", os.fsencode(os.defpath))))
        command = os.posix_spawnp(
            words[0], words, variables, file_actions=moves, setsid=True, setsigdef=_DEFAULTS
        )
    except OSError as error:
        return 0, error.errno or errno.EINVAL
    finally:
        for one in aside:
            os.close(one)
        os.chdir("/")
    return command, 0


def _end_all() -> None:
    """Kill what descends from this process until nothing does."""
    while _has_children():
        _kill_below(())
        time.sleep(POLL_S)
        for _ in _reap_dead():
            pass


def _kill_below(spared: Collection[int]) -> bool:
    """Kill what descends from this process, but not below `spared`; returns whether anything did.

    By group too: the kernel then lets no member fork away between the look and the signal.
    """
    own = os.getpgrp()
    found = _below(os.getpid(), spared)
    for group in {group for _, group in found} - {own}:
        _kill(os.killpg, group)
    for pid, _ in found:
        _kill(os.kill, pid)
    return bool(found)


def _kill(how: Callable[[int, int], None], whom: int) -> None:
    with suppress(OSError):  # It is gone, or another user's.
        how(whom, signal.SIGKILL)


def _below(root: int, spared: Collection[int]) -> list[tuple[int, int]]:
    """The pids and groups of what descends from `root` and is alive."""
    children: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in _processes():
        children.setdefault(parent, []).append((pid, group))
    found: list[tuple[int, int]] = []
    waiting = [root]
    while waiting:
        new = [one for one in children.pop(waiting.pop(), ()) if one[0] not in spared]
        found += new
        waiting += [pid for pid, _ in new]
    return found


def _processes() -> Iterator[tuple[int, int, int]]:
    """Pid, parent and group of each process but the dead."""
    if sys.platform != "linux":
        from subprocess import check_output  # That takes as long to import as all else.

        for line in check_output(["ps", "-axo", "pid=,ppid=,pgid="]).splitlines():
            pid, parent, group = map(int, line.split())
            yield pid, parent, group
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 - `pathlib` takes as long to import as all else
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as opened:  # noqa: PTH123
                    fields = opened.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in b"ZX" or int(fields[17]) > 1:
                yield int(name), int(fields[1]), int(fields[2])


def _reap_dead() -> Iterator[tuple[int, int]]:
    """Reap the children that have died; their pids and wait statuses."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _adopt() -> None:
    """Take in orphans, hear of the parent's death, and let no process of this user trace this one.

    It has to be done again after a fork.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        for option, value in (
            (_PR_SET_CHILD_SUBREAPER, 1),
            (_PR_SET_PDEATHSIG, signal.SIGUSR1),
            (_PR_SET_DUMPABLE, 0),
            (_PR_SET_NAME, _NAME),
        ):
            libc.prctl(option, value, 0, 0, 0)


def _adopt_nothing() -> None:
    """Take in nobody."""


def _child_signal_pipe() -> int:
    """A descriptor that can be read when a child or the parent has died; instead of another one."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, _ignore)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before >= 0:
        os.close(before)
    return reading


def _ignore(number: int, frame: object) -> None:
    """Do nothing; unlike what is ignored, it is not handed down to a command."""


def _drain(reading: int) -> None:
    with suppress(BlockingIOError):
        while os.read(reading, 4096):
            pass


def _receive(control: Socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = control.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _send(control: Socket, data: bytes) -> None:
    with suppress(OSError):  # The daemon is gone, as will be seen.
        control.sendall(data)


if __name__ == "__main__":
    main(sys.argv[1:])
