"""Runs `tiller` as separate processes in a user's home.

Nothing here starts a daemon: `tiller` starts one when it needs to, as on any machine.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from support.daemon import CRASHES, SLACK_S, STOP_S, gone, marked
from tiller_protocol.answers import DaemonStatusResult
from tiller_protocol.events import Body, Event
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.places import CONFIG_FILE, DAEMON_OUTPUT_FILE, Places, find_places

TIMEOUT_S = 60.0
"""Longest wait for a command, which may need seconds on a busy machine."""

POLL_S = 0.02


OneBody = TypeVar("OneBody", bound=Body)


class CommandResult(NamedTuple):
    """The exit status and the output of a `tiller` process."""

    status: int
    out: str
    err: str

    @property
    def events(self) -> list[Event]:
        """The events that `--json` has printed."""
        return [msgspec.json.decode(line, type=Event) for line in self.out.splitlines()]


class Running:
    """A `tiller` process that may still run."""

    def __init__(self, process: subprocess.Popen[str], complaints: Path) -> None:
        assert process.stdout
        self.process = process
        self._stdout = process.stdout
        self._complaints = complaints
        self._out = ""

    def until(self, text: str) -> None:
        """Read the output up to a line that contains `text`."""
        for line in self._stdout:
            self._out += line
            if text in line:
                return
        raise AssertionError(f"no {text} in {self.ended()}")

    def stop(self) -> None:
        """Stop the process as Ctrl-Z does, and return when it has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def ended(self) -> CommandResult:
        """Read all output, and wait for the process to end."""
        self._out += self._stdout.read()
        return CommandResult(self.process.wait(), self._out, self._complaints.read_text())

    def close(self) -> None:
        """End the process if it still runs."""
        self.process.kill()
        self.process.wait()
        self._stdout.close()


class Home:
    """A home with a configuration; `close` checks that no process is left."""

    def __init__(self, place: Path, config: str, variables: Mapping[str, str]) -> None:
        self.place = place
        self.directory = place
        """The directory in which command lines run."""
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "LANG": "C.UTF-8",
            "TILLER_HOME": str(place / "t"),
            **variables,
        }
        self._numbers = count(1)
        self._running: list[Running] = []
        self.places: Places = find_places(self.variables, sys.platform, os.getuid())
        if config:
            self.places.config.mkdir(parents=True)
            (self.places.config / CONFIG_FILE).write_text(config)

    def tiller(self, *arguments: str) -> CommandResult:
        """Run a command line to its end."""
        return self.start(*arguments).ended()

    def start(self, *arguments: str) -> "Running":
        """Start a command line, which `close` ends if it still runs."""
        complaints = self.place / f"complaints{next(self._numbers)}"
        with complaints.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tiller_client", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self.variables,
                cwd=self.directory,
                text=True,
            )
        self._running.append(Running(process, complaints))
        return self._running[-1]

    def status(self) -> DaemonStatusResult:
        """Return the status of the running daemon, without starting one."""
        said = self.tiller("daemon", "status", "--json")
        assert said.status == 0, said
        return msgspec.json.decode(said.out, type=DaemonStatusResult)

    def kill9(self) -> None:
        """Kill the daemon, and return when it is gone."""
        pid = self.status().pid
        os.kill(pid, signal.SIGKILL)
        assert gone(pid, timeout_s=SLACK_S)

    @property
    def daemon_output(self) -> str:
        """Return the daemon's output."""
        path = self.places.state / DAEMON_OUTPUT_FILE
        return path.read_text(errors="replace") if path.exists() else ""

    def files_with(self, text: str) -> list[Path]:
        """Return the files in this home that contain `text`; skip sockets."""
        files = [path for path in self.place.rglob("*") if path.is_file()]
        return [path for path in files if text.encode() in path.read_bytes()]

    def close(self) -> None:
        """Stop the daemon, and check for leftovers of it and its frontends."""
        stopped = self.tiller("daemon", "stop")
        for running in self._running:
            running.close()
        left = {pid for pid in self._alive() if not gone(pid, timeout_s=STOP_S + SLACK_S)}
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert stopped.status == 0, stopped
        assert not left, f"left behind: {left}"
        crashes = [
            line
            for line in self.daemon_output.splitlines()
            if any(word in line for word in CRASHES)
        ]
        assert not crashes

    def _alive(self) -> set[int]:
        """Return the daemon, its frontends, and their children, which have the same HOME."""
        return marked(f"HOME={self.place}")


def check_whole(events: list[Event], first: int = 1) -> None:
    """Check a session's life cycle and that its events are numbered without a gap (G2, G7)."""
    assert [event.seq for event in events] == list(range(first, first + len(events)))
    if first == 1:
        state = LifecycleState()
        for event in events:
            advance(state, event)
        assert state.turn_id is None


def bodies(events: list[Event], kind: type[OneBody]) -> list[OneBody]:
    """Return the bodies of one kind."""
    return [event.body for event in events if isinstance(event.body, kind)]


def git(repository: Path, *arguments: str) -> str:
    """Run a git command; return its output."""
    name = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    done = subprocess.run(
        ["git", *name, *arguments], cwd=repository, check=True, capture_output=True, text=True
    )
    return done.stdout


def wait_for(path: Path) -> None:
    """Wait until a command has made this file."""
    deadline = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} was not made"
        time.sleep(POLL_S)
