"""One exchange: requests that are not taken, answers that come early or never, cancellation."""

import gc
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from support.each import each
from support.exchanges import LIMIT_S, REQUEST, Whole, ask, perform_once, pooled, read, wire_pair
from support.http_server import KeepAlive, chunk, serving, wait_closed
from tiller_daemon.http import connection
from tiller_daemon.http.failures import Broken, HttpFailure, ReadTimedOut, WriteTimedOut
from tiller_daemon.http.head import make_request

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
REFUSAL = b"HTTP/1.1 413 Too large\r\nContent-Length: 2\r\n\r\nno"
LARGE_BYTES = 20_000_000
"""More than the sockets of both sides hold."""

LARGE = make_request("POST", "/x", [("Host", "h")], b'"' + b"x" * LARGE_BYTES + b'"')


async def test_an_answer_to_a_request_that_nobody_reads_is_heard() -> None:
    """The server refuses and reads no more: waiting for it to do so would take until the limit."""
    async with trio.open_nursery() as nursery:
        wire, server = await wire_pair()
        nursery.start_soon(server.send_all, REFUSAL)
        response = await perform_once(wire, LARGE)
        assert (response.head.status, await read(response)) == (413, b"no")
        assert response.is_cut
        response.close()
        with suppress(trio.BrokenResourceError):
            while await server.receive_some():
                pass
        await server.aclose()


async def test_a_connection_on_which_a_request_was_cut_is_not_kept() -> None:
    async def refuse(stream: trio.abc.Stream) -> None:
        await stream.send_all(REFUSAL)
        await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    connections = 0

    async def count(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        await refuse(stream)

    async with serving(wait_closed) as server, pooled(server) as pool:
        server.port = listeners[0].socket.getsockname()[1]
    async with pooled(server) as pool, trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, count, listeners)
        for _ in range(2):
            assert await ask(pool, LARGE) == Whole(413, b"no")
        assert connections == 2
        nursery.cancel_scope.cancel()


async def test_an_answer_before_the_end_of_the_connection_counts_although_writing_failed() -> None:
    wire, server = await wire_pair()
    await server.send_all(REFUSAL)
    await server.aclose()
    response = await perform_once(wire, LARGE)
    assert (response.head.status, await read(response)) == (413, b"no")
    response.close()


async def test_a_large_request_reaches_a_slow_reader_whole() -> None:
    taken = 0

    async def slow(stream: trio.abc.Stream) -> None:
        nonlocal taken
        while taken < len(LARGE):
            await trio.lowlevel.checkpoint()
            taken += len(await stream.receive_some(100_000))
        await stream.send_all(REFUSAL)

    async with trio.open_nursery() as nursery:
        wire, server = await wire_pair()
        nursery.start_soon(slow, server)
        response = await perform_once(wire, LARGE)
        assert not response.is_cut
        assert (response.head.status, taken) == (413, len(LARGE))
        response.close()
    await server.aclose()


@pytest.mark.parametrize("size", [connection.EARLY_BYTES, LARGE_BYTES])
async def test_a_server_that_takes_nothing_is_given_up(
    autojump_clock: MockClock, size: int
) -> None:
    wire, server = await wire_pair()
    with suppress(trio.WouldBlock):
        server.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
    request = make_request("POST", "/x", [], b"x" * (size - 100))
    if size == connection.EARLY_BYTES:
        with trio.move_on_after(1):
            await wire.send(bytes(LARGE_BYTES))
    before = trio.current_time()
    with pytest.raises(WriteTimedOut):
        await perform_once(wire, request, write_s=7)
    assert trio.current_time() - before == pytest.approx(7)
    with suppress(trio.BrokenResourceError):
        while await server.receive_some():
            pass
    await server.aclose()


