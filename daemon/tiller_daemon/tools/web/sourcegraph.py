"""The tool `sourcegraph`: code of many repositories, through a server of the configuration.

Made only when there is one. What its stream says is read in `sourcegraph_stream`, and got by
`fetch_http`, which is imported with the first search. The key comes from the caller.
"""

import importlib
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Final, Protocol
from urllib.parse import urlencode

import trio
from msgspec import Meta, Struct

from tiller_daemon.redaction.byte_stream import SECRET_PLACEHOLDER
from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolFailure, ToolResult
from tiller_daemon.tools.output import cut_text
from tiller_daemon.tools.web.address import WebAddress, is_any, parse_address
from tiller_daemon.tools.web.fetch import PERMISSION
from tiller_daemon.tools.web.sourcegraph_stream import MATCHES_MAX, read_stream

if TYPE_CHECKING:
    from tiller_daemon.tools.web.page import Page

PATH: Final = "/.api/search/stream"

SEARCH_S_MAX: Final = 30.0
"""How long the server may search; what it has said until then is shown."""

TIMEOUT_S: Final = 120.0
"""A key may have to be got first, from a command that asks a person."""

SAID_CHARS_MAX: Final = 1_000
"""How much of a refusal the model is shown."""

EVENT_STREAM: Final = "text/event-stream"


class Access(Protocol):
    """The key for the server."""

    async def read(self) -> str:
        """The key, empty if none is needed; raises `ToolFailure`."""
        ...

    async def renew(self, refused: str) -> bool:
        """Get the key again after `refused` was not accepted; returns whether there is another."""
        ...

    @property
    def advice(self) -> str:
        """A sentence for the user when the server does not accept it."""
        ...


class SourcegraphArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says."""

    query: Annotated[
        str,
        Meta(description="Such as `repo:^github\\.com/python/ lang:python /def \\w+_task/`"),
    ]


def make_sourcegraph(endpoint: str, access: Access) -> Tool:
    """Return the tool for the server at `endpoint`."""
    return Tool(
        name="sourcegraph",
        description=(
            "Search the code of many repositories on the user's Sourcegraph. The query is in its "
            "language: words, `/regular expressions/`, and filters such as `repo:`, `file:`, "
            "`lang:`, `type:symbol|path|commit|diff`, `count:`. Shows repository and path of each "
            "file, and the matching lines with their numbers."
        ),
        arguments=SourcegraphArguments,
        effect="read",
        timeout_s=TIMEOUT_S,
        requirements=partial(_requirements, endpoint),
        run=partial(_run, endpoint, access),
    )


def _requirements(
    endpoint: str,
    arguments: SourcegraphArguments,
    workspace: Path,  # noqa: ARG001
) -> tuple[Requirement, ...]:
    server = parse_address(endpoint).authority
    title = f"Search on {server}"
    return (Requirement(PERMISSION, (server,), (server,), title=title, detail=arguments.query),)


async def _run(
    endpoint: str, access: Access, arguments: SourcegraphArguments, environment: ToolEnvironment
) -> ToolResult:
    address = _address(endpoint, arguments.query)
    if any(secret in arguments.query for secret in environment.secrets):
        raise ToolFailure("The query holds a key and is not sent.")
    http = await trio.to_thread.run_sync(_load)
    key = await access.read()
    page = await _ask(http, address, key, environment)
    if page.status == HTTPStatus.UNAUTHORIZED and await access.renew(key):
        key = await access.read()
        page = await _ask(http, address, key, environment)
    try:
        output = cut_text(_said(page, access))
    except ToolFailure as failure:
        raise ToolFailure(_without(key, str(failure))) from None
    return ToolResult(_without(key, output), title=arguments.query)


async def _ask(
    http: ModuleType, address: WebAddress, key: str, environment: ToolEnvironment
) -> "Page":
    headers = [("Accept", EVENT_STREAM), ("User-Agent", "tiller")]
    headers += [("Authorization", f"token {key}")] if key else []
    return await http.get_stream(address, environment.proxies, is_any, headers, SEARCH_S_MAX)


def _load() -> ModuleType:
    """Import what asks: some 100 ms, so not on the loop."""
    return importlib.import_module("tiller_daemon.tools.web.page")


def _address(endpoint: str, query: str) -> WebAddress:
    asked = urlencode({"q": query, "v": "V3", "display": MATCHES_MAX})
    return parse_address(f"{endpoint.rstrip('/')}{PATH}?{asked}")


def _said(page: "Page", access: Access) -> str:
    """What the server answers, as text; raises `ToolFailure` when that is no answer."""
    server = page.address.authority
    said = page.body.decode(errors="replace").strip()[:SAID_CHARS_MAX]
    if page.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ToolFailure(f"{server} does not accept the key. {access.advice} It says: {said}")
    if page.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise ToolFailure(f"{server} wants no more searches for now. It says: {said}")
    if page.status != HTTPStatus.OK:
        raise ToolFailure(f"{server} answers {page.status}. It says: {said}")
    kind = page.kind.partition(";")[0].strip().lower()
    if kind != EVENT_STREAM:
        named = kind or "something of no stated type"
        raise ToolFailure(
            f"{server} answers {named} and no results: it is no Sourcegraph, or wants a key. "
            "The user can see to `sourcegraph.endpoint` in the configuration."
        )
    return read_stream(page.body, whole=page.whole)


def _without(key: str, text: str) -> str:
    return text.replace(key, SECRET_PLACEHOLDER) if key else text
