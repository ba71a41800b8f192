"""Completes a command line for the shell: verbs, options, sessions, requests, models, agents.

The script of `tiller completions` runs `tiller` with `_ARGCOMPLETE` set. This starts no daemon, and
connects to no other host: only their names are completed.
"""

import argparse
from collections.abc import Callable
from typing import cast

import argcomplete

from tiller_client.command_line import choose
from tiller_client.command_line.parser import ID_ARGUMENTS
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.hosts import read_hosts
from tiller_client.connecting.runtime import my_places
from tiller_client.errors import TillerError
from tiller_client.rendering.text import age, cut, one_line
from tiller_protocol.answers import CatalogResult
from tiller_protocol.ops import Catalog

SESSIONS_MAX = 50
"""A longer list would be unreadable in a shell."""

Values = dict[str, str]
"""The possible words, each with a description, which zsh and fish show."""


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the possible next words, and exit."""
    _attach(parser)
    argcomplete.autocomplete(parser, always_complete_options=False)


def _attach(parser: argparse.ArgumentParser) -> None:
    """Attach completers to the arguments that name sessions, requests, models or agents."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            verbs = cast("dict[str, argparse.ArgumentParser]", action.choices)
            for below in verbs.values():
                _attach(below)
        elif values := _VALUES.get(action.dest):
            # argcomplete reads this attribute.
            mark = ":" if action.dest in ID_ARGUMENTS else None
            action.completer = _completer(values, mark)  # type: ignore[attr-defined]
        elif action.dest == "host":
            action.completer = _completer(None, "")  # type: ignore[attr-defined]


def _completer(
    values: Callable[[DaemonConnection], Values] | None, mark: str | None
) -> Callable[..., Values]:
    """Complete what the daemon returns as `values`, and hosts, with `mark` after their labels."""

    def complete_value(**_details: object) -> Values:
        found = {} if mark is None else _labels(mark)
        if values is None:
            return found
        try:
            with DaemonConnection(my_places(), "tiller completions", may_start=False) as connection:
                return values(connection) | found
        except (TillerError, OSError):
            return found

    return complete_value


def _labels(mark: str) -> Values:
    try:
        known = read_hosts(my_places().config)
    except TillerError:
        return {}
    return {f"{label}{mark}": f"a host, {destination}" for label, destination in known.items()}


def _sessions(connection: DaemonConnection) -> Values:
    import time

    now = time.time()
    found = {choose.LAST: "the most recently active session in this directory"}
    for session in choose.list_sessions(connection, limit=SESSIONS_MAX):
        title = cut(one_line(session.title), choose.TITLE_COLUMNS)
        when = age(now - session.updated_at)
        found[session.session_id[-choose.SHORT_ID_CHARS :]] = f"{when} {session.workspace} {title}"
    return found


def _requests(connection: DaemonConnection) -> Values:
    return {
        request.id[-choose.SHORT_ID_CHARS :]: one_line(request.title)
        for session in choose.list_sessions(connection)
        for request in session.requests
    }


def _models(connection: DaemonConnection) -> Values:
    return {model.name: "" for model in _catalog(connection).models}


def _agents(connection: DaemonConnection) -> Values:
    return {agent.name: one_line(agent.description) for agent in _catalog(connection).agents}


def _catalog(connection: DaemonConnection) -> CatalogResult:
    from tiller_client.command_line.prompt import read_workspace

    return connection.ask(Catalog(read_workspace(".")), CatalogResult)


_VALUES: dict[str, Callable[[DaemonConnection], Values]] = {
    "session": _sessions,
    "of": _sessions,
    "request": _requests,
    "model": _models,
    "agent": _agents,
}
"""Functions that return the possible values, by the name of the argument."""
