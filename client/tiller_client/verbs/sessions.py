"""`new`, `ls`, `show`, `archive`, `rm` and `fork`: sessions as a whole."""

import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tiller_client.command_line import choose
from tiller_client.command_line.choices import read_settings
from tiller_client.command_line.prompt import read_workspace, read_worktree
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.connecting.hosts import Host
from tiller_client.connecting.runtime import chosen_remote
from tiller_client.console import (
    complain,
    confirm,
    is_piped,
    page,
    pick,
    print_json,
    say,
    stdout_columns,
    stdout_theme,
    stdout_width,
    tell,
)
from tiller_client.errors import RejectedError, UsageError
from tiller_client.following.snapshots import read_events, read_snapshot, why_cut_off
from tiller_client.program_name import program
from tiller_client.rendering.lines import branch_line, context_line, fork_line, state_word
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import (
    age,
    below_home,
    cells,
    counted,
    cut,
    cut_beginning,
    dollars,
    one_line,
    pad,
    sanitized,
)
from tiller_client.rendering.transcript import transcript
from tiller_client.verbs.all_hosts import Everywhere, print_with_host, qualified, several_hosts
from tiller_client.verbs.submitting import mark_seen, submit
from tiller_client.verbs.why import explain
from tiller_protocol.answers import Created, SessionResult
from tiller_protocol.events import TurnStarted
from tiller_protocol.ops import (
    SessionArchive,
    SessionCreate,
    SessionDelete,
    SessionFork,
)
from tiller_protocol.sessions import LIST_LIMIT_MAX
from tiller_protocol.snapshot import SessionSummary, Snapshot

AGE_COLUMNS, STATE_COLUMNS, WORKSPACE_COLUMNS, TITLE_COLUMNS_MIN = 6, 11, 28, 16

PICKED_MAX = 20
"""How many sessions are offered as a choice."""

PICK_COLUMNS = 5
"""The columns that `pick` uses before each choice."""

WIDE_COLUMNS = 100
NARROW_WORKSPACE_COLUMNS = 16
"""Used in a terminal narrower than `WIDE_COLUMNS`, where titles matter more than paths."""


def run(arguments: Namespace) -> int:
    """Run one of the verbs."""
    if arguments.verb == "ls" and arguments.watch:
        from tiller_client.verbs.board import run_watch

        return run_watch(arguments)
    if arguments.verb == "ls" and (hosts := _hosts(arguments)):
        return _list_everywhere(hosts, arguments)
    with connect(f"tiller {arguments.verb}") as connection:
        match arguments.verb:
            case "new":
                _new(connection, arguments)
            case "ls":
                _list(connection, arguments)
            case "show" if arguments.prompt is not None:
                session_id = choose.session_id(connection, arguments.session)
                _show_prompt(connection, session_id, arguments)
            case "show" if arguments.why is not None:
                session_id = choose.session_id(connection, arguments.session)
                explain(connection, session_id, arguments)
            case "show":
                _show(connection, arguments)
            case "archive":
                _archive(connection, arguments)
            case "rm":
                return _delete(connection, arguments)
            case "fork":
                session_id = choose.session_id(connection, arguments.session, changes=True)
                created = connection.ask(SessionFork(session_id, arguments.at), Created)
                _forked(connection, created, json=arguments.json)
            case verb:
                raise AssertionError(f"there is no verb {verb} here")
    return 0


def table_line(session: SessionSummary, now: float, theme: Theme, width: int) -> str:
    """Return a line of `width` columns: a session's id, age, state, workspace, title, figures."""
    workspace_columns = WORKSPACE_COLUMNS if width >= WIDE_COLUMNS else NARROW_WORKSPACE_COLUMNS
    workspace = cut_beginning(below_home(one_line(session.workspace)), workspace_columns)
    state = state_word(session)
    tint = theme.bad if state == "failed" else theme.asking
    line = "  ".join(
        (
            session.session_id[-choose.SHORT_ID_CHARS :],
            pad(age(now - session.updated_at), AGE_COLUMNS),
            pad(state, STATE_COLUMNS) if state == "idle" else tint(pad(state, STATE_COLUMNS)),
            theme.dim(pad(workspace, workspace_columns)),
        )
    )
    used = choose.SHORT_ID_CHARS + AGE_COLUMNS + STATE_COLUMNS + workspace_columns + 4 * 2
    figures = "  " + _figures(session)
    title = cut(one_line(session.title), max(TITLE_COLUMNS_MIN, width - used - cells(figures)))
    figures = cut(figures, width - used - cells(title)).rstrip()
    return f"{line}  {title}{theme.dim(figures)}".rstrip()


