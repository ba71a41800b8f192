"""`board` and `ls --watch`: all sessions, live. The board itself is in `tiller_client.board`."""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence

from tiller_client.board.filtering import Filter
from tiller_client.board.opening import Opening
from tiller_client.board.state import BoardState
from tiller_client.chat.terminal.abilities import follows_background
from tiller_client.chat.terminal.backdrop import Backdrop
from tiller_client.chat.terminal.typed_ahead import kept
from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.hosts import configured_hosts
from tiller_client.connecting.pool import ConnectionPool
from tiller_client.connecting.runtime import chosen_remote
from tiller_client.connecting.silence import Silence
from tiller_client.errors import UsageError
from tiller_client.following.overview import FollowedHost, Overview
from tiller_client.program_name import program
from tiller_client.rendering.lines import state_word
from tiller_client.verbs.chat import DUMB
from tiller_protocol.snapshot import SessionSummary

NAME = "tiller board"


def run(arguments: Namespace) -> int:
    """Show the board until the user leaves it, or print it."""
    words = Filter(" ".join(arguments.filter))
    if words.problem:
        raise UsageError(words.problem)
    if arguments.follow and not arguments.json:
        raise UsageError("--follow is for --json; lines for people: tiller ls --watch")
    if not arguments.json:
        _check_terminal()
    wanted = _of_workspace(arguments.directory)
    hosts = followed_hosts()
    if arguments.json:
        from tiller_client.board.plain import follow_json, print_once

        if not arguments.follow:
            return print_once(hosts, wanted, words)
        follow_json(hosts, wanted, words)
    # The current directory is no directory of another machine.
    here = arguments.directory or ("" if chosen_remote() else ".")
    return _on_screen(hosts, wanted, words, here and read_workspace(here))


def run_watch(arguments: Namespace) -> int:
    """Run `ls --watch`: print the sessions, and then each change, until interrupted."""
    from tiller_client.board.plain import follow_json, watch

    if arguments.archived or arguments.of:
        raise UsageError("--watch shows neither archived sessions nor sub-agents")
    of_workspace, states = _of_workspace(arguments.directory), arguments.states

    def wanted(session: SessionSummary) -> bool:
        return of_workspace(session) and (not states or state_word(session) in states)

    limit = None if arguments.all else arguments.limit
    if arguments.json:
        follow_json(followed_hosts(), wanted, Filter())
    else:
        watch(followed_hosts(), wanted, Filter(), limit=limit)
    return 0


def followed_hosts() -> list[FollowedHost]:
    """The hosts whose sessions are shown: this machine and those of the configuration."""
    return [
        FollowedHost(
            host.label,
            ConnectionPool(host.places, NAME),
            ("--host", host.label or host.destination) if host.destination else (),
        )
        for host in configured_hosts()
    ]


def _check_terminal() -> None:
    term = os.environ.get("TERM", "")
    plain = f"{program()} ls --watch"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"tiller board needs a terminal; for lines of text: {plain}")
    if term in DUMB:
        raise UsageError(
            f"tiller board needs a terminal that can redraw its window, and TERM is {term!r}; "
            f"for lines of text: {plain}"
        )


def _of_workspace(directory: str | None) -> Callable[[SessionSummary], bool]:
    if directory is None:
        return lambda _: True
    workspace = read_workspace(directory)
    return lambda session: workspace in (session.workspace, session.checkout)


def _on_screen(
    hosts: Sequence[FollowedHost],
    wanted: Callable[[SessionSummary], bool],
    words: Filter,
    here: str,
) -> int:
    """Draw the board, then import what reads keys and run it."""
    Silence.say = lambda _text: None  # the rows above the list say it
    backdrop = Backdrop(sys.stdin.fileno())
    with kept(sys.stdin.fileno()):
        if follows_background(os.environ):
            backdrop.ask()
        state = BoardState([host.label for host in hosts], words.text, wanted, here)
        opening = Opening(state, os.environ, sys.stdout.fileno())
        try:
            is_seen = opening.attention.is_seen
            with Overview(hosts, opening.inbox.put, lambda: is_seen(time.monotonic())):
                backdrop.wait()
                opening.draw(backdrop.kind)
                _run(opening, hosts)
        finally:
            opening.painter.close_window()
    return 0


def _run(opening: Opening, hosts: Sequence[FollowedHost]) -> None:
    # Nothing here needs ssl, and asyncio works in a Python without it.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type] - documented: None blocks
    import asyncio

    from tiller_client.board.app import Board
    from tiller_client.chat.terminal.keyboard import Keyboard

    async def run_board() -> None:
        await Board(opening, Keyboard(sys.stdin)).run(hosts)

    asyncio.run(run_board())
