"""Converts the event stream of a Sourcegraph search to text for a model. Pure.

Events have a name and one line of JSON: `matches`, `progress`, `alert`, `error`, `done`, and others
that are not needed here. Unknown fields and kinds of matches are ignored.
Format: https://sourcegraph.com/docs/api/stream_api
"""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from tiller_daemon.tools.base import ToolFailure

MATCHES_MAX: Final = 100
"""How many matches the server is asked for."""

LINES_SHOWN_MAX: Final = 200
LINE_CHARS_MAX: Final = 400
"""A longer line is cut: one match in minified code must not fill the context window."""

MESSAGE_CHARS_MAX: Final = 200
ID_CHARS: Final = 7
"""How much of a commit id is shown, as in git."""


class _Camel(Struct, frozen=True, rename="camel"):
    pass


class _LineMatch(_Camel, frozen=True):
    line: str = ""
    line_number: int = 0


class _Start(_Camel, frozen=True):
    line: int = 0


class _ChunkMatch(_Camel, frozen=True):
    content: str = ""
    content_start: _Start = _Start()


class _Symbol(_Camel, frozen=True):
    name: str = ""
    container_name: str = ""
    kind: str = ""
    line: int = 0


class _Match(_Camel, frozen=True):
    """A match of any type; each type has only some of the fields."""

    type: str = ""
    """`content`, `path`, `symbol`, `repo` or `commit`."""

    repository: str = ""
    """The repository; all types have it."""

    path: str = ""
    """The path, for `content`, `path` and `symbol`."""

    commit: str = ""
    """The revision of the file that was searched."""

    description: str = ""
    """The repository's description, for `repo`."""

    line_matches: tuple[_LineMatch, ...] | None = None
    """The matching lines, for `content`."""

    chunk_matches: tuple[_ChunkMatch, ...] | None = None
    """The passages that contain matches, for `content`."""

    symbols: tuple[_Symbol, ...] | None = None
    """The symbols, for `symbol`."""

    oid: str = ""
    """The commit's id, for `commit`."""

    message: str = ""
    """The commit's message, for `commit`."""

    author_name: str = ""
    """The commit's author, for `commit`."""

    author_date: str = ""
    """When the commit was made, for `commit`."""

    content: str = ""
    """The matching part of the commit's message or diff, for `commit`."""


class _Skipped(_Camel, frozen=True):
    title: str = ""
    message: str = ""


class _Progress(_Camel, frozen=True):
    match_count: int = 0
    skipped: tuple[_Skipped, ...] | None = None


class _ProposedQuery(_Camel, frozen=True):
    query: str = ""


class _Alert(_Camel, frozen=True):
    title: str = ""
    description: str | None = None
    proposed_queries: tuple[_ProposedQuery, ...] | None = None


class _Error(_Camel, frozen=True):
    message: str = ""


_Event = TypeVar("_Event")


def read_stream(data: bytes, *, whole: bool) -> str:
    """Return the matches with notes on the search.

    `whole` is False for a stream that was cut off. Raises `ToolFailure` for data that is no such
    stream, and if the server reports an error and no matches.
    """
    matches: list[_Match] = []
    progress = _Progress()
    notes: list[str] = []
    failure = ""
    done = False
    for name, body in _events(data, whole=whole):
        match name:
            case "matches":
                matches += _decode(body, tuple[_Match, ...])
            case "progress":
                progress = _decode(body, _Progress)
            case "alert":
                notes.append(_of_alert(_decode(body, _Alert)))
            case "error":
                failure = _decode(body, _Error).message or "the server gives no reason"
            case "done":
                done = True
            case _:
                pass
    if failure and not matches:
        raise ToolFailure(f"The search failed: {failure[:LINE_CHARS_MAX]}")
    lines = [line for match in matches for line in _lines(match)]
    shown = [_cut(line) for line in lines[:LINES_SHOWN_MAX]]
    return "\n".join([*shown, *_notes(len(matches), progress, notes, failure, done=done)])


def _events(data: bytes, *, whole: bool) -> Iterator[tuple[str, bytes]]:
    """Yield the name and data of each event; an event that was cut off is left out."""
    *events, last = data.replace(b"\r\n", b"\n").split(b"\n\n")
    if whole:
        events.append(last)
    for event in events:
        name, body = "", b""
        for line in event.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"event":
                name = value.strip().decode(errors="replace")
            elif field == b"data":
                body += value
        if name:
            yield name, body


def _decode(body: bytes, kind: type[_Event]) -> _Event:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ToolFailure(f"The server's answer can't be decoded: {error}") from None


def _lines(match: _Match) -> Iterator[str]:
    """Yield a line with the place of a match, then its matching lines, numbered from 1."""
    where = match.repository + (f"@{match.commit[:ID_CHARS]}" if match.commit else "")
    match match.type:
        case "content" | "path" | "symbol":
            yield f"{where} {match.path}"
            for line_match in match.line_matches or ():
                yield f"{line_match.line_number + 1:>6}\t{line_match.line}"
            for chunk in match.chunk_matches or ():
                numbered = enumerate(chunk.content.split("\n"), chunk.content_start.line + 1)
                yield from (f"{number:>6}\t{line}" for number, line in numbered)
            for symbol in match.symbols or ():
                within = f" in {symbol.container_name}" if symbol.container_name else ""
                yield f"{symbol.line:>6}\t{symbol.kind.lower()} {symbol.name}{within}"
        case "repo":
            yield f"{where}  {match.description}".rstrip()
        case "commit":
            subject = match.message.partition("\n")[0][:MESSAGE_CHARS_MAX]
            by = f"{match.author_name}, {match.author_date}"
            yield f"{match.repository}@{match.oid[:ID_CHARS]} {subject} ({by})"
            yield from (f"\t{line}" for line in match.content.split("\n"))
        case _:
            pass


def _cut(line: str) -> str:
    line = line.rstrip("\r").replace("\n", " ")
    return line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]} [... cut]"


def _notes(
    matches: int, progress: _Progress, notes: list[str], failure: str, *, done: bool
) -> Iterator[str]:
    if not matches and done:
        yield "Nothing matches."
    if matches and progress.match_count > MATCHES_MAX:
        yield f"({MATCHES_MAX} of {progress.match_count} matches. Narrow the query.)"
    if failure:
        yield f"(The search broke off: {failure[:LINE_CHARS_MAX]})"
    elif not done:
        yield "(The search was cut off; there may be more. Narrow the query.)"
    for skipped in progress.skipped or ():
        yield f"(Not searched: {_cut(f'{skipped.title}. {skipped.message}')})"
    yield from (_cut(f"({note})") for note in notes)


def _of_alert(alert: _Alert) -> str:
    text = f"{alert.title}. {alert.description or ''}".strip()
    proposed = [each.query for each in alert.proposed_queries or () if each.query]
    return text + (f" Perhaps: {' | '.join(proposed)}" if proposed else "")