async def test_a_silent_server_is_given_up_and_a_slow_one_is_not(autojump_clock: MockClock) -> None:
    async def slow(stream: trio.SocketStream) -> None:
        await stream.send_all(CHUNKED)
        for _ in range(3):
            await trio.sleep(5)
            await stream.send_all(chunk(b"abc"))

    async with trio.open_nursery() as nursery:
        wire, server = await wire_pair()
        nursery.start_soon(slow, server)
        response = await perform_once(wire)
        for _ in range(3):
            assert await response.receive(6) == b"abc"
        before = trio.current_time()
        with pytest.raises(ReadTimedOut):
            await response.receive(6)
        assert trio.current_time() - before == pytest.approx(6)
        response.close()
    await server.aclose()


@pytest.mark.parametrize("rest", [b"0\r\n" + b"Trailer: x\r\n" * 100_000, b"1;" + b"x" * 1_000_000])
async def test_what_has_no_content_is_not_read_for_ever(rest: bytes) -> None:
    """G12. A server that sends something all the time is never silent."""
    async with trio.open_nursery() as nursery:
        wire, server = await wire_pair()

        async def send() -> None:
            with suppress(trio.BrokenResourceError):
                await server.send_all(CHUNKED + rest)

        nursery.start_soon(send)
        response = await perform_once(wire)
        with pytest.raises(Broken, match="without any content"):
            await response.receive(LIMIT_S)
        response.close()
    await server.aclose()


async def test_pieces_come_as_soon_as_they_are_there() -> None:
    wire, server = await wire_pair()
    await server.send_all(CHUNKED + chunk(b"one") + chunk(b"two")[:4])
    response = await perform_once(wire)
    assert await response.receive(LIMIT_S) == b"onet"
    await server.send_all(chunk(b"two")[4:] + chunk(b"three") + b"0\r\n\r\n")
    assert await response.receive(LIMIT_S) == b"wothree"
    assert await response.receive(LIMIT_S) == b""
    assert await response.receive(LIMIT_S) == b""
    response.close()
    await server.aclose()


async def test_a_connection_that_breaks_says_so() -> None:
    wire, server = await wire_pair()
    await server.send_all(CHUNKED + chunk(b"one"))
    response = await perform_once(wire)
    assert await response.receive(LIMIT_S) == b"one"
    await server.receive_some()
    await server.aclose()
    with pytest.raises(Broken, match="incomplete chunked read"):
        await response.receive(LIMIT_S)
    response.close()


class StepCounter(trio.abc.Instrument):
    """Cancels a scope at one of the steps of a task."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, step: int) -> None:
        self.task = task
        self.scope = scope
        self.left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


@each("request_", [REQUEST, LARGE])
@pytest.mark.nightly
async def test_a_request_that_is_cancelled_at_any_point_leaves_nothing_behind(
    request_: bytes,
) -> None:
    """No open connection, and none in the pool on which something of it would still arrive."""

    async def answer(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.1 100 Go on\r\n\r\n")
        await trio.lowlevel.checkpoint()
        await stream.send_all(CHUNKED)
        for piece in (b"one", b"two"):
            await trio.lowlevel.checkpoint()
            await stream.send_all(chunk(piece))
        await trio.lowlevel.checkpoint()
        await stream.send_all(b"0\r\n\r\n")
        raise KeepAlive

    steps = 0
    is_done = False
    async with serving(answer) as server:
        while not is_done:
            steps += 1
            async with pooled(server) as pool:
                with trio.CancelScope() as scope:
                    counter = StepCounter(trio.lowlevel.current_task(), scope, steps)
                    trio.lowlevel.add_instrument(counter)
                    assert await ask(pool, request_) == Whole(200, b"onetwo")
                trio.lowlevel.remove_instrument(counter)
                is_done = not scope.cancelled_caught
                assert await ask(pool) == Whole(200, b"onetwo"), steps
            with trio.fail_after(LIMIT_S):
                while server.open_connections:
                    await trio.lowlevel.checkpoint()
    assert steps > 5
    gc.collect()  # shows a connection that nobody has closed


async def test_a_body_that_is_packed_by_nobody_knows_what_is_an_error() -> None:
    wire, server = await wire_pair()
    await server.send_all(OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx")
    response = await perform_once(wire)
    with pytest.raises(HttpFailure, match="'br', which was not requested"):
        await response.receive(LIMIT_S)
    response.close()
    await server.aclose()
