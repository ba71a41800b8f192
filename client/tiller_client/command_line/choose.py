"""Finds the session, request or turn that a word on the command line refers to."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import chosen_remote
from tiller_client.console import complain
from tiller_client.errors import UsageError
from tiller_client.program_name import program
from tiller_client.rendering.text import SHORT_ID_CHARS, cut, one_line
from tiller_protocol.answers import SessionListResult
from tiller_protocol.ids import ULID_CHARS
from tiller_protocol.items import QueuedInput, Request
from tiller_protocol.sessions import LIST_LIMIT_MAX, SessionList
from tiller_protocol.snapshot import SessionSummary, Snapshot

PIECE_CHARS_MIN = 4
"""Fewer characters of an id would soon match several sessions."""

LAST = "last"
SHOWN_MAX = 4

SUGGESTED_MAX = 2
LIKENESS_MIN = 0.75
"""One character in four may be wrong."""

TITLE_COLUMNS = 40
"""How much is shown of a title that only helps to recognise a session."""


def list_sessions(
    connection: DaemonConnection,
    workspace: str | None = None,
    *,
    archived: bool = False,
    owner_id: str | None = None,
    sub_agents: bool = False,
    limit: int | None = None,
) -> Iterator[SessionSummary]:
    """Yield sessions, most recently active first; pages are fetched as they are consumed.

    Sub-agents' sessions are left out, unless `owner_id` selects those of one session or
    `sub_agents` includes all.
    """
    after: str | None = None
    left = limit
    while left is None or left > 0:
        page_limit = LIST_LIMIT_MAX if left is None else min(left, LIST_LIMIT_MAX)
        op = SessionList(workspace, archived, page_limit, after, owner_id, sub_agents)
        page = connection.ask(op, SessionListResult)
        if after is None:
            for problem in page.problems:
                complain(problem)
        yield from page.sessions
        left = None if left is None else left - len(page.sessions)
        after = page.next
        if after is None:
            return


def session_id(
    connection: DaemonConnection,
    reference: str,
    directory: str = ".",
    *,
    changes: bool = False,
    archived: bool = False,
) -> str:
    """The session id that `reference` means, as for `session`."""
    if len(reference) == ULID_CHARS:
        return reference.upper()
    found = session(connection, reference, directory, changes=changes, archived=archived)
    return found.session_id


def session(
    connection: DaemonConnection,
    reference: str,
    directory: str = ".",
    *,
    changes: bool = False,
    archived: bool = False,
) -> SessionSummary:
    """The session that `reference` means, archived ones included.

    `reference` is `last` in a `directory` (see `_last`), an id, a unique piece of one with at
    least `PIECE_CHARS_MIN` characters, or else the name of a worktree, which means the most
    recently active session there. Raises `UsageError` if none or several match.
    """
    if reference == LAST:
        return _last(connection, directory, changes=changes, archived=archived)
    known = {s.session_id: s for s in _all_sessions(connection)}
    is_piece = len(reference) >= PIECE_CHARS_MIN and any(matches(one, reference) for one in known)
    if not is_piece and (found := _in_worktree(known.values(), reference)):
        return found
    require_length(reference)
    return known[_unique(list(known), reference, "session", f"{program()} ls --all")]


def _in_worktree(sessions: Iterable[SessionSummary], name: str) -> SessionSummary | None:
    """The first of the sessions in a worktree; `UsageError` if several repositories have such."""
    found = [one for one in sessions if one.worktree == name and one.owner_id is None]
    latest = list({one.checkout or one.workspace: one for one in reversed(found)}.values())
    if len(latest) > 1:
        names = ", ".join(map(session_name, latest[:SHOWN_MAX]))
        raise UsageError(f"{one_line(name)!r} names several worktrees; give an id: {names}")
    return latest[0] if latest else None


def require_length(reference: str) -> None:
    """Raise `UsageError` if a piece of a session's id is too short."""
    if len(reference) < PIECE_CHARS_MIN:
        raise UsageError(
            f"{one_line(reference)!r} is too short to name a session: give at least "
            f"{PIECE_CHARS_MIN} characters of its id, or the word {LAST}"
        )


def session_ids(connection: DaemonConnection) -> list[str]:
    """The ids of all sessions, archived ones and sub-agents' included."""
    return [one.session_id for one in _all_sessions(connection)]


def request_ids(connection: DaemonConnection) -> list[str]:
    """The ids of the open requests."""
    return [request.id for _, request in open_requests(connection)]


def latest(connection: DaemonConnection) -> list[SessionSummary]:
    """The most recently active session, if there is one."""
    return list(list_sessions(connection, limit=1))


def open_request(
    connection: DaemonConnection, reference: str
) -> tuple[str, SessionSummary | None, Request | None]:
    """The id of the request that `reference` means: an id, a piece of one, or its session's name.

    The session and the request are returned too, unless `reference` is a whole id and that request
    is not open: the daemon can then report who has answered it.
    """
    known = {request.id: (session, request) for session, request in open_requests(connection)}
    if len(reference) >= ULID_CHARS:
        identifier = reference.upper() if len(reference) == ULID_CHARS else reference
    else:
        try:
            identifier = _unique(list(known), reference, "open request", f"{program()} requests")
        except UsageError:
            identifier = _only_request(connection, reference, known)
            if not identifier:
                raise
    asking, request = known.get(identifier, (None, None))
    return identifier, asking, request


