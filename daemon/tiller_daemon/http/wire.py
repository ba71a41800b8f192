"""A wire carries the bytes of one connection: a socket, or TLS over another wire.

Not trio's streams: a stream passes through the scheduler at least once for each call, also when
the data is there, and this is done for every delta of every response.
"""

import select
import socket
from typing import Final, Protocol

import trio

from tiller_daemon.http.failures import Broken

RECEIVE_BYTES_MAX: Final = 64 * 1024
"""How much is received at once."""


class Wire(Protocol):
    """What both kinds have. One task may receive while another sends."""

    async def receive(self) -> bytes:
        """Return what has arrived, after waiting for it; nothing at the end. Raises `Broken`.

        When cancelled, nothing is lost.
        """
        ...

    async def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`. Raises `Broken`. When cancelled, some of it was sent.

        It is not a checkpoint if the system takes everything at once.
        """
        ...

    def is_quiet(self) -> bool:
        """Whether nothing has arrived, not even the end: an idle connection can be used."""
        ...

    def close(self) -> None:
        """Close the connection at once."""
        ...


class PlainWire(Wire):
    """A connected TCP socket, which it owns."""

    def __init__(self, stream: trio.SocketStream) -> None:
        opened = stream.socket
        family, kind, protocol = opened.family, opened.type, opened.proto
        self._socket = socket.socket(family, kind, protocol, fileno=opened.detach())
        self._socket.settimeout(0)

    async def receive(self) -> bytes:
        """Return what has arrived; see `Wire`."""
        try:
            while True:
                # Waiting first is one pass through the scheduler, whether or not data is there.
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
        """Whether nothing has arrived, not even the end."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the socket."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
