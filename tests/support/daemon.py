"""Starts, kills and inspects the real daemon as a separate process in its own home.

`frontend` talks to the daemon. Nothing here waits for a fixed time: the daemon reports to a service
manager that it is ready, and a pidfd shows that a process has ended.
"""

import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Protocol, Self

import msgspec
import trio

from support.prepared import Forked, forked
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.scripted import Script, ScriptStep
from tiller_protocol.places import Places, find_places

START_S = 30.0
"""Longest wait for a daemon to say that it is ready; it takes half a second on an idle machine."""

STOP_S = 5.0
"""The daemon promises to exit within this time after SIGTERM."""

SLACK_S = 5.0
"""Extra time that a busy machine may take before a test calls a promise broken."""

CONFIG = """\
model = "scripted/main"
sandbox = { mode = "full_access" }

[providers.scripted]
api = "scripted"
scripts = "../scripts"
record = "../requests.jsonl"

[models."scripted/roomy"]
context_window = 100_000_000
"""

KEPT_VARIABLES = ("PYTHONPATH", "COVERAGE_PROCESS_START")
"""Variables that the daemon inherits beside `PATH`, for its code and the code's coverage."""

PROGRAM: tuple[str, ...] = ("-m", "tiller_daemon")

CRASHES = ("submission_crashed", "turn_crashed", "session_crashed", "tool_crashed", "Traceback")
"""Entries that the daemon's own log has only after a defect."""


