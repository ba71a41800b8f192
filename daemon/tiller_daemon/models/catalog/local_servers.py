"""Finds model servers on this machine, for users who have configured no provider.

The search only sends `GET /models` to the default ports of common servers on the loopback address.
"""

from contextlib import suppress

import trio
from msgspec import Struct

from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.client import HttpClient

PROBE_S = 0.5
"""Limit for each port; an idle local server answers within milliseconds."""

LOCAL_ENDPOINTS = (
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("llamacpp", "http://127.0.0.1:8080/v1"),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
    ("vllm", "http://127.0.0.1:8000/v1"),
)
"""The name and the default base URL of each server."""


class _Model(Struct, frozen=True):
    id: str


class _Listing(Struct, frozen=True):
    """The response to `GET /models`, validated because other programs use these ports too."""

    data: tuple[_Model, ...]


class LocalServer(Struct, frozen=True):
    """A running server with the API `openai_chat`, and the names of its models."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def list_local_servers(
    places: tuple[tuple[str, str], ...] = LOCAL_ENDPOINTS,
) -> tuple[LocalServer, ...]:
    """Return the servers that answer and have models, in the order of `places`.

    All places are tried at the same time. Takes at most `PROBE_S` seconds and never raises.
    """
    found: dict[str, LocalServer] = {}

    async def ask(name: str, base_url: str) -> None:
        # No proxy: for a proxy, the loopback address is the proxy's own machine.
        http = HttpClient(name, Provider("openai_chat", base_url=base_url, proxy=""))
        with trio.move_on_after(PROBE_S), suppress(ModelError):
            listing = await http.get("/models", _Listing)
            if listing.data:
                found[name] = LocalServer(name, base_url, tuple(one.id for one in listing.data))
        await http.aclose()

    async with trio.open_nursery() as nursery:
        for name, base_url in places:
            nursery.start_soon(ask, name, base_url)
    return tuple(found[name] for name, _ in places if name in found)
