"""One connection to a server, and the response that is read from it."""

from collections.abc import Callable, Mapping
from typing import Final

import trio
from msgspec import Struct

from tiller_daemon.http.body import Body, body_of
from tiller_daemon.http.failures import Broken, HttpFailure, ReadTimedOut, WriteTimedOut
from tiller_daemon.http.head import HeadReader, ResponseHead
from tiller_daemon.http.unpacking import PLAIN, Unpacker
from tiller_daemon.http.wire import Wire

WRITE_BYTES: Final = 64 * 1024
"""How much of a request is sent at a time."""

EARLY_BYTES: Final = 256 * 1024
"""While a longer request is sent, we listen for a response: servers refuse large requests early.
A shorter request fits into the system's buffers."""

FRAMING_BYTES_MAX: Final = 256 * 1024
"""How many bytes may arrive without any content, such as trailers."""


class Exchange(Struct, frozen=True):
    """A request, and the function to call after its response."""

    data: bytes
    """Head and body, as they are sent."""

    write_s: float
    """Time limit for sending each piece of `WRITE_BYTES`."""

    has_ended: Callable[[Wire | None], None]
    """Called once after the response, with the wire if the wire can be used again, else None."""


class Response:
    """A response. Its body is read by `receive`; it must be closed by `close`."""

    def __init__(self, wire: Wire, head: ResponseHead, body: Body, exchange: Exchange) -> None:
        self.head: Final = head
        self.headers: Final[Mapping[str, str]] = head.headers
        self.packing: Final = self.headers.get("content-encoding", "").strip().lower()
        """The compression of the body, which `receive` undoes."""
        self.is_cut: bool = False
        """Whether part of the request was never sent, because this response came first."""
        self._wire = wire
        self._body = body
        self._exchange: Exchange | None = exchange
        self._framing_bytes = 0
        self._unpacker: Unpacker | None = None
        self._is_plain = self.packing in PLAIN

    async def receive(self, limit_s: float) -> bytes:
        """Return the next bytes of the body, unpacked, or no bytes at its end.

        Waits only if no data is there yet. Raises `Broken`, or `ReadTimedOut` after `limit_s`
        seconds without data.
        """
        data = self._take()
        if data or self._has_ended():
            return data
        with trio.move_on_after(limit_s):
            while not data and not self._has_ended():
                self._feed(await self._wire.receive())
                data = self._take()
            return data
        raise ReadTimedOut(f"nothing for {limit_s:g} seconds")

    async def drain(self, limit_s: float) -> None:
        """Discard the rest of the response, for up to `limit_s`, to keep the connection usable."""
        body = self._body
        body.pieces.clear()
        if body.is_complete:
            return
        with trio.move_on_after(limit_s):
            try:
                while not body.is_complete:
                    self._feed(await self._wire.receive())
                    body.pieces.clear()
            except Broken:
                pass

    def close(self) -> None:
        """Keep the connection if the whole response has arrived; otherwise close it at once."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        can_be_kept = (
            self._body.is_complete
            and not self._body.has_excess
            and self.head.keeps_connection
            and not self.is_cut
        )
        if not can_be_kept:
            self._wire.close()
        exchange.has_ended(self._wire if can_be_kept else None)

    def _has_ended(self) -> bool:
        if self._unpacker is not None and self._unpacker.is_complete:
            return True
        return self._body.is_complete and not self._body.pieces

    def _feed(self, data: bytes) -> None:
        self._body.feed(data)
        if self._body.pieces:
            self._framing_bytes = 0
            return
        self._framing_bytes += len(data)
        if self._framing_bytes > FRAMING_BYTES_MAX:
            raise Broken(f"{FRAMING_BYTES_MAX} bytes arrived without any content")

    def _take(self) -> bytes:
        pieces = self._body.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._is_plain:
            return data
        if self._unpacker is None:
            self._unpacker = Unpacker(self.packing)
        return self._unpacker.unpack(data) if data or self._unpacker.has_more else b""


async def perform(wire: Wire, exchange: Exchange) -> Response:
    """Send a request and receive the head of its response.

    Raises `HttpFailure`. After a failure or cancellation, the wire is closed and `has_ended` is not
    called.
    """
    try:
        reader = HeadReader()
        read, is_whole = await _send(wire, exchange, reader)
        while read is None:
            try:
                data = await wire.receive()
            except Broken as error:
                raise Broken(str(error), has_begun=reader.has_begun) from error
            read = reader.feed(data)
        head, rest = read
        body = body_of(head)
        if rest and body.is_complete:
            body.has_excess = True
        elif rest:
            body.feed(rest)
    except BaseException:
        wire.close()
        raise
    response = Response(wire, head, body, exchange)
    response.is_cut = not is_whole
    return response


_Read = tuple[ResponseHead, bytes] | None


async def _send(wire: Wire, exchange: Exchange, reader: HeadReader) -> tuple[_Read, bool]:
    """Send a request. Return the head of an early response, and whether all data was sent."""
    data = exchange.data
    if len(data) <= EARLY_BYTES:
        return None, await _write(wire, data, exchange.write_s)
    read: _Read = None
    failure: HttpFailure | None = None
    is_whole = False

    async def listen() -> None:
        nonlocal read
        try:
            while read is None:
                read = reader.feed(await wire.receive())
        except Broken:
            # The writer notices as well, and `perform` then reads the reason from the wire.
            return
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        try:
            is_whole = await _write(wire, data, exchange.write_s)
        except HttpFailure as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None and read is None:
        raise failure
    return read, is_whole


async def _write(wire: Wire, data: bytes, limit_s: float) -> bool:
    """Send `data`; return False if the server stops accepting data, perhaps to answer early."""
    rest = memoryview(data)
    while rest:
        with trio.move_on_after(limit_s) as limit:
            try:
                await wire.send(rest[:WRITE_BYTES])
            except Broken:
                return False
        if limit.cancelled_caught:
            raise WriteTimedOut(f"the server accepted no data for {limit_s:g} seconds")
        rest = rest[WRITE_BYTES:]
    return True
