"""`search`: finds sessions by their text."""

import time
from argparse import Namespace
from collections.abc import Iterator

from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import complain, print_json, say, stdout_theme, stdout_width
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import sanitized
from tiller_client.verbs.sessions import table_line
from tiller_protocol.sessions import (
    SEARCH_LIMIT_MAX,
    FoundSession,
    FoundText,
    SessionSearch,
    SessionSearchResult,
)
from tiller_protocol.snapshot import plain

STATUS_NOT_FOUND = 1
"""The exit status if nothing matches, as for grep."""


def run(arguments: Namespace) -> int:
    """Search, and print each matching session with its matching texts."""
    workspace = None if arguments.all else read_workspace(arguments.directory)
    query = query_of(arguments.query)
    theme, width, now = stdout_theme(), stdout_width(), time.time()
    shown = 0
    with connect("tiller search") as connection:
        op = SessionSearch(query, workspace, arguments.archived)
        for found in _found(connection, op, arguments.limit):
            shown += 1
            if arguments.json:
                print_json(found)
                continue
            say(table_line(found.session, now, theme, width))
            for text in found.texts:
                say(f"    {text_line(text, theme)}")
    if not shown and not arguments.json:
        say(
            "nothing found; `word*` also finds longer words"
            if arguments.all
            else "nothing found here; `word*` also finds longer words, --all searches everywhere"
        )
    return 0 if shown else STATUS_NOT_FOUND


def query_of(words: list[str]) -> str:
    """Return words as a query. A word with blanks was quoted in the shell, so it is a phrase."""
    return " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)


def text_line(text: FoundText, theme: Theme) -> str:
    """Return a text's kind and its excerpt, with coloured matches."""
    shown = "\0".join(text.pieces)  # every second piece matches; marks may be in others
    shown = plain(shown) if text.kind == "answer" else shown
    pieces = (
        theme.asking(sanitized(piece)) if place % 2 else sanitized(piece)
        for place, piece in enumerate(shown.split("\0"))
    )
    return f"{theme.dim(f'{text.kind}:')} {''.join(pieces)}"


def _found(connection: DaemonConnection, op: SessionSearch, limit: int) -> Iterator[FoundSession]:
    """Yield up to `limit` sessions; pages are fetched as they are consumed."""
    after: str | None = None
    left = limit
    while left > 0:
        page_limit = min(left, SEARCH_LIMIT_MAX)
        page = connection.ask(
            SessionSearch(op.query, op.workspace, op.archived, page_limit, after),
            SessionSearchResult,
        )
        if after is None and page.not_indexed:
            complain(f"sessions not indexed yet: {page.not_indexed}; search again in a while")
        yield from page.found
        left -= len(page.found)
        after = page.next
        if after is None:
            return
