"""The tool `sourcegraph`: searches the code of many repositories, on a configured server.

Without a server there is no such tool. `sourcegraph_stream` reads the results, and `page` makes the
request. The key comes from the caller.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

from msgspec import Meta, Struct

from tiller_daemon.tools.base import (
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolPermission,
    ToolResult,
)
from tiller_daemon.tools.truncation import truncate
from tiller_daemon.tools.web.address import WebAddress, parse_address
from tiller_daemon.tools.web.fetch import PERMISSION
from tiller_daemon.tools.web.keyed_server import Access, Headers, KeyedServer
from tiller_daemon.tools.web.page import Page
from tiller_daemon.tools.web.sourcegraph_stream import MATCHES_MAX, read_stream

PATH: Final = "/.api/search/stream"

TIMEOUT_S: Final = 120.0
"""Includes getting a key from a command that may ask a person."""

EVENT_STREAM: Final = "text/event-stream"


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
        permission=ToolPermission(PERMISSION),
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
    server = KeyedServer(access, _headers)
    address = _address(endpoint, arguments.query)
    found = await server.search(address, arguments.query, environment, _results)
    return ToolResult(found, title=arguments.query)


def _headers(key: str) -> Headers:
    accept = ("Accept", EVENT_STREAM)
    return (accept, ("Authorization", f"token {key}")) if key else (accept,)


def _address(endpoint: str, query: str) -> WebAddress:
    parameters = urlencode({"q": query, "v": "V3", "display": MATCHES_MAX})
    return parse_address(f"{endpoint.rstrip('/')}{PATH}?{parameters}")


def _results(page: Page) -> str:
    """Return the results as text. Raises `ToolFailure` if the server gave none."""
    if page.media_type != EVENT_STREAM:
        raise ToolFailure(
            f"{page.address.authority} answers with {page.media_type or 'unknown data'} instead of "
            "results: it is not a Sourcegraph server, or it needs a key. The user can check "
            "`sourcegraph.endpoint` in the configuration."
        )
    return truncate(read_stream(page.body, whole=page.whole))
