"""The tool `sourcegraph`: searches the code of many repositories, on a configured server.

Without a server there is no such tool. `sourcegraph_stream` reads the results, and `page` makes the
request. The key comes from the caller.
"""

from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final, Protocol
from urllib.parse import urlencode

from msgspec import Meta, Struct

from tiller_daemon.redaction.byte_stream import SECRET_PLACEHOLDER
from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolFailure, ToolResult
from tiller_daemon.tools.truncation import truncate
from tiller_daemon.tools.web.address import WebAddress, any_address, parse_address
from tiller_daemon.tools.web.fetch import PERMISSION
from tiller_daemon.tools.web.page import Page, get_stream
from tiller_daemon.tools.web.sourcegraph_stream import MATCHES_MAX, read_stream

PATH: Final = "/.api/search/stream"

SEARCH_S_MAX: Final = 30.0
"""How long the server may search; the results so far are shown then."""

TIMEOUT_S: Final = 120.0
"""Includes getting a key from a command that may ask a person."""

REASON_CHARS_MAX: Final = 1_000
"""How much of an error message of the server the model gets."""

EVENT_STREAM: Final = "text/event-stream"


class Access(Protocol):
    """The key for the server."""

    async def read(self) -> str:
        """Return the key; empty if none is needed. Raises `ToolFailure`."""
        ...

    async def renew(self, refused: str) -> bool:
        """Get the key again after the server refused one; returns whether it is another."""
        ...

    @property
    def advice(self) -> str:
        """What the user can do if the server refuses the key; a sentence."""
        ...


class SourcegraphArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `sourcegraph`."""

    query: Annotated[
        str,
        Meta(description="Such as `repo:^github\\.com/python/ lang:python /def \\w+_task/`"),
    ]


def make_sourcegraph(endpoint: str, access: Access) -> Tool:
    """Return the tool for the server at `endpoint`."""
    return Tool(
        name="sourcegraph",
        description=(
            "Search the code of many repositories on the user's Sourcegraph. The query uses its "
            "language: words, `/regular expressions/`, and filters such as `repo:`, `file:`, "
            "`lang:`, `type:symbol|path|commit|diff`, `count:`. Shows the repository and path of "
            "each file, and the matching lines with their numbers."
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
        raise ToolFailure("The query contains a key, so it is not sent.")
    key = await access.read()
    page = await _ask(address, key, environment)
    if page.status == HTTPStatus.UNAUTHORIZED and await access.renew(key):
        key = await access.read()
        page = await _ask(address, key, environment)
    try:
        output = truncate(_results(page, access))
    except ToolFailure as failure:
        raise ToolFailure(_without(key, str(failure))) from None
    return ToolResult(_without(key, output), title=arguments.query)


async def _ask(address: WebAddress, key: str, environment: ToolEnvironment) -> Page:
    headers = [("Accept", EVENT_STREAM), ("User-Agent", "tiller")]
    headers += [("Authorization", f"token {key}")] if key else []
    return await get_stream(address, environment.web.proxies, any_address, headers, SEARCH_S_MAX)


def _address(endpoint: str, query: str) -> WebAddress:
    parameters = urlencode({"q": query, "v": "V3", "display": MATCHES_MAX})
    return parse_address(f"{endpoint.rstrip('/')}{PATH}?{parameters}")


def _results(page: Page, access: Access) -> str:
    """Return the results as text. Raises `ToolFailure` if the server gave none."""
    server = page.address.authority
    reason = page.body.decode(errors="replace").strip()[:REASON_CHARS_MAX]
    if page.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ToolFailure(f"{server} does not accept the key. {access.advice} It says: {reason}")
    if page.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise ToolFailure(f"{server} accepts no more searches for now. It says: {reason}")
    if page.status != HTTPStatus.OK:
        raise ToolFailure(f"{server} answers {page.status}. It says: {reason}")
    kind = page.kind.partition(";")[0].strip().lower()
    if kind != EVENT_STREAM:
        raise ToolFailure(
            f"{server} answers with {kind or 'unknown data'} instead of results: it is not a "
            "Sourcegraph server, or it needs a key. The user can check `sourcegraph.endpoint` in "
            "the configuration."
        )
    return read_stream(page.body, whole=page.whole)


def _without(key: str, text: str) -> str:
    return text.replace(key, SECRET_PLACEHOLDER) if key else text
