"""The daemon's side of the fork server, which starts all programs, and of its reapers.

The fork server itself is `reaper`, a separate program. `process_tree` defines which processes
belong to a command, and ends them.
"""

import atexit
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from marshal import dumps
from typing import Final

import trio

from tiller_daemon.processes import reaper

START_S: Final = 5.0
"""How long a start may take before it counts as failed; usually a thousandth of that is enough."""

IDLE_MAX: Final = 4
"""How many reapers are kept for the next commands; each takes 1 MB of memory."""

STOP_S: Final = 5.0
"""How long closed commands may take to end; their reapers kill them."""

KILLED: Final = -9
"""The exit status of a command whose reaper was killed, which ends the command too."""

ADOPTS: Final = sys.platform == "linux"
"""Whether the system has subreapers."""

PROGRAM: Final = (sys.executable, "-I", "-S", "-B", reaper.__file__)
"""The command line of the fork server: a Python, three options for it, and two of our files.

`-B` is given because `-I` hides the user's choice about writing bytecode. The daemon has imported
both files before anyway.
"""

_OPEN_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

_PASSED_ON: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The variables that Python may need to start."""


class RunningProgram:
    """A started program with all processes that it starts; always call `close`."""

    def __init__(
        self,
        control: socket.socket,
        reaper_pid: int,
        pid: int,
        give_back: Callable[[socket.socket], None],
    ) -> None:
        self.reaper: Final = reaper_pid
        self.pid: Final = pid
        self.is_empty = False
        """Whether none of the program's processes is left. Without subreapers some may escape."""
        self._control: socket.socket | None = control
        self._give_back: Final = give_back
        self._left_nothing = False
        self._status: int | None = None
        self._buffer = b""
        control.settimeout(0)

    def status(self) -> int | None:
        """Return the exit status, negative for the signal that killed the program.

        While the program runs, the status is None.
        """
        self._read_reaper()
        return self._status

    async def exited(self) -> None:
        """Wait until the program's first process has exited."""
        while self.status() is None:
            await self._wait_for_reaper()

    async def emptied(self) -> None:
        """Wait until none of the program's processes is left."""
        while not self.is_empty:
            await self._wait_for_reaper()
            self._read_reaper()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Disconnect from the reaper, which kills remaining processes. Can be called repeatedly."""
        control, self._control = self._control, None
        if control and self._left_nothing:
            self._give_back(control)
        elif control:
            control.close()

    async def _wait_for_reaper(self) -> None:
        assert self._control
        # Several tasks may wait at once, and each needs its own descriptor to wait for.
        waiting = os.dup(self._control.fileno())
        try:
            await trio.lowlevel.wait_readable(waiting)
        finally:
            os.close(waiting)

    def _read_reaper(self) -> None:
        """Read the messages that the reaper has sent."""
        while self._control and not self.is_empty:
            try:
                piece = self._control.recv(reaper.ENDED.size)
            except BlockingIOError:
                return
            except OSError:
                # The reaper is gone.
                piece = b""
            self._buffer += piece
            if len(self._buffer) == reaper.ENDED.size:
                status, self.is_empty = reaper.ENDED.unpack(self._buffer)
                self._status, self._buffer = os.waitstatus_to_exitcode(status), b""
                self._left_nothing = self.is_empty
            elif not piece:
                self._status = KILLED if self._status is None else self._status
                self.is_empty = True


class ForkServer:
    """The program that starts all others. It is started on demand; `mark` identifies it.

    Without `adopts`, orphans escape, as on systems without subreapers. `program` may run as another
    user.
    """

    def __init__(
        self, mark: str = "", *, adopts: bool = ADOPTS, program: Sequence[str] = PROGRAM
    ) -> None:
        self.adopts: Final = adopts
        self._program: Final = tuple(program)
        self._mark: Final = mark
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._idle: list[socket.socket] = []

    @property
    def pid(self) -> int | None:
        """The fork server's pid; None if it was not started."""
        return self._process.pid if self._process else None

    def begin(self) -> socket.socket:
        """Start the fork server unless it runs, and return the socket for requests to it.

        A new fork server is ready a moment later.
        """
        if self._requests and self._process and self._process.poll() is None:
            return self._requests
        self.close()
        ours, theirs = socket.socketpair()
        options = () if self.adopts else (reaper.WITHOUT_ADOPTION,)
        with theirs:
            self._process = subprocess.Popen(
                [*self._program, *options, self._mark],
                # It must not keep a directory in use that the user wants to remove or unmount.
                cwd="/",
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C in the daemon's terminal must not reach it.
                start_new_session=True,
            )
        self._requests = ours
        return ours

    def close(self) -> None:
        """Stop the fork server, which exits when no command is running."""
        while self._idle:
            self._idle.pop().close()
        if self._requests:
            self._requests.close()
        if self._process:
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._requests = self._process = None

    def start(
        self,
        arguments: Sequence[str],
        directory: os.PathLike[str],
        variables: Mapping[str, str],
        descriptors: Mapping[int, int],
    ) -> RunningProgram:
        """Start a program in its own process session; raises `OSError` and `ValueError`.

        `descriptors` maps the program's numbers for inherited descriptors to the daemon's numbers.
        Blocks for a millisecond.
        """
        request = _encode_request(arguments, variables, descriptors)
        # Opened here, because the path may refer to a descriptor of this process.
        opened = os.open(directory, _OPEN_PATH)
        passed = [opened, *descriptors.values()]
        try:
            self.begin()  # If the fork server has died, so have its reapers.
            while self._idle:
                if program := self._start_in(self._idle.pop(), request, passed):
                    return program
            if program := self._start_in(self._new_reaper(), request, passed):
                return program
            # The fork server could not fork a reaper.
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        finally:
            os.close(opened)

    def _new_reaper(self) -> socket.socket:
        """Return the socket of a reaper that the fork server is about to fork."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self.begin(), [b"!"], [theirs.fileno()])
            except ConnectionError:
                # The fork server was killed; start it again.
                self.close()
                socket.send_fds(self.begin(), [b"!"], [theirs.fileno()])
        return ours

    def _start_in(
        self, control: socket.socket, request: bytes, passed: Sequence[int]
    ) -> RunningProgram | None:
        """Have a reaper start a program; close the reaper's socket if that fails.

        If the reaper ends before it accepts the request, it starts nothing; the result is None.
        """
        try:
            control.settimeout(START_S)
            accepted = _request_start(control, request, passed)
            if not accepted:
                control.close()
                return None
            (reaper_pid,) = reaper.ACCEPTED.unpack(accepted)
            # If the program has killed its reaper by now, `RunningProgram` finds that out.
            started = control.recv(reaper.STARTED.size)
            pid, wrong = reaper.STARTED.unpack(started) if started else (reaper_pid, 0)
            if wrong:
                raise OSError(wrong, os.strerror(wrong))
        except BaseException:
            control.close()
            raise
        return RunningProgram(control, reaper_pid, pid, self._take_back)

    def _take_back(self, control: socket.socket) -> None:
        """Keep a reaper for the next program, unless enough reapers are kept."""
        if self._requests and len(self._idle) < IDLE_MAX:
            self._idle.append(control)
        else:
            control.close()


def current_fork_server() -> ForkServer:
    """Return the fork server of this task."""
    return _current.get()


@contextmanager
def running_fork_server(
    mark: str, *, adopts: bool = ADOPTS, program: Sequence[str] = PROGRAM
) -> Generator[ForkServer]:
    """Run a fork server for this task, and for all tasks that it starts in the block."""
    server = ForkServer(mark, adopts=adopts, program=program)
    token = _current.set(server)
    try:
        server.begin()
        yield server
    finally:
        _current.reset(token)
        server.close()


_unmarked: Final = ForkServer()
"""The fork server for tasks outside `running_fork_server`."""

atexit.register(_unmarked.close)
_current: Final = ContextVar("fork_server", default=_unmarked)


def _request_start(control: socket.socket, request: bytes, passed: Sequence[int]) -> bytes:
    """Send a request to a reaper; return its `ACCEPTED`, or nothing if it ended before that."""
    try:
        sent = socket.send_fds(control, [request], passed)
        # After the last byte, a short program may end and its reaper with it. Then even sending no
        # bytes would fail, although the program has run.
        if sent < len(request):
            control.sendall(request[sent:])
        return control.recv(reaper.ACCEPTED.size)
    except ConnectionError:
        return b""


def _encode_request(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    descriptors: Mapping[int, int],
) -> bytes:
    if any("\0" in text for text in (*arguments, *variables, *variables.values())):
        raise ValueError("embedded null byte")
    if any("=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    start_request: reaper.StartRequest = (
        tuple(map(os.fsencode, arguments)),
        {os.fsencode(name): os.fsencode(value) for name, value in variables.items()},
        tuple(descriptors),
    )
    request = dumps(start_request)
    return reaper.SIZE.pack(len(request)) + request
