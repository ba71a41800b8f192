"""`worktree`: lists, lands, removes and restores worktrees."""

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import complain, print_json, say, stdout_columns, stdout_theme, tell
from tiller_client.errors import RejectedError, UsageError
from tiller_client.program_name import program
from tiller_client.rendering.labels import landed_line, worktree_around
from tiller_client.rendering.text import below_home, cells, counted, cut_beginning, one_line
from tiller_protocol.answers import SessionListResult
from tiller_protocol.sessions import SessionList
from tiller_protocol.turns import UserInput
from tiller_protocol.worktrees import (
    WorktreeLand,
    WorktreeLanded,
    WorktreeList,
    WorktreeListResult,
    WorktreeRemove,
    WorktreeRestore,
    WorktreeResult,
    WorktreeSummary,
)

STATE_COLUMNS_MAX = 50
"""A longer text moves the rest of its line to the right."""

PLACE_COLUMNS_MIN = 12
"""With less room, a place is left out; `worktree path` prints it."""

DAY_S = 86_400.0


def run(arguments: Namespace) -> int:
    """Run one action."""
    with connect("tiller worktree") as connection:
        match arguments.action:
            case "ls":
                workspace = read_workspace(arguments.directory) if arguments.directory else None
                found = _listed(connection, workspace)
                for one, line in zip(found, worktree_lines(found), strict=True):
                    print_json(one) if arguments.json else say(line)
            case "path":
                one = _named(connection, arguments.name)
                print_json(one) if arguments.json else say(one.path)
            case "land":
                return _land(connection, arguments)
            case "rm":
                # Look up all first, so that none is removed if a name is wrong.
                doomed = [_named(connection, name) for name in arguments.names or [""]]
                return max([_remove(connection, one, arguments) for one in doomed])
            case _:
                one = _named(connection, arguments.name, removed=True)
                done = connection.ask(WorktreeRestore(one.id), WorktreeResult).worktree
                print_json(done) if arguments.json else tell(f"restored {done.path}")
    return 0


def _land(connection: DaemonConnection, arguments: Namespace) -> int:
    one = _named(connection, arguments.name)
    how: Literal["merge", "rebase", "squash"] = (
        "rebase" if arguments.rebase else "squash" if arguments.squash else "merge"
    )
    op = WorktreeLand(one.id, how, arguments.onto or "")
    try:
        landed = connection.ask(op, WorktreeLanded)
    except RejectedError as error:
        if error.answer.code == "conflict":
            return _resolve(connection, one, error, arguments)
        raise
    if arguments.json:
        print_json(landed)
        return 0
    tell(landed_line(landed))
    if landed.submodules:
        names = " ".join(map(one_line, landed.submodules))
        tell(f"to bring submodules up to date: git -C {landed.checkout} submodule update {names}")
    tell(f"if the worktree is not needed any more: {program()} worktree rm {one.name}")
    return 0


def _resolve(
    connection: DaemonConnection, one: WorktreeSummary, error: RejectedError, arguments: Namespace
) -> int:
    """Let a session resolve conflicts, or say how."""
    session = next(iter(one.sessions), None)
    task = str(error.answer.data["task"])
    if not arguments.resolve or session is None:
        if session and not arguments.json:
            tell(f"to let its session resolve them, add: --resolve. Its task would be: {task}")
        raise error
    connection.submit(UserInput(session, task))
    if arguments.json:
        print_json(error.answer)
    else:
        tell(f"{error} Its session resolves them; watch it: {program()} attach {session}")
    return 1


def _remove(connection: DaemonConnection, one: WorktreeSummary, arguments: Namespace) -> int:
    """Remove a worktree; returns 1 if it was refused."""
    try:
        done = connection.ask(WorktreeRemove(one.id, arguments.force), WorktreeResult).worktree
    except RejectedError as error:
        complain(str(error))
        return 1
    if arguments.json:
        print_json(done)
    elif done.kept_until is None:
        tell(f"forgot {one.name}, whose directory was gone")
    else:
        days = round((done.kept_until - time.time()) / DAY_S)
        size = f"{done.disk_bytes / 1e6:.1f} MB"
        tell(
            f"removed {one.name}; for {days} days it takes {size}, and comes back with: "
            f"{program()} worktree restore {one.name}"
        )
        _tell_what_waits(connection, one)
    return 0


