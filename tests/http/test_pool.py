"""Which connections are kept for another request, and which are not."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from support.each import each
from support.exchanges import LIMIT_S, REQUEST, Whole, ask, pooled, read
from support.http_server import Answer, KeepAlive, raw, serving, wait_closed
from tiller_daemon.http import pool as pools
from tiller_daemon.http.failures import Broken, ConnectFailed

OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + b"Content-Length: 5\r\n\r\nabcde"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"
ABCDE = Whole(200, b"abcde")


def kept(data: bytes) -> Answer:
    """Write an answer and leave the connection open."""

    async def answer(stream: trio.abc.Stream) -> None:
        await stream.send_all(data)
        raise KeepAlive

    return answer


async def closed(stream: trio.abc.Stream) -> None:
    """Close the connection instead of answering."""
    await trio.lowlevel.checkpoint()


@each(
    "data",
    [
        SIZED,
        CHUNKED,
        b"HTTP/1.1 204 No\r\n\r\n",
        b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 100 Go on\r\n\r\n" + SIZED,
    ],
)
async def test_a_connection_serves_many_requests(data: bytes) -> None:
    async with serving(kept(data)) as server, pooled(server) as pool:
        answers = {await ask(pool) for _ in range(3)}
        assert len(answers) == 1
        assert (server.connections, len(server.received)) == (1, 3)


@each(
    "data",
    [
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
        OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        SIZED + b"more",
        CHUNKED + SIZED,
    ],
)
async def test_a_connection_that_may_not_or_must_not_be_kept_is_closed(data: bytes) -> None:
    async with serving(kept(data)) as server, pooled(server) as pool:
        for _ in range(3):
            assert await ask(pool) == ABCDE
        assert server.connections == 3


async def test_what_a_server_says_unasked_is_no_answer_to_the_next_request() -> None:
    may_say, has_said = trio.Event(), trio.Event()

    async def chatty(stream: trio.abc.Stream) -> None:
        await stream.send_all(SIZED)
        await may_say.wait()
        # A loopback socket has the data as soon as it was sent.
        await stream.send_all(OK + b"Content-Length: 4\r\n\r\nevil")
        has_said.set()
        await wait_closed(stream)

    async with serving(chatty, kept(SIZED)) as server, pooled(server) as pool:
        assert await ask(pool) == ABCDE
        may_say.set()
        await has_said.wait()
        assert await ask(pool) == ABCDE
        assert server.connections == 2


async def test_a_response_that_was_not_read_to_its_end_costs_its_connection() -> None:
    async with serving(kept(SIZED[:-1]), kept(SIZED)) as server, pooled(server) as pool:
        response = await pool.request(REQUEST)
        assert await response.receive(LIMIT_S) == b"abcd"
        response.close()
        assert await ask(pool) == ABCDE
        assert server.connections == 2


async def test_the_end_of_a_response_is_waited_for_a_little(autojump_clock: MockClock) -> None:
    async def slow(stream: trio.abc.Stream) -> None:
        await stream.send_all(CHUNKED[:-5])
        await trio.sleep(0.01)
        await stream.send_all(CHUNKED[-5:])
        raise KeepAlive

    async with serving(slow) as server, pooled(server) as pool:
        for limit_s, connections in ((0.02, 1), (0.005, 1), (0.02, 2)):
            response = await pool.request(REQUEST)
            assert await response.receive(LIMIT_S) == b"abcde"
            await response.drain(limit_s)
            response.close()
            assert server.connections == connections


async def test_an_idle_connection_expires(mock_clock: MockClock) -> None:
    async with serving(kept(SIZED)) as server, pooled(server) as pool:
        for idle_s, connections in ((0, 1), (pools.IDLE_S - 1, 1), (pools.IDLE_S + 1, 2)):
            mock_clock.jump(idle_s)
            assert await ask(pool) == ABCDE
            assert server.connections == connections


async def test_of_many_idle_connections_the_newest_is_used_and_the_others_expire(
    mock_clock: MockClock,
) -> None:
    async with serving(kept(SIZED)) as server, pooled(server) as pool:
        open_ones = [await pool.request(REQUEST) for _ in range(3)]
        for one in open_ones:
            assert await read(one) == b"abcde"
            one.close()
        for _ in range(3):
            mock_clock.jump(pools.IDLE_S / 2)
            assert await ask(pool) == ABCDE
        await wait_all_tasks_blocked()
        assert (server.connections, server.open_connections) == (3, 1)


async def test_a_request_is_sent_again_if_its_kept_connection_was_closed() -> None:
    answers = [kept(SIZED), closed, kept(SIZED)]
    async with serving(*answers) as server, pooled(server) as pool:
        assert [await ask(pool) for _ in range(2)] == [ABCDE, ABCDE]
        assert (server.connections, len(server.received)) == (2, 3)


async def test_a_request_is_sent_again_once_and_on_a_new_connection() -> None:
    """All idle connections are stale after a restart of the server."""
    answers = [kept(SIZED)] * 3 + [closed] * 2
    async with serving(*answers) as server, pooled(server) as pool:
        open_ones = [await pool.request(REQUEST) for _ in range(3)]
        for one in open_ones:
            await read(one)
            one.close()
        with pytest.raises(Broken, match="without sending a response"):
            await ask(pool)
        assert (server.connections, len(server.received)) == (4, 5)


@each("data", [b"H", b"HTTP/1.1 100 Go on\r\n\r\n", SIZED[:-1], b"x\r\n\r\n"])
async def test_a_request_is_not_sent_again_once_anything_was_answered(data: bytes) -> None:
    async with serving(kept(SIZED), raw(data)) as server, pooled(server) as pool:
        assert await ask(pool) == ABCDE
        with pytest.raises(Broken):
            await ask(pool)
        assert len(server.received) == 2


async def test_a_request_on_a_new_connection_is_not_sent_again() -> None:
    async with serving(closed) as server, pooled(server) as pool:
        with pytest.raises(Broken, match="without sending a response"):
            await ask(pool)
        assert len(server.received) == 1


async def test_a_server_that_is_not_there_is_said() -> None:
    async with serving(closed) as server:
        pass
    async with pooled(server) as pool:
        with pytest.raises(ConnectFailed, match="all attempts to connect"):
            await ask(pool)


async def test_there_are_so_many_requests_at_once_and_no_more(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(pools, "CONNECTIONS_MAX", 2)
    async with serving(kept(SIZED)) as server, pooled(server) as pool:
        first, second = [await pool.request(REQUEST) for _ in range(2)]
        with trio.move_on_after(1) as limit:
            await pool.request(REQUEST)
        assert limit.cancelled_caught
        second.close()
        second.close()
        assert await ask(pool) == ABCDE
        first.close()
        # A failed request gives its place back, too.
    async with serving(closed) as server, pooled(server) as pool:
        for _ in range(5):
            with pytest.raises(Broken):
                await ask(pool)
