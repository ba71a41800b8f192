"""Submits ops for verbs that print little more than the answer."""

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.console import print_json, tell
from tiller_protocol.answers import Accepted
from tiller_protocol.ops import AnyOp


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
