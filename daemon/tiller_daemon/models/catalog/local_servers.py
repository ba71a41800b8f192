"""Model servers on this machine, for a daemon whose user has configured none.

Only asks the well-known ports of the usual local servers; nothing beyond the loopback address is
ever asked, and nothing is sent but the question for the list of models.
"""

from contextlib import suppress

import trio
from msgspec import Struct

from tiller_daemon.config import Provider
from tiller_daemon.models.base import ModelError
from tiller_daemon.models.http.client import HttpClient

PROBE_S = 0.5
"""How long each port may take: a local server that is idle answers in milliseconds."""

LOCAL_ENDPOINTS = (
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("llamacpp", "http://127.0.0.1:8080/v1"),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
)
"""Name and base URL of each server with its default port."""


class _Model(Struct, frozen=True):
    id: str


class _Listing(Struct, frozen=True):
    """The answer to `GET /v1/models`; other programs listen on these ports too."""

    data: tuple[_Model, ...]


class LocalServer(Struct, frozen=True):
    """A server that speaks `openai_chat`, and the names of its models as it gives them."""

    name: str
    base_url: str
    models: tuple[str, ...]


async def list_local_servers(
    places: tuple[tuple[str, str], ...] = LOCAL_ENDPOINTS,
) -> tuple[LocalServer, ...]:
    """Ask all places at once which models they have; those that do not answer are left out.

    Takes `PROBE_S` at most, never raises, and gives the servers in the order of `places`.
    """
    found: dict[str, LocalServer] = {}

    async def ask(name: str, base_url: str) -> None:
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
