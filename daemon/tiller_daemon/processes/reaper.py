"""A separate program that starts commands and can end all processes that they start.

The fork server runs once per daemon, as `python -I -S reaper.py MARK` with a socket as its
standard input; the mark identifies it. For a command, the fork server forks a reaper. The reaper is
a subreaper: the kernel makes every orphan below it its child. So a command's processes are the
descendants of its reaper, whatever session, name or environment they choose. If the reaper has no
children, none of these processes is left.

If a command leaves no processes, its reaper can run the next command, because forking another
reaper takes longer than starting a command. A reaper never runs two commands at once, and no
command after one that left processes.

A reaper kills all its processes as soon as the daemon closes its socket, even because of `kill -9`.
If a command kills its own reaper, its processes become children of the fork server, which kills
them at once. If the fork server is killed, every reaper ends its command. A stopped reaper could
not do that, so the fork server kills it. Outside a sandbox, a command escapes only if it kills its
reaper and the fork server at the same moment; but it could kill the daemon as well. The command can
also change the limits and priorities of its reaper, and so of the reaper's next command.

The program must start quickly, so it imports nothing of tiller. No key has ever been in its memory.
Without subreapers (macOS) orphans escape, and `process_tree` has other ways to find them.
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
"""The option to behave as on a system without subreapers."""

SIZE = struct.Struct("=I")
"""Sent before each request: the size in bytes of the request, which `marshal` has encoded."""

ACCEPTED = struct.Struct("=i")
"""Sent before a start: the reaper's pid. After that, the command may run, and kill the reaper."""

STARTED = struct.Struct("=ii")
"""Sent after a start: the command's pid, and the errno of a failure."""

ENDED = struct.Struct("=i?")
"""Sent after the end of a command: its wait status, and whether it left no process."""

POLL_S = 0.002
"""How often to look for processes that were started while others were killed."""

_DESCRIPTORS_MAX = 200
"""The most descriptors in a request; Linux passes at most 253 at once."""

_INT = struct.calcsize("i")
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
_DETACH = 17 if sys.platform == "linux" else 11
"""The number of PTRACE_DETACH on Linux, and of PT_DETACH on macOS."""

_NAME = b"tiller-reaper"
"""The name of these processes, chosen so that a command's `killall` does not hit them."""

_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that would end this program, and that a command may send to its parent by mistake."""

_DEFAULTS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that a command must not inherit as ignored. Python ignores the last two; `nohup` and `&`
ignore the others."""

StartRequest = tuple[tuple[bytes, ...], dict[bytes, bytes], tuple[int, ...]]
"""The arguments, the variables, and the command's numbers for the descriptors that come with the
request. The first descriptor has no number: it is the directory to start in."""


def main(arguments: Sequence[str]) -> None:
    """Fork a reaper for each request, until the daemon is gone and no reaper is left."""
    adopt = _adopt if WITHOUT_ADOPTION not in arguments else lambda: None
    requests = Socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    gc.disable()  # A collection would touch all memory that forks share.
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
        for pid, status in _reap_dead(reapers):
            if pid in reapers:
                reapers.remove(pid)
                strays = strays or status != 0
        if strays:
            strays = _kill_below(reapers)
        if requests in ready:
            accepting = _fork_reaper(requests, reapers, adopt)


def _fork_reaper(requests: Socket, reapers: set[int], adopt: Callable[[], None]) -> bool:
    """Fork a reaper for a request's socket; return False if no more requests can come."""
    try:
        message, passed = _receive_with(requests, 1)
    except OSError:
        return False
    if not message or not passed:
        # A missing descriptor means that too many are open; the daemon sees its socket closed.
        return bool(message)
    (control,) = passed
    fork_server_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        pid = -1  # There are too many processes; the daemon sees its socket closed.
    if pid == 0:
        status = 1
        try:
            requests.close()
            os.setsid()
            adopt()
            _supervise(Socket(fileno=control), fork_server_pid)
            status = 0
        finally:
            os._exit(status)
    if pid > 0:
        reapers.add(pid)
    os.close(control)
    return True


def _supervise(control: Socket, fork_server_pid: int) -> None:
    """Run as a reaper until the daemon closes the socket, or a command has left processes."""
    changed = _child_signal_pipe()
    command = 0
    while os.getppid() == fork_server_pid:
        if control in select.select([control, changed], [], [])[0]:
            # While a command runs the daemon sends nothing, so the socket was closed.
            request = None if command else _next_request(control)
            if request is None:
                break
            _send(control, ACCEPTED.pack(os.getpid()))
            command, wrong = _start(*request)
            _send(control, STARTED.pack(command, wrong))
            continue
        _drain(changed)
        ended = [status for pid, status in _reap_dead() if pid == command]
        empty = not _has_children()
        for status in ended:
            _send(control, ENDED.pack(status, empty))
        if empty and ended:
            command = 0
        elif empty and command:
            # The last process that the command left has ended, which the closed socket shows.
            return
    _end_all()


