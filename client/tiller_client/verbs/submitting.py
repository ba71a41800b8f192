"""Submits ops for verbs that print little more than the answer."""

import sys
from contextlib import suppress

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.console import print_json, tell
from tiller_client.errors import TillerError
from tiller_protocol.answers import Accepted
from tiller_protocol.ops import AnyOp
from tiller_protocol.sessions import SessionMarkSeen


def mark_seen(connection: DaemonConnection, session_id: str, until: int) -> None:
    """Say that a user has seen a session up to an event, if stdout is a terminal."""
    if sys.stdout.isatty():
        # Neither an error nor the start of a stopped daemon is worth it.
        with suppress(TillerError), connection.starting_only_crashed():
            connection.submit(SessionMarkSeen(session_id, until))


def submit(connection: DaemonConnection, op: AnyOp, *, json: bool, done: str = "") -> Accepted:
    """Submit `op`. With `json`, print its result, or the whole answer if it has no result.

    Otherwise, print `done` if given; without it, the exit status is enough.
    """
    accepted = connection.submit(op)
    if json:
        print_json(accepted.result if accepted.result is not None else accepted)
    elif done:
        tell(done)
    return accepted
