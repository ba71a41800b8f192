"""A fresh install without configuration and key finds a model server on this machine."""

import socket
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

from e2e.peers.home import Home
from support.peers import Aimock
from tiller_daemon.models.catalog.local_servers import LOCAL_ENDPOINTS, list_local_servers

pytestmark = pytest.mark.peer


@pytest.fixture
async def listener() -> AsyncGenerator[trio.socket.SocketType]:
    """Yield a socket bound to Ollama's port, which refuses connections until it listens."""
    address = urlsplit(LOCAL_ENDPOINTS[0][1])
    one = trio.socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        await one.bind((address.hostname, address.port))
    except OSError:
        pytest.skip(f"something else has port {address.port}")
    if await list_local_servers():
        pytest.skip("a model server runs on this machine")
    yield one
    one.close()


async def test_without_any_model_three_ways_to_get_one_are_named_and_the_second_works(
    listener: trio.socket.SocketType, new_home: Callable[..., Home], aimock: Aimock, workspace: Path
) -> None:
    home = new_home()
    exec_ = partial(home.tiller, "exec", "-C", str(workspace), "hello")
    said = await trio.to_thread.run_sync(exec_)
    assert (said.status, said.out) == (1, "")
    (sentence,) = said.err.splitlines()
    for way in ("(1)", "OPENAI_API_KEY", "(2)", str(home.places.config), "(3)", "tiller demo"):
        assert way in sentence
    assert home.tiller("ls").out.startswith("no sessions")

    aimock.answer({"userMessage": "hello"}, {"content": "Found."})
    listener.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            trio.serve_listeners, partial(_hand_on, aimock.url), [trio.SocketListener(listener)]
        )
        assert (await trio.to_thread.run_sync(exec_)).out == "Found.\n"
        models = await trio.to_thread.run_sync(home.tiller, "models")
        nursery.cancel_scope.cancel()
    assert models.out.startswith("ollama/")


async def _hand_on(url: str, client: trio.SocketStream) -> None:
    """Forward a connection to the server at `url` until either side has ended."""
    address = urlsplit(url)
    server = await trio.open_tcp_stream(address.hostname or "", address.port or 0)
    async with client, server, trio.open_nursery() as nursery:
        nursery.start_soon(_pump, client, server)
        await _pump(server, client)
        nursery.cancel_scope.cancel()


async def _pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    async for piece in source:
        await sink.send_all(piece)
