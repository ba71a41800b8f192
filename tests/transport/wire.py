"""Frontends for the tests of the sockets: real ones over pynng, and rude ones over plain sockets.

The bytes of nng's IPC transport: a greeting of 8 bytes each way (NUL, `SP`, NUL, the protocol's
number, two NULs), then frames of a byte 1, a length of 8 bytes and a body. A request's body begins
with an id of 4 bytes whose highest bit is set.
"""

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pynng
import trio

from tiller_daemon.transport.base import Handler
from tiller_daemon.transport.nng import NngTransport
from tiller_protocol.places import OPS_SOCKET

REQ, PUSH, SUB = 0x30, 0x50, 0x21
REQUEST_ID = b"\x80\x00\x00\x01"
MESSAGE_BYTES_MAX = 1 << 20
TIMEOUT_S = 30.0


async def echo(submission: bytes) -> bytes:
    return submission.upper()


@asynccontextmanager
async def serving(runtime: Path, handler: Handler = echo) -> AsyncIterator[NngTransport]:
    with NngTransport(runtime, MESSAGE_BYTES_MAX) as transport:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, handler)
            yield transport
            nursery.cancel_scope.cancel()


def dial(runtime: Path) -> pynng.Req0:
    asker = pynng.Req0()
    asker.dial(f"ipc://{runtime / OPS_SOCKET}", block=False)
    return asker


async def ask(asker: pynng.Socket | pynng.Context, submission: bytes) -> bytes:
    with trio.fail_after(TIMEOUT_S):
        await asker.asend(submission)
        return await asker.arecv()


async def ask_once(runtime: Path, submission: bytes = b"hello") -> bytes:
    with dial(runtime) as asker:
        return await ask(asker, submission)


def greeting(protocol: int) -> bytes:
    return b"\0SP\0" + struct.pack(">HH", protocol, 0)


def frame(body: bytes) -> bytes:
    return b"\x01" + struct.pack(">Q", len(body)) + body


async def connect(runtime: Path) -> trio.SocketStream:
    return await trio.open_unix_socket(str(runtime / OPS_SOCKET))


def descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what nng's threads or another process will do."""
    with trio.fail_after(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110 - nobody can set an event from there
            await trio.sleep(0.005)
