"""A wire carries the bytes of one connection: a socket, or TLS over another wire.

Trio's streams would be slower: each call passes through the scheduler at least once, even if data
is there, and every delta of every response needs a call.
"""

import select
import socket
from typing import Final, Protocol

import trio

from tiller_daemon.http.failures import Broken

RECEIVE_BYTES_MAX: Final = 64 * 1024
"""How much is received at once."""


class Wire(Protocol):
    """The interface of both kinds of wire. One task may receive while another sends."""

    async def receive(self) -> bytes:
        """Wait for data and return it; empty at the end of the connection. Raises `Broken`.

        Cancellation loses no data.
        """
        ...

    async def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`, or some of it if cancelled. Raises `Broken`.

        This is not a checkpoint if the system takes everything at once.
        """
        ...

    def is_quiet(self) -> bool:
        """Whether nothing has arrived, not even the end, so that an idle wire can be used."""
        ...

    def close(self) -> None:
        """Close the connection at once."""
        ...


class PlainWire(Wire):
    """A wire over a connected TCP socket, which the wire owns."""

    def __init__(self, stream: trio.SocketStream) -> None:
        opened = stream.socket
        family, kind, protocol = opened.family, opened.type, opened.proto
        self._socket = socket.socket(family, kind, protocol, fileno=opened.detach())
        self._socket.settimeout(0)

    async def receive(self) -> bytes:
        """Wait for data and return it; see `Wire`."""
        try:
            while True:
                # Waiting first costs one pass through the scheduler, whether or not data is there.
                await trio.lowlevel.wait_readable(self._socket)
                try:
                    return self._socket.recv(RECEIVE_BYTES_MAX)
                except BlockingIOError:
                    continue
        except (OSError, trio.ClosedResourceError) as error:
            raise Broken(str(error)) from error

    async def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`; see `Wire`."""
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
        except (OSError, trio.ClosedResourceError) as error:
            raise Broken(str(error)) from error

    def is_quiet(self) -> bool:
        """Whether nothing has arrived, not even the end of the connection."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the socket."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
