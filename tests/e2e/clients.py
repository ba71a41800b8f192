"""`tiller` as a separate process, read as it prints, and subscribers that never read."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager

import msgspec
import trio

from support.daemon import Daemon, Home
from support.frontend import TIMEOUT_S
from tiller_protocol.events import Event
from tiller_protocol.places import EVENTS_SOCKET

NNG_GREETING = b"\0SP\0"
NNG_SUBSCRIBER = NNG_GREETING + b"\0\x21\0\0"
"""The greeting of an nng socket, here with the number of the SUB protocol."""


class Client:
    """A `tiller` process whose JSON lines are read as they come."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.seen: list[Event] = []
        self._rest = b""

    @classmethod
    async def start(cls, home: Home, *arguments: str) -> "Client":
        """Start `tiller` in `home`; the caller ends it."""
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "tiller_client", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=home.variables,
        )
        return cls(process)

    async def until(self, seq: int) -> None:
        """Read the output up to event number `seq`."""
        assert self.process.stdout is not None
        with trio.fail_after(TIMEOUT_S):
            while not self.seen or self.seen[-1].seq < seq:
                piece = await self.process.stdout.receive_some()
                assert piece, f"it ended with {await self.process.wait()}"
                *lines, self._rest = (self._rest + piece).split(b"\n")
                self.seen += [msgspec.json.decode(line, type=Event) for line in lines]

    def stop(self) -> None:
        """Stop the process, and return when it has stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        """Let the stopped process continue."""
        self.process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        """Kill the process if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        assert self.process.stdout is not None
        await self.process.stdout.aclose()


Tillers = Callable[..., Awaitable[Client]]


@contextmanager
def deaf_subscribers(daemon: Daemon, count: int) -> Generator[None]:
    """Run subscribers to all events that never read a byte."""
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.connect(str(daemon.places.runtime / EVENTS_SOCKET))
            one.sendall(NNG_SUBSCRIBER)
            assert one.recv(8, socket.MSG_WAITALL).startswith(NNG_GREETING)
        yield
