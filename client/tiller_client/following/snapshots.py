"""A session as it is now, and its events so far.

A snapshot that is too large for one answer is folded from the events instead.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tiller_client.errors import RejectedError
from tiller_protocol.answers import ReplayResult, SessionResult
from tiller_protocol.events import Event, SessionCreated
from tiller_protocol.ops import Replay, SessionGet
from tiller_protocol.snapshot import Snapshot, fork_base, is_working

Ask = Callable[[Any, type[Any]], Any]
"""Submits an op and returns its result of the given type, like `DaemonConnection.ask`."""


def read_snapshot(ask: Ask, session_id: str) -> Snapshot:
    """Return a session's snapshot, whatever its size; raises the same errors as `ask`."""
    try:
        return ask(SessionGet(session_id), SessionResult).snapshot
    except RejectedError as error:
        if error.code != "too_large":
            raise
    return _folded(ask, session_id)


def why_cut_off(ask: Ask, snapshot: Snapshot) -> str:
    """Return why the end of the open turn is not stored; empty unless the turn was cut off."""
    if snapshot.turn is None or is_working(snapshot):
        return ""
    try:
        ask(Replay(snapshot.session_id, snapshot.seq, limit=1), ReplayResult)
    except RejectedError as error:
        if error.is_cut_off:
            return str(error)
        raise
    return ""


def read_events(ask: Ask, session_id: str, after: int = 0) -> Iterator[Event]:
    """Yield the events after number `after`, up to the end of the log."""
    while True:
        page = ask(Replay(session_id, after), ReplayResult)
        yield from page.events
        if not after < page.upto < page.head:
            return
        after = page.upto


def _folded(ask: Ask, session_id: str, upto: int | None = None) -> Snapshot:
    """Fold a session's events up to number `upto`, or all; a fork begins with the shared events."""
    from tiller_protocol.fold import fold_replayed

    snapshot = Snapshot(session_id)
    for event in read_events(ask, session_id):
        body = event.body
        if isinstance(body, SessionCreated) and body.parent_id is not None:
            snapshot = fork_base(_folded(ask, body.parent_id, body.parent_seq), session_id)
        if upto is not None and event.seq > upto:
            break
        fold_replayed(snapshot, event)
    return snapshot