def _next_request(control: Socket) -> tuple[StartRequest, Sequence[int]] | None:
    """Receive and return a request and its descriptors; None if no more requests can come."""
    try:
        size, passed = _receive_with(control, SIZE.size)
        size += _receive(control, SIZE.size - len(size))
        request_bytes = _receive(control, SIZE.unpack(size)[0])
    except (EOFError, OSError):
        return None
    return marshal.loads(request_bytes), passed  # noqa: S302 - it comes from the daemon


def _start(request: StartRequest, passed: Sequence[int]) -> tuple[int, int]:
    """Start a command and close the passed descriptors; return its pid and an errno, or 0."""
    words, variables, numbers = request
    directory, *given = passed
    # Moved aside first, because another descriptor may have a wanted number.
    above = max(numbers, default=-1) + 1
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for one in given]
    moves = [(os.POSIX_SPAWN_DUP2, *pair) for pair in zip(aside, numbers, strict=False)]

    try:
        os.fchdir(directory)
        # `posix_spawnp` searches the PATH of this process, so the command's PATH is set here.
        os.putenv("PATH", os.fsdecode(variables.get(b"PATH", os.fsencode(os.defpath))))
        command = os.posix_spawnp(
            words[0], words, variables, file_actions=moves, setsid=True, setsigdef=_DEFAULTS
        )
    except OSError as error:
        return 0, error.errno or errno.EINVAL
    finally:
        for one in (*aside, *passed):
            os.close(one)
        os.chdir("/")
    return command, 0


def _end_all() -> None:
    """Kill the descendants of this process until none is left."""
    while _has_children():
        _kill_below(())
        time.sleep(POLL_S)
        for _ in _reap_dead():
            pass


def _kill_below(spared: Collection[int]) -> bool:
    """Kill this process's descendants, except `spared` and below; return whether there were any.

    Whole groups are killed too, so that no member can escape by forking before the signal arrives.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in _processes():
        if pid not in spared:
            children.setdefault(parent, []).append((pid, group))
    found = children.pop(os.getpid(), [])
    for pid, _ in found:
        found += children.pop(pid, ())
    for group in {group for _, group in found} - {os.getpgrp()}:
        _kill(os.killpg, group)
    for pid, _ in found:
        _kill(os.kill, pid)
    return bool(found)


def _kill(send: Callable[[int, int], None], target: int) -> None:
    with suppress(OSError):  # It is gone, or belongs to another user.
        send(target, signal.SIGKILL)


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield the pid, parent and group of each living process."""
    if sys.platform != "linux":
        from subprocess import check_output  # Importing this takes as long as everything else.

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


def _reap_dead(reapers: Collection[int] = ()) -> Iterator[tuple[int, int]]:
    """Reap the children that have died; yield their pids and wait statuses.

    Kills stopped reapers, as they would not notice that the daemon is gone.
    """
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
            pid, status = found
            if not os.WIFSTOPPED(status):
                yield found
            elif pid in reapers:
                _kill(os.kill, pid)
            else:
                _stop_tracing(pid, os.WSTOPSIG(status))


def _stop_tracing(pid: int, number: int) -> None:
    """Stop tracing a child that has made its parent its tracer, and so stops at each signal."""
    # A traced process stops with SIGTRAP when it begins to execute another program.
    delivered = 0 if number == signal.SIGTRAP else number
    # On macOS, address 1 means the address at which the child stopped.
    ctypes.CDLL(None).ptrace(_DETACH, pid, ctypes.c_void_p(1), ctypes.c_void_p(delivered))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _adopt() -> None:
    """Become a subreaper, ask for a signal if the parent dies, and forbid tracing this process.

    This must be repeated after a fork.
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


def _child_signal_pipe() -> int:
    """Return a new descriptor that becomes readable if a child or the parent dies."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, _ignore)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before >= 0:
        os.close(before)
    return reading


def _ignore(number: int, frame: object) -> None:
    """Do nothing; commands inherit SIG_IGN, but not a handler."""


def _drain(reading: int) -> None:
    with suppress(BlockingIOError):
        os.read(reading, 4096)


def _receive_with(control: Socket, size: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes, and the descriptors that come with them."""
    data, given, _, _ = control.recvmsg(size, CMSG_LEN(_DESCRIPTORS_MAX * _INT))
    passed = [
        number
        for level, kind, numbers in given
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS)
        for (number,) in struct.iter_unpack("i", numbers[: len(numbers) - len(numbers) % _INT])
    ]
    for number in passed:
        os.set_inheritable(number, False)  # noqa: FBT003
    return data, passed


def _receive(control: Socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = control.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _send(control: Socket, data: bytes) -> None:
    with suppress(OSError):  # If the daemon is gone, the caller notices it soon.
        control.sendall(data)


if __name__ == "__main__":
    main(sys.argv[1:])
