"""A session as it is now. What is too large for one answer is folded from its events instead."""

from collections.abc import Callable
from typing import Any

from tiller_client.errors import RejectedError
from tiller_protocol.answers import ReplayResult, SessionResult
from tiller_protocol.events import SessionCreated
from tiller_protocol.ops import Replay, SessionGet
from tiller_protocol.snapshot import Snapshot, fork_base

Ask = Callable[[Any, type[Any]], Any]
"""Submits an op and returns its result of that type, as `DaemonConnection.ask`."""


def read_snapshot(ask: Ask, session_id: str) -> Snapshot:
    """Return a session's snapshot, whatever its size; raises as `ask`."""
    try:
        return ask(SessionGet(session_id), SessionResult).snapshot
    except RejectedError as error:
        if error.code != "too_large":
            raise
    return _folded(ask, session_id)


def _folded(ask: Ask, session_id: str, upto: int | None = None) -> Snapshot:
    """Fold a session's events, all or up to number `upto`, on top of what a fork shares."""
    from tiller_protocol.fold import fold

    snapshot, after, head = Snapshot(session_id), 0, 1
    while after < head:
        page = ask(Replay(session_id, after), ReplayResult)
        after, head = page.upto, page.head
        for event in page.events:
            body = event.body
            if isinstance(body, SessionCreated) and body.parent_id is not None:
                snapshot = fork_base(_folded(ask, body.parent_id, body.parent_seq), session_id)
            if upto is not None and event.seq > upto:
                return snapshot
            # A replay leaves out deltas of items that have completed since.
            snapshot.seq = event.seq - 1
            fold(snapshot, event)
    return snapshot