class DaemonEnded(Exception):
    """The daemon ended before it was ready; holds its exit status and its output."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"status {status}: {said}")
        self.status, self.said = status, said


class Home(Protocol):
    """Where `tiller` is used; `variables` are its environment."""

    variables: dict[str, str]


class Daemon:
    """A home and its daemon, as a context manager that leaves no process behind.

    `home` must be short enough for socket paths. `config` is the text of `config.toml`. Everything
    the daemon prints is in `said`. `prefix` is an optional program that becomes the daemon;
    `program` is what the interpreter `python` runs.
    """

    def __init__(self, home: Path, config: str = CONFIG) -> None:
        self.home = home
        self.scripts = home / "scripts"
        self.record = home / "requests.jsonl"
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TILLER_HOME": str(home / "t"),
            **{name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
        }
        self.places: Places = find_places(self.variables, sys.platform, os.getuid())
        self.prefix: tuple[str, ...] = ()
        self.python = sys.executable
        self.program = PROGRAM
        self.whole = False
        """Whether a start also starts an interpreter and imports the program."""
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.log_ids: set[str] = set()
        self._numbers = count(1)
        self._output = home / "said"
        self.scripts.mkdir()
        # The small model for tests whose server must not be asked for titles.
        (self.scripts / "untitled.json").write_text('{"steps": []}')
        self.places.config.mkdir(parents=True)
        self.configure(config)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the daemon as a service manager does; then look for leftover processes."""
        late = False
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            late = not _readable(self._pidfd, timeout_s=STOP_S + SLACK_S)
            self.kill9()
        survivors = leftovers(self.log_ids, timeout_s=SLACK_S)
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
        assert not late, f"the daemon was still there {STOP_S + SLACK_S} s after SIGTERM"
        assert not survivors, f"left behind: {survivors}"

    def configure(self, config: str) -> None:
        """Write `config.toml`, in one step, as editors do."""
        written = self.places.config / "config.toml.new"
        written.write_text(config.replace("../", f"{self.home}/"))
        written.rename(self.places.config / "config.toml")

    def start(self, **variables: str) -> None:
        """Start the daemon and return when it says that it is ready; raises `DaemonEnded`."""
        address = self.home / "notify"
        address.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(address))
            self.process = self._fork(NOTIFY_SOCKET=str(address), **variables)
            made = self.process
            self._pidfd = made.pidfd if isinstance(made, Forked) else os.pidfd_open(made.pid)
            readable = select.select([ready, self._pidfd], [], [], START_S)[0]
            said = ready.recv(4096) if ready in readable else b""
            if said.startswith(b"STATUS="):  # why it ends
                select.select([self._pidfd], [], [], START_S)
            if said != b"READY=1":
                raise DaemonEnded(self.kill9(), self.said)

    def spawn(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start the program without waiting for anything; the caller owns the process."""
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [*self.prefix, self.python, "-E", "-P", *self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=self.variables | variables,
                start_new_session=True,
            )

    def _fork(self, **variables: str) -> subprocess.Popen[bytes] | Forked:
        whole = (self.prefix, self.python, self.program) != ((), sys.executable, PROGRAM)
        if self.whole or whole:
            return self.spawn(**variables)
        with self._output.open("ab") as output:
            process = forked(self.variables | variables, output.fileno())
        return process or self.spawn(**variables)

    def kill9(self) -> int:
        """Kill the daemon as the kernel does when memory is short; returns the exit status."""
        assert self.process is not None
        self.process.kill()
        return self._ended()

    def limit_files(self, size: int = resource.RLIM_INFINITY) -> None:
        """Let the daemon write no file beyond this size; without a size, end the limit."""
        assert self.process is not None
        limits = (size, resource.RLIM_INFINITY)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, limits)

    async def terminate(self) -> int:
        """Send SIGTERM and wait for the end; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        """Wait until the daemon ends by itself; returns the exit status."""
        with trio.fail_after(STOP_S + SLACK_S):
            await trio.lowlevel.wait_readable(self._pidfd)
        return self._ended()

    def restart(self) -> None:
        """Kill the daemon with `kill -9` and start it again."""
        self.kill9()
        self.start()

    def make_agent(self, name: str, *steps: ScriptStep, read_only: bool = False) -> None:
        """Make a user agent that plays these steps."""
        agents = self.places.config / "agents"
        agents.mkdir(exist_ok=True)
        head = f"description: helps\nmodel: {self.script(*steps)}"
        head += "\nread_only: true" if read_only else ""
        (agents / f"{name}.md").write_text(f"---\n{head}\n---\nYou help.\n")

    def script(self, *steps: ScriptStep, **side_steps: ScriptStep) -> str:
        """Write a new script and return the model that plays it.

        `side_steps` answer requests with other purposes: `title`, `compaction`.
        """
        name = f"s{next(self._numbers)}"
        self.play(name, *steps, **side_steps)
        return f"scripted/{name}"

    def play(self, name: str, *steps: ScriptStep, **side_steps: ScriptStep) -> None:
        """Write or overwrite the script `name`."""
        draft = self.scripts / f".{name}"
        draft.write_bytes(msgspec.json.encode(Script(steps, **side_steps)))
        draft.rename(self.scripts / f"{name}.json")

    def asked(self, session_id: str) -> list[ModelRequest]:
        """Return every request of this session to a scripted model, oldest first."""
        if not self.record.exists():
            return []
        # A daemon that was killed while it wrote may have left an incomplete line.
        lines = [line for line in self.record.read_bytes().splitlines() if line.endswith(b"}")]
        requests = [msgspec.json.decode(line, type=ModelRequest) for line in lines]
        return [r for r in requests if r.session_id == session_id]

    def requests(self, session_id: str) -> list[ModelRequest]:
        """Return the model requests of the session's turns, oldest first."""
        return [request for request in self.asked(session_id) if request.purpose == "turn"]

    @property
    def said(self) -> str:
        """Everything that the daemon has printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    @property
    def crashes(self) -> list[str]:
        """Lines of the daemon's own log that report a defect."""
        return [line for line in self.said.splitlines() if any(word in line for word in CRASHES)]

    @property
    def rss_bytes(self) -> int:
        """Memory that the daemon has resident now."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _ended(self) -> int:
        assert self.process is not None
        status = self.process.wait()
        os.close(self._pidfd)
        self.process = None
        return status


def marked(*marks: str) -> set[int]:
    """The living processes whose environment has one of these `NAME=value`."""
    wanted = {mark.encode() for mark in marks}
    return {pid for pid, variables in _environments().items() if wanted & variables}


def guards(log_id: str) -> set[int]:
    """Return the living helpers of the daemon, which have this log on their command line."""
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and log_id.encode() in _read(entry / "cmdline")
    } - marked(f"TILLER_DAEMON={log_id}")


def leftovers(log_ids: Iterable[str], *, timeout_s: float) -> set[int]:
    """Wait until all processes of the daemons of these logs have ended; return those that stay."""
    marks = [f"TILLER_DAEMON={log_id}" for log_id in log_ids]
    while found := marked(*marks).union(*(guards(log_id) for log_id in log_ids)):
        for pid in found:
            if not gone(pid, timeout_s=timeout_s):
                return found
    return set()


def gone(pid: int, *, timeout_s: float = 0.0) -> bool:
    """Whether this process is dead, at the latest after `timeout_s`."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return _readable(descriptor, timeout_s=timeout_s)
    finally:
        os.close(descriptor)


def _readable(descriptor: int, *, timeout_s: float) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def _environments() -> Mapping[int, frozenset[bytes]]:
    return {
        int(entry.name): frozenset(_read(entry / "environ").split(b"\0"))
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
    }


def _read(path: Path) -> bytes:
    """Return the content of a /proc file, which is empty when the process has gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
