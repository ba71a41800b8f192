"""The parts that benchmarks measure: the daemon's process, the model server and a frontend.

Used by `daemon.py`. All times are seconds of the system-wide monotonic clock, so that the times of
three processes can be compared.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import pynng
import trio
from model_server import MARK, Play, Played

from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import Accepted, AnyResult, Created
from tiller_protocol.codec import (
    MESSAGE_BYTES_MAX,
    decode_answer,
    decode_publication,
    encode_submission,
)
from tiller_protocol.events import AnyBody, Event
from tiller_protocol.ids import ULID_RANDOM_BYTES, ulid
from tiller_protocol.ops import AnyOp, Hello, SessionCreate, Submission, UserInput
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET, TOKEN_FILE, Places, find_places
from tiller_protocol.settings import SandboxMode, Settings

TIMEOUT_S = 120.0
"""The longest wait for anything; only a defect takes so long."""

MAX_STEPS = 10_000

CONFIG = """\
model = "bench/play"
approve = "always"
max_steps = {max_steps}
sandbox = {{ mode = "full_access" }}
[providers.bench]
api = "openai_chat"
base_url = "{url}/v1"
[models."bench/play"]
context_window = 100000000
"""


class Model:
    """A context manager that runs the model server in its own process.

    With `certificate`, a file with a certificate and its key, the server speaks TLS.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        self._certificate = certificate

    def __enter__(self) -> "Model":
        command = [sys.executable, Path(__file__).with_name("model_server.py")]
        command += [self._certificate] if self._certificate else []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._out = self._process.stdout
        scheme = "https" if self._certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{int(self._out.readline())}"
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""
        self._played: dict[str, list[Played]] = {}
        self._reading = trio.Lock()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._out.close()

    async def played(self, play_id: str, count: int = 1) -> list[Played]:
        """Wait until a conversation has `count` answers, and return them."""
        with trio.fail_after(TIMEOUT_S):
            while len(found := self._played.get(play_id, [])) < count:
                async with self._reading:
                    if len(self._played.get(play_id, [])) < count:
                        await trio.lowlevel.wait_readable(self._out)
                        self._take()
        return found

    def _take(self) -> None:
        data = os.read(self._out.fileno(), 1 << 20)
        if not data:
            raise RuntimeError("the model server has ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            played = msgspec.json.decode(line, type=Played)
            self._played.setdefault(played.id, []).append(played)


def slow_disk(directory: Path, milliseconds: float) -> dict[str, str]:
    """Return variables that make every sync of a file take so much longer in a process."""
    library = directory / "slow_disk.so"
    source = Path(__file__).with_name("slow_disk.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "SLOW_DISK_MS": f"{milliseconds:g}"}


class Daemon:
    """A context manager that makes a home, in which `start` runs a daemon.

    `shared_variables` are given to every daemon, such as those of `slow_disk`.
    """

    shared_variables: ClassVar[dict[str, str]] = {}

    def __init__(self, home: Path, url: str) -> None:
        home_variables = {"TILLER_HOME": str(home), "HOME": str(home)}
        # With a variable for Python, the daemon would start its interpreter twice.
        own = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
        self.variables = {**own, **home_variables, **self.shared_variables}
        self.places: Places = find_places(self.variables, sys.platform, os.getuid())
        self.workspace = home / "workspace"
        self.workspace.mkdir(parents=True)
        lines = "".join(f"line {number} of the file\n" for number in range(1, 6001))
        (self.workspace / "README.md").write_text(lines)
        self.places.config.mkdir(parents=True)
        config = CONFIG.format(url=url, max_steps=MAX_STEPS)
        (self.places.config / "config.toml").write_text(config)
        self._notify = home / "notify"
        self._output = home / "said"
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Daemon":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> float:
        """Start the daemon; return the seconds until it said that it is ready."""
        self._notify.unlink(missing_ok=True)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
            self._output.open("ab") as out,
        ):
            ready.bind(str(self._notify))
            begun = time.monotonic()
            self._process = subprocess.Popen(
                [sys.executable, "-E", "-P", "-m", "tiller_daemon"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                env={**self.variables, "NOTIFY_SOCKET": str(self._notify)},
                start_new_session=True,
            )
            self.pid = self._process.pid
            with open(os.pidfd_open(self.pid), "rb") as ended:  # noqa: PTH123 - a descriptor
                readable = select.select([ready, ended], [], [], TIMEOUT_S)[0]
            if ready not in readable:
                raise RuntimeError(f"the daemon is not ready; it says: {self._output.read_text()}")
            return time.monotonic() - begun

    def stop(self) -> None:
        """Stop the daemon, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    def cpu_s(self) -> float:
        """Return the CPU seconds of the daemon and of the children that it has waited for."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        children = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        return cpu_s_of(self.pid) + children

    def rss_bytes(self) -> int:
        """Return the daemon's resident memory."""
        statm = Path(f"/proc/{self.pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_s_of(pid: int) -> float:
    """Return the exact CPU seconds of a living process, by its clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


class Seen(NamedTuple):
    """An event and the time at which this frontend received it."""

    at: float
    event: Event


class Frontend:
    """A frontend of one daemon: REQ sockets for ops, one for each op under way; SUB for events."""

    def __init__(self, daemon: Daemon) -> None:
        runtime = daemon.places.runtime
        self._ops = f"ipc://{runtime / OPS_SOCKET}"
        self._token = (runtime / TOKEN_FILE).read_text()
        self._workspace = str(daemon.workspace)
        self._idle: list[pynng.Req0] = []
        self._events = pynng.Sub0(recv_max_size=MESSAGE_BYTES_MAX, recv_buffer_size=8192)
        self._events.dial(f"ipc://{runtime / EVENTS_SOCKET}", block=True)
        self.seen: dict[str, list[Seen]] = {}
        self._news = trio.Event()

    async def ask(self, op: AnyOp) -> AnyResult | None:
        """Submit an op that must be accepted."""
        submission_id = ulid(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))
        frame = encode_submission(Submission(submission_id, op, "bench", self._token))
        one = self._idle.pop() if self._idle else self._dial()
        with trio.fail_after(TIMEOUT_S):
            await trio.lowlevel.wait_readable(one.send_fd)
            one.send(frame, block=False)
            while True:
                await trio.lowlevel.wait_readable(one.recv_fd)
                try:
                    data = one.recv(block=False)
                    break
                except pynng.TryAgain:
                    continue
        self._idle.append(one)
        answer = decode_answer(data)
        if not isinstance(answer, Accepted):
            raise TypeError(f"{type(op).__name__} was answered by {answer}")
        return answer.result

    async def hello(self) -> None:
        """Introduce this frontend."""
        await self.ask(Hello(PROTOCOL_VERSION, "bench"))

    async def create(self, sandbox: SandboxMode | None = None) -> str:
        """Make a session and follow it; without `sandbox` its commands run in no sandbox."""
        settings = Settings(sandbox=sandbox)
        created = await self.ask(SessionCreate(self._workspace, settings=settings))
        assert isinstance(created, Created)
        self.follow(created.session_id)
        return created.session_id

    def follow(self, session_id: str) -> None:
        """Take the events of a session."""
        self._events.subscribe(session_id.encode() + b"\0")
        self.seen[session_id] = []

    async def say(self, session_id: str, play: Play) -> tuple[float, float]:
        """Ask for a turn; return the times at which it was submitted and accepted."""
        text = MARK + msgspec.json.encode(play).decode()
        submitted = time.monotonic()
        await self.ask(UserInput(session_id, text, delivery="start"))
        return submitted, time.monotonic()

    async def until(self, session_id: str, kind: type[AnyBody], begin: int = 0) -> Seen:
        """Wait for the first event of a kind at or after index `begin` of the session's events."""
        with trio.fail_after(TIMEOUT_S):
            while True:
                seen = self.seen[session_id]
                for place in range(begin, len(seen)):
                    if isinstance(seen[place].event.body, kind):
                        return seen[place]
                begin = len(seen)
                await self._news.wait()

    async def listen(self) -> None:
        """Take events until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._events.recv_fd)
            at = time.monotonic()
            while True:
                try:
                    data = self._events.recv(block=False)
                except pynng.TryAgain:
                    break
                _, event = decode_publication(data)
                if event.session_id in self.seen:
                    self.seen[event.session_id].append(Seen(at, event))
            self._news.set()
            self._news = trio.Event()

    def close(self) -> None:
        """Close every socket."""
        for one in (*self._idle, self._events):
            one.close()

    def _dial(self) -> pynng.Req0:
        return pynng.Req0(dial=self._ops, block_on_dial=True, recv_max_size=MESSAGE_BYTES_MAX)


@asynccontextmanager
async def frontend_of(daemon: Daemon) -> AsyncGenerator[Frontend]:
    """Yield a frontend that listens until the context ends."""
    frontend = Frontend(daemon)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frontend.listen)
        await frontend.hello()
        yield frontend
        nursery.cancel_scope.cancel()
    frontend.close()


async def pid_of(command: tuple[str, ...]) -> int:
    """Wait for a process with these arguments, and return its pid.

    The process itself can't tell: in a sandbox it sees another pid.
    """
    wanted = b"".join(argument.encode() + b"\0" for argument in command)
    with trio.fail_after(TIMEOUT_S):
        while (found := _pid_of(wanted)) is None:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.005)
    return found


def _pid_of(command_line: bytes) -> int | None:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended meanwhile
            if place.read_bytes() == command_line:
                return int(place.parent.name)
    return None


async def await_death(watched: int, died: list[float]) -> None:
    """Record when the process of this pidfd ends, and close the pidfd."""
    try:
        await trio.lowlevel.wait_readable(watched)
        died.append(time.monotonic())
    finally:
        os.close(watched)