def pick_session(connection: DaemonConnection) -> str:
    """Let the user choose a session that can go on, by a table; its id.

    Those of this directory, those above it, and their worktrees go before all others.
    """
    here = Path(read_workspace("."))
    places = () if chosen_remote() else (here, *here.parents)
    recent = choose.list_sessions(connection, limit=LIST_LIMIT_MAX)
    left = [one for one in recent if one.status == "idle" and _can_go_on(one)]
    near = [one for one in left if Path(one.checkout or one.workspace) in places]
    sessions = (near or left)[:PICKED_MAX]
    if not sessions:
        raise UsageError(
            "no session has messages that wait, or a turn that did not complete; to start a turn: "
            f"{program()} exec PROMPT"
        )
    theme, width, now = stdout_theme(), stdout_width() - PICK_COLUMNS, time.time()
    at = pick([table_line(session, now, theme, width) for session in sessions])
    if at is None:
        raise UsageError("no session was chosen")
    return sessions[at].session_id


def _can_go_on(session: SessionSummary) -> bool:
    """Whether there is something to resume, as far as the summary tells."""
    return bool(session.queued or (session.turns and session.last_outcome != "completed"))


def _figures(session: SessionSummary) -> str:
    """Return a session's cost, context use, branch and parent, as far as they are known."""
    cost = "" if session.cost is None else dollars(session.cost)
    context = context_line(session).removeprefix("context ")
    parts = (cost, context, branch_line(session), fork_line(session))
    return " · ".join(part for part in parts if part)


def _archive(connection: DaemonConnection, arguments: Namespace) -> None:
    undo = arguments.undo
    session_id = choose.session_id(connection, arguments.session, changes=True, archived=undo)
    submit(connection, SessionArchive(session_id, archived=not undo), json=arguments.json)
    if not arguments.json:
        name = choose.session_name(read_snapshot(connection.ask, session_id))
        tell(f"took {name} out of the archive" if undo else f"archived {name}")


def _delete(connection: DaemonConnection, arguments: Namespace) -> int:
    """Delete sessions if the user agrees; returns 1 if one was not deleted."""
    if (arguments.older_than is None) == (not arguments.session):
        raise UsageError("name either sessions or their age: SESSION… or --older-than 30d")
    found: Sequence[SessionSummary | Snapshot]
    if arguments.older_than is None:
        found = _named(connection, arguments)
        names = (f"{choose.session_name(one)}, with {counted(one.turns, 'turn')}" for one in found)
        what = " and ".join(names)
    else:
        found = _old_sessions(connection, arguments.older_than)
        what = f"these {counted(len(found), 'session')}"
        if not arguments.json:
            for session in found:
                say(table_line(session, time.time(), stdout_theme(), stdout_width()))
    if not found:
        tell("no session is that old")
        return 0
    if not arguments.yes and not confirm(f"Delete {what}, for good?"):
        say("nothing was deleted")
        return 1
    status = 0
    # The newest first, as a fork must be deleted before the session that it shares history with.
    for one in sorted(found, key=lambda one: one.created_at, reverse=True):
        try:
            done = f"deleted {choose.session_name(one)}"
            submit(connection, SessionDelete(one.session_id), json=arguments.json, done=done)
        except RejectedError as error:
            if len(found) == 1:
                raise
            if arguments.json:
                print_json(error.answer)
            complain(f"{choose.session_name(one)} was not deleted: {error}")
            status = 1
    return status


def _named(connection: DaemonConnection, arguments: Namespace) -> list[Snapshot]:
    ids = [choose.session_id(connection, one, changes=True) for one in arguments.session]
    return [read_snapshot(connection.ask, one) for one in dict.fromkeys(ids)]


def _old_sessions(connection: DaemonConnection, age_s: float) -> list[SessionSummary]:
    """The sessions without activity for this time, archived ones included."""
    before = time.time() - age_s
    return [
        session
        for archived in (False, True)
        for session in choose.list_sessions(connection, archived=archived)
        if session.updated_at < before and session.status == "idle"
    ]


def _new(connection: DaemonConnection, arguments: Namespace) -> None:
    workspace = read_workspace(arguments.directory)
    settings = read_settings(arguments)
    op = SessionCreate(workspace, settings=settings, worktree=read_worktree(arguments))
    created = connection.ask(op, Created)
    if arguments.json or is_piped():
        _created(created, json=arguments.json)
    else:
        _tell_created(read_snapshot(connection.ask, created.session_id), "is new")


def _created(created: Created, *, json: bool) -> None:
    if json:
        print_json(created)
    else:
        say(created.session_id)


