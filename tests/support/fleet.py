"""A fleet on this machine: a real NATS server, and hosts with a daemon and a gateway each."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from support.daemon import CONFIG, Daemon
from support.slow_link import SlowLink
from tiller_client.fleet.broker import Broker as FleetBroker
from tiller_client.fleet.gateway import gateway_directory
from tiller_client.fleet.orders import Orders
from tiller_client.fleet.records import Task, TaskSpec
from tiller_client.fleet.settings import read_settings

TIMEOUT_S = 30.0
COMMAND_S = 120.0
"""Longest time that a command may take; one whose broker has just been killed waits for it."""

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def wait_until(
    is_true: Callable[[], object], timeout_s: float = TIMEOUT_S, poll_s: float = 0.02
) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(poll_s)


class Broker:
    """A NATS server with JetStream; `config` is added to its configuration."""

    def __init__(self, directory: Path, config: str = "", *, jetstream: bool = True) -> None:
        program = shutil.which("nats-server")
        if not program:
            pytest.skip("no nats-server: apt install nats-server")
        self.port = free_port()
        self._command = [program, "-c", str(directory / "nats.conf")]
        store = f'jetstream {{ store_dir: "{directory}/js" }}' if jetstream else ""
        text = f'listen: "127.0.0.1:{self.port}"\n{store}\n{config}\n'
        (directory / "nats.conf").write_text(text)
        self._log = directory / "nats.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill9()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._listens)

    def kill9(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True


class Host:
    """A home with a daemon and a gateway, whose connection to the broker can be held."""

    def __init__(
        self, home: Path, name: str, broker: Broker, fleet: str = "", config: str = CONFIG
    ) -> None:
        self.name = name
        self.link = SlowLink(broker.port)
        table = f'[fleet]\nservers = ["nats://127.0.0.1:{self.link.port}"]\nname = "{name}"\n'
        self.daemon = Daemon(home, f"{config}\n{table}{fleet}\n")
        self.gateway: subprocess.Popen[bytes] | None = None
        self.said_file = home / "gateway.log"

    def __enter__(self) -> Self:
        self.link.__enter__()
        self.daemon.start()
        self.start_gateway()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_gateway()
        self.daemon.close()
        self.link.__exit__()

    @property
    def said(self) -> str:
        return self.said_file.read_text() if self.said_file.exists() else ""

    def start_gateway(self, **variables: str) -> None:
        before = self.said.count("is in the fleet")
        with self.said_file.open("ab") as log:
            self.gateway = subprocess.Popen(
                [sys.executable, "-m", "tiller_client", "gateway"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.daemon.variables | variables,
                cwd=self.daemon.home,
            )
        wait_until(lambda: self.said.count("is in the fleet") > before or self._ended)
        assert not self._ended, self.said

    @property
    def _ended(self) -> bool:
        return self.gateway is None or self.gateway.poll() is not None

    def stop_gateway(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.gateway is None:
            return 0
        self.gateway.send_signal(number)
        status = self.gateway.wait(TIMEOUT_S)
        self.gateway = None
        return status

    def kill(self) -> None:
        """Lose the power: everything ends at once."""
        self.stop_gateway(signal.SIGKILL)
        self.daemon.kill9()

    @property
    def repositories(self) -> Path:
        return gateway_directory(self.daemon.places) / "repositories"

    def tiller(self, *words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run the command line on this host."""
        return subprocess.run(
            [sys.executable, "-m", "tiller_client", *words],
            env=self.daemon.variables,
            cwd=cwd or self.daemon.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def lines(self, *words: str) -> list[dict[str, Any]]:
        """Run the command line with `--json`, and return what it prints."""
        done = self.tiller(*words, "--json")
        assert done.returncode in {0, 1}, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def run(self, prompt: str, repository: Path | str, *words: str) -> list[str]:
        """Submit a task, and return the ids."""
        done = self.tiller("fleet", "run", prompt, "--repo", str(repository), *words)
        assert not done.returncode, done.stderr
        return done.stdout.split()

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Return all tasks by id."""

        async def read(orders: Orders) -> Sequence[Task]:
            return [one.task for one in (await orders.overview()).tasks]

        return {one.id: msgspec.to_builtins(one) for one in self._ordering(read)}

    def ended(self, task_id: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """Wait until a task has ended."""
        found: list[Task] = []

        async def wait(orders: Orders) -> Sequence[Task]:
            async with asyncio.timeout(timeout_s):
                await orders.until_ended([Task(task_id, TaskSpec("", ""))], found.append)
            return found

        (task,) = self._ordering(wait)
        return msgspec.to_builtins(task)

    def session_of(self, task_id: str) -> str:
        """Wait until a task has a session."""
        wait_until(lambda: self.tasks()[task_id].get("session_id"), poll_s=0.1)
        return str(self.tasks()[task_id]["session_id"])

    def _ordering(self, act: Callable[[Orders], Awaitable[Sequence[Task]]]) -> Sequence[Task]:
        async def run() -> Sequence[Task]:
            async with FleetBroker(read_settings(self.daemon.places), "test") as broker:
                return await act(Orders(broker, "test"))

        return asyncio.run(run())


@contextmanager
def fleet_of(
    directory: Path, count: int, fleet: str = "", config: str = CONFIG
) -> Generator[tuple[Broker, Sequence[Host]]]:
    """Start a broker and hosts, and end them."""
    with Broker(directory) as broker:
        hosts: list[Host] = []
        try:
            for number in range(count):
                home = directory / f"h{number}"
                home.mkdir()
                host = Host(home, f"host{number}", broker, fleet, config)
                hosts.append(host)
                host.__enter__()
            yield broker, hosts
        finally:
            for host in hosts:
                host.__exit__()


def repository(place: Path) -> Path:
    """Make a repository with one commit on `main` that can be pushed to."""
    place.mkdir(parents=True)
    git(place, "init", "-q", "-b", "main")
    (place / "a.txt").write_text("one\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "One")
    return place


def git(place: Path, *words: str) -> str:
    return subprocess.check_output([*GIT, *words], cwd=place, text=True, env=os.environ).strip()
