"""Submitting an op whose answer says little: what is printed for it. No verb of its own."""

from tiller_client.connection import DaemonConnection
from tiller_client.console import print_json, say
from tiller_protocol.answers import Accepted
from tiller_protocol.ops import AnyOp


def submit(connection: DaemonConnection, op: AnyOp, *, json: bool, done: str = "") -> Accepted:
    """Submit `op` and print what it gave: its result, or the ack when it has none, as JSON.

    For people `done` is printed, if given: what is plain from the exit status is not said again.
    """
    accepted = connection.submit(op)
    if json:
        print_json(accepted.result if accepted.result is not None else accepted)
    elif done:
        say(done)
    return accepted