def _forked(connection: DaemonConnection, created: Created, *, json: bool) -> None:
    """Print the id of a fork; for a person, also its parent and a command that continues it."""
    if json or is_piped():
        _created(created, json=json)
        return
    snapshot = read_snapshot(connection.ask, created.session_id)
    _tell_created(snapshot, f"is a {fork_line(snapshot)}")


def _tell_created(snapshot: Snapshot, what: str) -> None:
    tell(
        f"{choose.session_name(snapshot)} {what}; continue with: "
        f"{program()} exec --session {snapshot.session_id[-choose.SHORT_ID_CHARS :]} PROMPT"
    )


def _list(connection: DaemonConnection, arguments: Namespace) -> None:
    limit = None if arguments.all else arguments.limit
    shown = 0
    # One more than is shown, to find out whether there are more.
    for session in _wanted(connection, arguments, None if limit is None else limit + 1):
        if shown == limit:
            if not arguments.json:
                only = f"only the {limit} most recently active are listed"
                say(stdout_theme().dim(f"{only}; for all: {program()} ls --all"))
            return
        _print(session, arguments)
        shown += 1
    if not shown and not arguments.json:
        states = arguments.states
        start = f"no sessions; start one with: {program()} exec PROMPT"
        say(f"no session is {' or '.join(states)}" if states else start)


def _wanted(
    connection: DaemonConnection, arguments: Namespace, limit: int | None
) -> Iterator[SessionSummary]:
    """Yield the sessions that the options of `ls` choose."""
    states = arguments.states
    sessions = choose.list_sessions(
        connection,
        read_workspace(arguments.directory) if arguments.directory else None,
        archived=arguments.archived,
        owner_id=choose.session_id(connection, arguments.of) if arguments.of else None,
        limit=None if states else limit,
    )
    if states:
        sessions = islice((one for one in sessions if state_word(one) in states), limit)
    return sessions


def _print(
    session: SessionSummary, arguments: Namespace, label: str = "", columns: int = 0
) -> None:
    """Print a line of `ls`; `columns` are for the labels of hosts."""
    if arguments.json and arguments.all:
        print_with_host(label, session)
    elif arguments.json:
        print_json(session)
    else:
        line = table_line(session, time.time(), stdout_theme(), stdout_columns() - columns)
        say(qualified(label, "").rjust(columns) + line)


def _hosts(arguments: Namespace) -> list[Host]:
    """The hosts that `ls` asks if there are several; a directory and a session have only one."""
    return [] if arguments.directory or arguments.of else several_hosts(arguments)


def _list_everywhere(hosts: list[Host], arguments: Namespace) -> int:
    """List the sessions of each host as soon as it has answered; 1 if one has not."""
    everywhere, is_empty = Everywhere(hosts, arguments), True
    columns = max(len(qualified(host.label, "")) for host in hosts)
    for host, sessions in everywhere.ask(lambda one: list(_wanted(one, arguments, None))):
        for session in sessions:
            _print(session, arguments, host.label, columns)
            is_empty = False
    everywhere.report()
    if is_empty and not arguments.json:
        what = f"is {' or '.join(arguments.states)}" if arguments.states else "was found"
        say(f"no session {what}{' on the hosts that have answered' if everywhere.status else ''}")
    return everywhere.status


def _show(connection: DaemonConnection, arguments: Namespace) -> None:
    session_id = choose.session_id(connection, arguments.session)
    snapshot = read_snapshot(connection.ask, session_id)
    if arguments.json:
        if arguments.tail is not None:
            snapshot.items = snapshot.items[-arguments.tail :]
        print_json(SessionResult(snapshot))
    else:
        theme, width = stdout_theme(), stdout_width()
        columns = stdout_columns()
        page(transcript(snapshot, theme, width, columns, whole=arguments.full, tail=arguments.tail))
        mark_seen(connection, session_id, snapshot.seq)
    if reason := why_cut_off(connection.ask, snapshot):
        complain(reason)


def _show_prompt(connection: DaemonConnection, session_id: str, arguments: Namespace) -> None:
    """Print the system prompt of a turn as it was sent, then the names of its tools."""
    events = read_events(connection.ask, session_id)
    starts = {e.turn_id or "": e.body for e in events if isinstance(e.body, TurnStarted)}
    started = starts[choose.turn_id(starts, arguments.prompt)]
    if arguments.json:
        print_json(started)
        return
    context = started.context
    say(sanitized(context.system_prompt) or "(the prompt of this turn was not recorded)")
    say(stdout_theme().dim(f"\ntools: {one_line(', '.join(context.tools)) or 'none'}"))