def _only_request(connection: DaemonConnection, reference: str, known: Mapping[str, object]) -> str:
    """The id of the request of a session that has only one; empty if there is no such session.

    Raises `UsageError` if the session asks nothing, or several things.
    """
    try:
        found = session(connection, reference, changes=True)
    except UsageError:
        return ""
    ids = [one.id for one in found.requests if one.id in known]
    if len(ids) == 1:
        return ids[0]
    if not ids:
        raise UsageError(f"{session_name(found)} asks nothing now")
    raise UsageError(
        f"{session_name(found)} has {len(ids)} open requests; give the id of one: {', '.join(ids)}"
    )


def open_requests(connection: DaemonConnection) -> list[tuple[SessionSummary, Request]]:
    """The open requests, oldest first, each with the session that shows it.

    A sub-agent's request is also open in the session that the sub-agent works for, unless the
    sub-agent runs in the background. If a request is open in both, the older session is returned.
    """
    found: dict[str, tuple[SessionSummary, Request]] = {}
    sessions = list_sessions(connection, sub_agents=True)
    # A sub-agent's session is newer than the session that it works for.
    for one in sorted(sessions, key=lambda session: session.created_at):
        for request in one.requests:
            found.setdefault(request.id, (one, request))
    return sorted(found.values(), key=lambda one: one[1].id)  # ULIDs sort by time


def turn_id(turns: Iterable[str], reference: str) -> str:
    """The turn that `reference` means, as for `session`, or its number, as the chat shows it.

    `turns` are in order and may repeat.
    """
    known = list(dict.fromkeys(turns))
    if not known:
        raise UsageError("this session has no turn yet")
    if reference == LAST:
        return known[-1]
    if reference.isdecimal() and 0 < int(reference) <= len(known):
        return known[int(reference) - 1]
    return _unique(known, reference, "turn of this session", f"{program()} log --json")


def session_name(session: SessionSummary | Snapshot) -> str:
    """A session in words: the end of its id, its title, and where it works."""
    title = f" “{cut(one_line(session.title), TITLE_COLUMNS)}”" if session.title else ""
    end = session.session_id[-SHORT_ID_CHARS:]
    return f"session {end}{title} in {one_line(session.workspace)}"


def _last(
    connection: DaemonConnection, directory: str, *, changes: bool, archived: bool
) -> SessionSummary:
    """The most recently active session in `directory`, or in the nearest directory above it.

    If there is none, take the most recently active one of all and tell the user. A verb that
    `changes` something fails instead: `revert last` must not revert another repository.
    """
    here = Path(read_workspace(directory))
    remote = chosen_remote()
    if remote and str(here) == remote.home():  # the default on that machine
        for found in list_sessions(connection, archived=archived, limit=1):
            return found
    for place in (here, *here.parents):
        for found in list_sessions(connection, str(place), archived=archived, limit=1):
            return found
    kind = "archived session" if archived else "session"
    for found in list_sessions(connection, archived=archived, limit=1):
        name = session_name(found)
        if changes:
            raise UsageError(
                f"this directory has no {kind}; the most recently active of all is {name}; "
                f"to use it, give its id: {found.session_id[-SHORT_ID_CHARS:]}"
            )
        complain(f"this directory has no {kind}; taking the most recently active of all, {name}")
        return found
    if archived:
        raise UsageError("no session is archived")
    raise UsageError(f"there is no session yet; start one with: {program()} exec PROMPT")


def input_id(queued: Iterable[QueuedInput], reference: str) -> str:
    """The queued input that `reference` means, as for `session` but without `last`."""
    return _unique(
        [one.id for one in queued], reference, "queued input", f"{program()} queue SESSION"
    )


def _all_sessions(connection: DaemonConnection) -> Iterator[SessionSummary]:
    yield from list_sessions(connection, sub_agents=True)
    yield from list_sessions(connection, archived=True, sub_agents=True)


def matches(identifier: str, reference: str) -> bool:
    """Whether an id begins or ends with a piece, or its short form begins with it."""
    whole, piece = identifier.upper(), reference.upper()
    return whole.endswith(piece) or any(
        text.startswith(piece) for text in (whole, whole[-SHORT_ID_CHARS:])
    )


def _unique(known: list[str], reference: str, kind: str, verb: str) -> str:
    found = [one for one in known if matches(one, reference)]
    if len(found) == 1:
        return found[0]
    if not found:
        similar = " or ".join(_similar(known, reference))
        hint = f"did you mean {similar}? see" if similar else "see"
        raise UsageError(
            f"no {kind} has an id that begins or ends with {one_line(reference)!r}; {hint}: {verb}"
        )
    shown = ", ".join(found[:SHOWN_MAX]) + (" …" if len(found) > SHOWN_MAX else "")
    raise UsageError(f"{one_line(reference)!r} matches {len(found)} {kind}s: {shown}")


def _similar(known: list[str], reference: str) -> list[str]:
    """Ids whose end, as lists show it, is similar to `reference`."""
    import difflib

    ends = {one.upper()[-len(reference) :]: one for one in known}
    close = difflib.get_close_matches(reference.upper(), ends, SUGGESTED_MAX, LIKENESS_MIN)
    return [ends[end][-max(len(reference), SHORT_ID_CHARS) :] for end in close]
