"""The tool `sourcegraph`: searches the code of many repositories, on a configured server.

Without a server there is no such tool. `sourcegraph_stream` reads the results, and `page` makes the
request. The key comes from the caller.
"""

from typing import Annotated, Final

from msgspec import Meta

from tiller_daemon.tools.base import Tool, ToolFailure, ToolPermission
from tiller_daemon.tools.truncation import truncate
from tiller_daemon.tools.web.fetch import PERMISSION
from tiller_daemon.tools.web.keyed_server import TIMEOUT_S, Access, KeyedServer, QueryArguments
from tiller_daemon.tools.web.page import Page
from tiller_daemon.tools.web.sourcegraph_stream import MATCHES_MAX, read_stream

EVENT_STREAM: Final = "text/event-stream"


class SourcegraphArguments(QueryArguments, frozen=True):
    """The arguments of `sourcegraph`."""

    query: Annotated[
        str,
        Meta(description="Such as `repo:^github\\.com/python/ lang:python /def \\w+_task/`"),
    ]


def make_sourcegraph(endpoint: str, access: Access) -> Tool:
    """Return the tool for the server at `endpoint`."""
    server = KeyedServer(
        action="Search",
        endpoint=endpoint,
        path="/.api/search/stream",
        parameters={"v": "V3", "display": str(MATCHES_MAX)},
        media_type=EVENT_STREAM,
        key_scheme="token ",
        access=access,
        read=_results,
    )
    return Tool(
        name="sourcegraph",
        description=(
            "Search the code of many repositories on the user's Sourcegraph. The query is in "
            "Sourcegraph's language: words, `/regular expressions/`, and filters such as `repo:`, "
            "`file:`, `lang:`, `type:symbol|path|commit|diff`, `count:`. Shows the repository and "
            "path of each file, and the matching lines with their numbers."
        ),
        arguments=SourcegraphArguments,
        effect="read",
        timeout_s=TIMEOUT_S,
        requirements=server.requirements,
        permission=ToolPermission(PERMISSION),
        run=server.search,
    )


def _results(page: Page) -> str:
    """Return the results as text. Raises `ToolFailure` if the server gave none."""
    if page.media_type != EVENT_STREAM:
        raise ToolFailure(
            f"{page.address.authority} answers with {page.media_type or 'unknown data'} instead of "
            "results: it is not a Sourcegraph server, or it needs a key. The user can check "
            "`sourcegraph.endpoint` in the configuration."
        )
    return truncate(read_stream(page.body, whole=page.whole))
