"""`requests` and `answer`: open requests, and the user's answers."""

import time
from argparse import Namespace
from collections.abc import Sequence

import msgspec

from tiller_client.command_line import choose
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.connecting.hosts import Host
from tiller_client.connecting.runtime import chosen_remote
from tiller_client.console import is_piped, print_json, say, stdout_theme, stdout_width
from tiller_client.errors import UsageError
from tiller_client.following.typed import read_answer
from tiller_client.program_name import program
from tiller_client.rendering.requests import request_block, title_line
from tiller_client.rendering.text import age, cut, one_line
from tiller_client.verbs.all_hosts import (
    Everywhere,
    find_request,
    find_session,
    print_with_host,
    qualified,
    several_hosts,
)
from tiller_client.verbs.submitting import submit
from tiller_protocol.ids import made_at
from tiller_protocol.items import Request
from tiller_protocol.ops import Answer
from tiller_protocol.snapshot import SessionSummary


class OpenRequest(msgspec.Struct, frozen=True):
    """An open request with its session, as `requests --json` prints it."""

    session_id: str
    request: Request


TITLE_COLUMNS = 60
"""Columns for the title of an answered request: enough to recognise the request."""

DONE = {
    "once": "allowed once",
    "always": "allowed for the rest of the session",
    "always_here": "allowed in every session of the workspace",
    "reject": "rejected",
    "answer": "answered",
}
"""The message after each decision; the request's title follows."""


def run(arguments: Namespace) -> int:
    """Run `requests` or `answer`."""
    if arguments.verb == "answer":
        find_request(arguments)
    elif arguments.session:
        find_session(arguments)
    elif hosts := several_hosts(arguments):
        return _list_everywhere(hosts, arguments)
    with connect(f"tiller {arguments.verb}") as connection:
        if arguments.verb == "requests":
            _list(connection, arguments)
        else:
            _answer(connection, arguments)
    return 0


def _answer(connection: DaemonConnection, arguments: Namespace) -> None:
    """Answer a request, and print its title and session."""
    request_id, session, request = choose.open_request(connection, arguments.request)
    title = one_line(title_line(request) if request else "") or request_id
    done = f"{DONE[arguments.decision]}: {cut(title, TITLE_COLUMNS)}"
    text = arguments.text
    if request and arguments.decision == "answer":
        reply = read_answer(request, text)
        if isinstance(reply, str):
            raise UsageError(f"{one_line(text)!r} was not sent: {reply}")
        text = reply.text
        done += f" “{cut(one_line(text), TITLE_COLUMNS)}”"
    if session:
        remote = chosen_remote()
        done += f" ({choose.session_name(session)}{f' on {remote.host}' if remote else ''})"
    op = Answer(request_id, arguments.decision, text)
    if arguments.json and arguments.all:
        print_with_host("", connection.submit(op))
    else:
        submit(connection, op, json=arguments.json, done=done)


def _list(connection: DaemonConnection, arguments: Namespace) -> None:
    if arguments.session:
        session = choose.session(connection, arguments.session)
        found = [(session, request) for request in session.requests]
    else:
        found = choose.open_requests(connection)
    for session, request in found:
        _print("", session, request, arguments)
    if not found and not arguments.json:
        say("there are no open requests")
    elif not arguments.json and not is_piped():
        say(stdout_theme().dim(f"to answer: {program()} answer ID y, a, h, n, or answer TEXT"))


def _list_everywhere(hosts: Sequence[Host], arguments: Namespace) -> int:
    everywhere, is_empty = Everywhere(hosts, arguments), True
    for host, found in everywhere.ask(choose.open_requests):
        for session, request in found:
            _print(host.label, session, request, arguments)
            is_empty = False
    everywhere.report()
    if is_empty and not arguments.json:
        missing = " on the hosts that have answered" if everywhere.failures else ""
        say(f"there are no open requests{missing}")
    return everywhere.status


def _print(label: str, session: SessionSummary, request: Request, arguments: Namespace) -> None:
    shown = OpenRequest(session.session_id, request)
    if arguments.json and arguments.all:
        print_with_host(label, shown)
    elif arguments.json:
        print_json(shown)
    else:
        theme = stdout_theme()
        name = choose.session_name(session)
        opened = made_at(request.id)
        waits = f"{age(time.time() - opened)}  " if opened else ""
        say(f"{qualified(label, request.id)}  {theme.dim(f'{waits}{name}')}")
        say(request_block(request, theme, stdout_width()))
