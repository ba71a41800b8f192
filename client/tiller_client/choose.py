"""Which session or request a word on the command line means."""

from collections.abc import Iterator

from tiller_client.connection import DaemonConnection
from tiller_client.errors import UsageError
from tiller_client.text import one_line
from tiller_protocol.answers import SessionListResult, SessionSummary
from tiller_protocol.ids import ULID_CHARS
from tiller_protocol.ops import LIST_LIMIT_MAX, SessionList

PIECE_CHARS_MIN = 4
"""Fewer characters of an id would soon mean several sessions."""

LAST = "last"
SHOWN_MAX = 4

SUGGESTED_MAX = 2
LIKENESS_MIN = 0.75
"""One character of four may be wrong."""

SHORT_ID_CHARS = 8
"""The end of a ULID is its random part: 40 bits tell sessions apart where the begin does not."""


def list_sessions(
    connection: DaemonConnection,
    *,
    workspace: str | None = None,
    archived: bool = False,
    owner_id: str | None = None,
    sub_agents: bool = False,
    limit: int | None = None,
) -> Iterator[SessionSummary]:
    """Sessions, newest activity first, page by page as they are consumed.

    Those that the user began, or the sub-agents of `owner_id`, or with `sub_agents` all.
    """
    after: str | None = None
    left = limit
    while left is None or left > 0:
        page_limit = LIST_LIMIT_MAX if left is None else min(left, LIST_LIMIT_MAX)
        op = SessionList(workspace, archived, page_limit, after, owner_id, sub_agents)
        page = connection.ask(op, SessionListResult)
        yield from page.sessions
        left = None if left is None else left - len(page.sessions)
        after = page.next
        if after is None:
            return


def session_id(connection: DaemonConnection, reference: str) -> str:
    """The id that `reference` means: an id, `last`, or a piece as for `session`."""
    if len(reference) == ULID_CHARS:
        return reference.upper()
    return session(connection, reference).session_id


def session(connection: DaemonConnection, reference: str) -> SessionSummary:
    """The session that `reference` means; archived ones count too.

    `reference` is `last` (newest activity), an id, or the unique begin or end of one, in at least
    `PIECE_CHARS_MIN` characters. Raises `UsageError` when that is none or several.
    """
    if reference == LAST:
        for newest in list_sessions(connection, limit=1):
            return newest
        raise UsageError("there is no session yet; begin one with: tiller exec PROMPT")
    if len(reference) < PIECE_CHARS_MIN:
        raise UsageError(
            f"{one_line(reference)!r} is too short to name a session: give at least "
            f"{PIECE_CHARS_MIN} characters of its id, or the word {LAST}"
        )
    known = {s.session_id: s for s in _all_sessions(connection)}
    return known[_unique(list(known), reference, "session", "tiller ls --all")]


def request_id(connection: DaemonConnection, reference: str) -> str:
    """The open request that `reference` means, by the same rules but for `last`.

    A whole id is taken as it is, so that the daemon can say who answered it already.
    """
    if len(reference) >= ULID_CHARS:
        return reference.upper() if len(reference) == ULID_CHARS else reference
    known = [r.id for s in list_sessions(connection) for r in s.requests]
    return _unique(known, reference, "open request", "tiller requests")


def turn_id(turns: list[str], reference: str) -> str:
    """The turn of a session that `reference` means, by the same rules; `turns` are in order."""
    if not turns:
        raise UsageError("this session has no turn yet")
    if reference == LAST:
        return turns[-1]
    return _unique(turns, reference, "turn of this session", "tiller log --json")


def _all_sessions(connection: DaemonConnection) -> Iterator[SessionSummary]:
    yield from list_sessions(connection, sub_agents=True)
    yield from list_sessions(connection, archived=True, sub_agents=True)


def _matches(identifier: str, reference: str) -> bool:
    piece = reference.upper()
    return identifier.upper().startswith(piece) or identifier.upper().endswith(piece)


def _unique(known: list[str], reference: str, kind: str, verb: str) -> str:
    matches = [one for one in known if _matches(one, reference)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        similar = " or ".join(_similar(known, reference))
        hint = f"did you mean {similar}? see" if similar else "see"
        raise UsageError(f"no {kind} begins or ends with {one_line(reference)!r}; {hint}: {verb}")
    shown = ", ".join(matches[:SHOWN_MAX]) + (" …" if len(matches) > SHOWN_MAX else "")
    raise UsageError(f"{one_line(reference)!r} means {len(matches)} {kind}s: {shown}")


def _similar(known: list[str], reference: str) -> list[str]:
    """Ids whose end, which is what lists show, differs from `reference` in little."""
    import difflib

    ends = {one.upper()[-len(reference) :]: one for one in known}
    matches = difflib.get_close_matches(reference.upper(), ends, SUGGESTED_MAX, LIKENESS_MIN)
    return [ends[end][-max(len(reference), SHORT_ID_CHARS) :] for end in matches]
