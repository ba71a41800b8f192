"""Whatever a server sends, however it is cut: a model's request ends as one of a few things."""

from contextlib import suppress
from random import Random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from support.providers import fixed_key
from support.responses import cut, make_response, parse_by_h11
from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.client import HttpClient
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.web.address import any_address, parse_address
from tiller_daemon.tools.web.page import Page, get_page

LIMIT_S = 20.0
KINDS = (b"text/event-stream", b"application/json", b"text/html", b"")


def served(seed: int, cuts: list[int]) -> list[bytes]:
    """The pieces of a response that a model's server might give."""
    random = Random(seed)
    data = make_response(random)
    kind = b"\nContent-Type: " + random.choice(KINDS) + b"\r\n"
    data = data.replace(b"\n", kind, 1) if random.random() < 0.5 else data
    return cut(data, cuts)


async def meet(pieces: list[bytes]) -> tuple[bytes | ModelError, Page | ToolFailure]:
    """What a model's request and a page become of the same response, sent piece by piece."""

    async def handle(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.receive_some()
            for piece in pieces:
                await stream.send_all(piece)
                await trio.lowlevel.checkpoint()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, listeners)
        address = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        with trio.fail_after(LIMIT_S):
            found = await ask(address), await fetch(address)
        nursery.cancel_scope.cancel()
    return found


async def ask(address: str) -> bytes | ModelError:
    http = HttpClient("local", Provider("openai_chat", base_url=address), fixed_key("k"))
    try:
        async with http.stream("/x", b"{}") as chunks:
            return b"".join([chunk async for chunk in chunks])
    except ModelError as error:
        return error
    finally:
        await http.aclose()


async def fetch(address: str) -> Page | ToolFailure:
    try:
        return await get_page(parse_address(address), {}, any_address)
    except ToolFailure as failure:
        return failure


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 200), max_size=4))
def test_any_response_is_an_answer_or_an_error_and_never_anything_else(
    seed: int, cuts: list[int]
) -> None:
    pieces = served(seed, cuts)
    answer, page = trio.run(meet, pieces)
    expected = parse_by_h11(b"".join(pieces))
    if isinstance(answer, bytes):
        assert expected
        assert (expected.status, expected.content) == (200, answer)
    if isinstance(page, Page):
        assert expected
        assert (expected.status, expected.content, True) == (page.status, page.body, page.whole)


@pytest.mark.parametrize("size", [1, 7])
def test_a_response_in_tiny_pieces_is_the_same(size: int) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    data = head + b"b\r\ndata: one\n\n\r\n" * 3 + b"0\r\n\r\n"
    answer, page = trio.run(meet, cut(data, range(0, len(data), size)))
    assert answer == b"data: one\n\n" * 3
    assert isinstance(page, Page)
    assert page.body == answer