def _tell_what_waits(connection: DaemonConnection, one: WorktreeSummary) -> None:
    """Say which messages nobody will take while the worktree is removed."""
    if not one.sessions:
        return
    op = SessionList(sessions=one.sessions)
    found = connection.ask(op, SessionListResult).sessions
    if waiting := sum(session.queued for session in found):
        verb = "waits" if waiting == 1 else "wait"
        tell(f"{counted(waiting, 'message')} still {verb} for its session, until it is restored")


def _listed(
    connection: DaemonConnection, workspace: str | None, name: str = ""
) -> Sequence[WorktreeSummary]:
    return connection.ask(WorktreeList(workspace, name), WorktreeListResult).worktrees


def _named(connection: DaemonConnection, name: str, *, removed: bool = False) -> WorktreeSummary:
    """Return the worktree with this name, here or elsewhere; raises `UsageError`.

    Without a name, it is the worktree around this directory.
    """
    if not name:
        return _around(connection)
    # To look at all worktrees takes long if there are many.
    everything: Sequence[WorktreeSummary] = _listed(connection, None, name)
    everything = everything or [one for one in _listed(connection, None) if one.id == name]
    found = [one for one in everything if (one.state == "removed") == removed]
    here = str(Path.cwd())
    near = [one for one in found if f"{here}/".startswith((f"{one.checkout}/", f"{one.path}/"))]
    chosen = near or found
    if len(chosen) == 1 or (removed and chosen):
        return chosen[-1]
    if chosen:
        places = ", ".join(one.path for one in chosen)
        raise UsageError(f"several worktrees have this name: {places}; go there first")
    if everything:
        state = "is not removed" if removed else "was removed"
        raise UsageError(f"the worktree {one_line(name)} {state}")
    raise UsageError(f"there is no worktree {one_line(name)}; see: {program()} worktree ls")


def _around(connection: DaemonConnection) -> WorktreeSummary:
    if found := worktree_around(_listed(connection, None), str(Path.cwd())):
        return found
    raise UsageError(f"this directory is in no worktree; name one of: {program()} worktree ls")


def worktree_lines(trees: Sequence[WorktreeSummary]) -> list[str]:
    """Lines in columns: name and base, repository, what is left to do, and the end of the place."""
    theme, width = stdout_theme(), stdout_columns()
    rows = [(_branches(one), _repository(one), _state(one)) for one in trees]
    columns = [min(STATE_COLUMNS_MAX, max(map(cells, one))) for one in zip(*rows, strict=True)]
    lines: list[str] = []
    for one, row in zip(trees, rows, strict=True):
        line = "  ".join(
            text + " " * (column - cells(text)) for text, column in zip(row, columns, strict=True)
        )
        left = width - cells(line) - len("  ")
        place = cut_beginning(below_home(one_line(one.path)), left)
        lines.append(f"{line}  {theme.dim(place)}" if left >= PLACE_COLUMNS_MIN else line.rstrip())
    return lines


def _branches(one: WorktreeSummary) -> str:
    return one_line(f"{one.name} → {one.base_branch}" if one.base_branch else one.name)


def _repository(one: WorktreeSummary) -> str:
    return one_line(one.checkout.rpartition("/")[2])


def _state(one: WorktreeSummary) -> str:
    """What is not landed or committed yet."""
    if one.kept_until is not None:
        days = round((one.kept_until - time.time()) / DAY_S)
        return f"removed, kept {days} days, {one.disk_bytes / 1e6:.1f} MB"
    if one.state == "missing":
        return "its directory is gone"
    parts = [f"{counted(one.ahead, 'commit')} to land"] if one.ahead else []
    parts += [f"{counted(one.changed_files, 'file')} not committed"] if one.changed_files else []
    if not parts and not one.problem:
        parts = ["nothing to land"]
    parts += [counted(len(one.sessions), "session")] if len(one.sessions) > 1 else []
    parts += [one_line(one.problem)] if one.problem else []
    return " · ".join(parts)
