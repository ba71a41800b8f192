"""`chat`: works in a session on a terminal. Everything that draws is in `tiller_client.chat`."""

import asyncio
import gc
import os
import sys
from argparse import Namespace
from contextlib import nullcontext

from tiller_client.chat.terminal.typed_ahead import kept
from tiller_client.command_line import choose
from tiller_client.command_line.choices import read_settings
from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.runtime import chosen_remote, my_places
from tiller_client.errors import UsageError
from tiller_protocol.answers import Created
from tiller_protocol.ops import SessionConfigure, SessionCreate
from tiller_protocol.settings import Settings

NAME = "tiller chat"

PLAIN_ITEMS = 10
"""Last items of a session that `--plain` begins with."""

DUMB = ("", "dumb", "unknown")
"""Terminals in which nothing can be redrawn."""


def run(arguments: Namespace) -> int:
    """Chat until the user leaves."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("tiller chat needs a terminal; for scripts there is: tiller exec PROMPT")
    if arguments.plain or os.environ.get("TERM", "") in DUMB:
        with DaemonConnection(my_places(), NAME) as connection:
            return _plain(connection, _session(connection, arguments))
    # ssh may ask for something on the terminal first, which must be seen.
    keeping = nullcontext(b"") if chosen_remote() else kept(sys.stdin.fileno())
    with keeping as typed:
        with DaemonConnection(my_places(), NAME) as connection:
            session_id = _session(connection, arguments)
        gc.disable()  # nothing that is imported is garbage
        from tiller_client.chat.app import run_chat  # takes long to import

        gc.freeze()
        gc.enable()
        return asyncio.run(run_chat(session_id, typed))


def _session(connection: DaemonConnection, arguments: Namespace) -> str:
    """The session to open: the one that is named, the last one of the directory, or a new one."""
    settings = read_settings(arguments)
    if not arguments.session and not arguments.goes_on:
        workspace = read_workspace(arguments.directory)
        return connection.ask(SessionCreate(workspace, settings=settings), Created).session_id
    reference = arguments.session or choose.LAST
    session_id = choose.session_id(connection, reference, arguments.directory, changes=True)
    if settings != Settings():
        connection.submit(SessionConfigure(session_id, settings))
    return session_id


def _plain(connection: DaemonConnection, session_id: str) -> int:
    """Show the last items of the session, and go on line by line."""
    from tiller_client.chat.plain import run_plain
    from tiller_client.verbs.follow import before_last_items

    session = choose.session(connection, session_id)
    return run_plain(connection, session, before_last_items(connection, session, PLAIN_ITEMS))
