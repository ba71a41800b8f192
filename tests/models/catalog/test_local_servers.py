"""Local servers are found by asking, quickly, and nothing else that listens is mistaken for one."""

from functools import partial

import trio

from support.each import each
from support.http_server import Answer, raw, serving, status, wait_closed
from tiller_daemon.models.catalog.local_servers import PROBE_S, LocalServer, list_local_servers

listing = partial(serving, lists=False)


async def silent(stream: trio.abc.Stream) -> None:
    await wait_closed(stream)


MODELS = {"object": "list", "data": [{"id": "qwen"}, {"id": "llama"}]}


async def test_servers_are_listed_in_their_order_and_absent_ones_left_out() -> None:
    async with listing(status(200, MODELS)) as one, listing(status(200, MODELS)) as two:
        places = (("a", two.base_url), ("gone", "http://127.0.0.1:1/v1"), ("b", one.base_url))
        assert await list_local_servers(places) == (
            LocalServer("a", two.base_url, ("qwen", "llama")),
            LocalServer("b", one.base_url, ("qwen", "llama")),
        )
        assert one.received[0].path == "/v1/models"


@each(
    "answer",
    [
        status(200, b"<html>a router's page</html>"),
        status(200, b"[" * 100_000),
        status(200, {"data": []}),
        status(200, {"data": None}),
        status(200, {"data": [{"name": "odd"}]}),
        status(401, MODELS),
        raw(b"SSH-2.0-OpenSSH\r\n"),
        silent,
    ],
)
async def test_what_is_no_model_server_is_left_out(answer: Answer) -> None:
    started = trio.current_time()
    async with listing(answer) as server:
        assert await list_local_servers((("a", server.base_url),)) == ()
    assert trio.current_time() - started < PROBE_S + 5
