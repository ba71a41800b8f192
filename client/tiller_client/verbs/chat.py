"""`chat`: opens a session on a terminal. All drawing is done in `tiller_client.chat`."""

import gc
import os
import sys
from argparse import Namespace
from contextlib import ExitStack, suppress

from tiller_client.chat.terminal.abilities import follows_background
from tiller_client.chat.terminal.backdrop import Backdrop
from tiller_client.chat.terminal.typed_ahead import kept
from tiller_client.command_line import choose
from tiller_client.command_line.choices import read_settings
from tiller_client.command_line.prompt import read_workspace, read_worktree
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.connecting.runtime import chosen_remote
from tiller_client.errors import RejectedError, TillerError, UsageError
from tiller_client.following.snapshots import read_snapshot
from tiller_client.rendering.text import one_line
from tiller_protocol.answers import Created
from tiller_protocol.ops import SessionConfigure, SessionCreate, SessionDelete, UserInput
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot

NAME = "tiller chat"

PLAIN_ITEMS = 10
"""How many of a session's last items `--plain` shows first."""

DUMB = ("", "dumb", "unknown")
"""Values of `TERM` for terminals on which nothing can be redrawn."""


def run(arguments: Namespace) -> int:
    """Chat until the user leaves."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("tiller chat needs a terminal; in a script, use: tiller exec PROMPT")
    is_new = not (arguments.session or arguments.goes_on or arguments.prompt)
    if arguments.plain or os.environ.get("TERM", "") in DUMB:
        with connect(NAME) as connection:
            session_id = _session(connection, arguments)
            try:
                return _plain(connection, session_id)
            finally:
                if is_new:  # it stays if anything was said
                    with suppress(TillerError), connection.starting_only_crashed():
                        connection.submit(SessionDelete(session_id, if_empty=True))
    with ExitStack() as stack:
        backdrop = Backdrop(sys.stdin.fileno())
        typed = b""
        if not chosen_remote():
            typed = _take_terminal(stack, backdrop)
        with connect(NAME) as connection:
            snapshot = read_snapshot(connection.ask, _session(connection, arguments))
        if chosen_remote():  # only now, because ssh may have prompted the user
            typed = _take_terminal(stack, backdrop)
        backdrop.wait()
        return _on_screen(snapshot, typed + backdrop.typed, backdrop, is_new=is_new)


def _take_terminal(stack: ExitStack, backdrop: Backdrop) -> bytes:
    """Keep the keys typed from now on, and return the earlier ones; ask for the background."""
    typed = stack.enter_context(kept(sys.stdin.fileno()))
    stack.callback(backdrop.wait)
    if follows_background(os.environ):
        backdrop.ask()
    return typed


def _on_screen(snapshot: Snapshot, typed: bytes, backdrop: Backdrop, *, is_new: bool) -> int:
    """Draw the session, then import the rest of the chat and run it."""
    from tiller_client.chat.opening import open_first

    opening = open_first(snapshot, backdrop.kind)
    try:
        gc.disable()  # imports create no garbage
        # Nothing here needs ssl, and asyncio works in a Python without it.
        sys.modules.setdefault("ssl", None)  # type: ignore[arg-type] - documented: None blocks
        import asyncio

        from tiller_client.chat.app import run_chat

        gc.freeze()
        gc.enable()
        return asyncio.run(run_chat(opening, typed, is_new=is_new))
    finally:
        opening.painter.erase()


def _session(connection: DaemonConnection, arguments: Namespace) -> str:
    """Return the id of the session to open, to which the first message has been sent."""
    # What opens a new worktree opens no other session, so one word is a message, too.
    if len(arguments.session.split()) > 1 or (arguments.session and arguments.worktree is not None):
        if arguments.prompt:
            raise UsageError(f"{one_line(arguments.session)!r} is not the id of a session")
        arguments.session, arguments.prompt = "", arguments.session
    session_id = _opened(connection, arguments)
    if arguments.prompt:
        try:
            connection.submit(UserInput(session_id, arguments.prompt))
        except RejectedError:
            if not arguments.session and not arguments.goes_on:
                connection.submit(SessionDelete(session_id))
            raise
    return session_id


def _opened(connection: DaemonConnection, arguments: Namespace) -> str:
    """Return the id of the session to open: a named one, the directory's last, or a new one."""
    settings, worktree = read_settings(arguments), read_worktree(arguments)
    if worktree and (arguments.session or arguments.goes_on):
        raise UsageError("--worktree is for a new session; name no other session")
    if not arguments.session and not arguments.goes_on:
        workspace = read_workspace(arguments.directory)
        op = SessionCreate(workspace, settings=settings, worktree=worktree)
        return connection.ask(op, Created).session_id
    reference = arguments.session or choose.LAST
    session_id = choose.session_id(connection, reference, arguments.directory, changes=True)
    if settings != Settings():
        connection.submit(SessionConfigure(session_id, settings))
    return session_id


def _plain(connection: DaemonConnection, session_id: str) -> int:
    """Show the last items of the session, then chat line by line."""
    from tiller_client.chat.plain import run_plain
    from tiller_client.verbs.follow import before_last_items

    session = choose.session(connection, session_id)
    return run_plain(connection, session, before_last_items(connection, session, PLAIN_ITEMS))
