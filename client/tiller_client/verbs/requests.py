"""`requests` and `answer`: open requests, and the user's answers."""

from argparse import Namespace

import msgspec

from tiller_client.command_line import choose
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import my_places
from tiller_client.console import print_json, say, stdout_paint, stdout_width
from tiller_client.rendering.requests import request_block
from tiller_client.verbs.submitting import submit
from tiller_protocol.items import Request
from tiller_protocol.ops import Answer


class OpenRequest(msgspec.Struct, frozen=True):
    """An open request with its session, as `requests --json` prints it."""

    session_id: str
    request: Request


def run(arguments: Namespace) -> int:
    """Run `requests` or `answer`."""
    with DaemonConnection(my_places(), f"tiller {arguments.verb}") as connection:
        if arguments.verb == "requests":
            _list(connection, arguments)
        else:
            request_id = choose.request_id(connection, arguments.request)
            op = Answer(request_id, arguments.decision, arguments.text)
            submit(connection, op, json=arguments.json)
    return 0


def _list(connection: DaemonConnection, arguments: Namespace) -> None:
    if arguments.session:
        session = choose.session(connection, arguments.session)
        found = [(session.session_id, request) for request in session.requests]
    else:
        found = choose.open_requests(connection)
    open_requests = [OpenRequest(session_id, request) for session_id, request in found]
    paint, width = stdout_paint(), stdout_width()
    for one in open_requests:
        if arguments.json:
            print_json(one)
        else:
            say(f"{one.request.id}  {paint.dim(f'session {one.session_id}')}")
            say(request_block(one.request, paint, width))
    if not open_requests and not arguments.json:
        say("there are no open requests")
