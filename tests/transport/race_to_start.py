"""A process that starts a daemon's sockets when told `go` and stops them when told `stop`.

Run as `race_to_start.py RUNTIME`; it answers `won` (and is reachable) or `lost`, then `stopped`.
Told a stamp instead of `go`, it replaces the crashed daemon with that stamp and stops at once.
"""

import os
import sys
from pathlib import Path

import pynng
import trio

from tiller_daemon.transport.nng import NngTransport
from tiller_daemon.transport.runtime import AlreadyRunning, NotNeeded, RuntimeDirectory
from tiller_protocol.places import OPS_SOCKET

MESSAGE_BYTES_MAX = 1 << 20
ANSWER_S_MAX = 20.0


async def echo(submission: bytes) -> bytes:
    return submission + b" by %d" % os.getpid()


async def ask_self(runtime: Path) -> bool:
    with pynng.Req0() as asker:
        asker.dial(f"ipc://{runtime / OPS_SOCKET}", block=False)
        with trio.fail_after(ANSWER_S_MAX):
            await asker.asend(b"who")
            return await asker.arecv() == await echo(b"who")


async def start(runtime: Path) -> None:
    try:
        with RuntimeDirectory(runtime), NngTransport(runtime, MESSAGE_BYTES_MAX) as transport:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(transport.serve, echo)
                say("won" if await ask_self(runtime) else "unreachable")
                await trio.to_thread.run_sync(sys.stdin.readline)
                nursery.cancel_scope.cancel()
    except AlreadyRunning:
        say("lost")
        sys.stdin.readline()
    say("stopped")


def replace(runtime: Path, stamp: str) -> None:
    try:
        with RuntimeDirectory(runtime, stamp):
            pass
        say("won")
    except (AlreadyRunning, NotNeeded):
        say("lost")


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    while told := sys.stdin.readline().strip():
        if told == "go":
            trio.run(start, Path(sys.argv[1]))
        else:
            replace(Path(sys.argv[1]), told)
