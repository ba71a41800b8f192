"""`compact`, `revert`, `unrevert`, `diff` and `shell`: a session's history and its files."""

import os
import re
from argparse import Namespace

from msgspec import structs

from tiller_client.command_line import choose
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import (
    complain,
    is_piped,
    page,
    print_json,
    print_raw,
    say,
    stdout_theme,
    stdout_width,
)
from tiller_client.errors import UsageError
from tiller_client.following.snapshots import read_snapshot
from tiller_client.rendering.calls import call_lines
from tiller_client.rendering.diff import diff_lines
from tiller_client.rendering.facts import Facts
from tiller_client.rendering.labels import change_line
from tiller_client.rendering.text import cut, one_line, quoted_path
from tiller_client.verbs.submitting import submit
from tiller_client.verbs.turns import follow_turn, join
from tiller_protocol.answers import RevertResult, SessionDiffResult
from tiller_protocol.ids import ULID_CHARS
from tiller_protocol.items import ToolCall, UserMessage
from tiller_protocol.ops import Compact, Revert, SessionDiff, Shell, Unrevert
from tiller_protocol.snapshot import Snapshot

DIFF_LINES_MAX = 10_000


def run(arguments: Namespace) -> int:
    """Run one of the verbs."""
    with connect(f"tiller {arguments.verb}") as connection:
        if arguments.verb in ("compact", "shell"):
            session_id, after = join(connection, arguments.session)
            compacts = arguments.verb == "compact"
            op = Compact(session_id) if compacts else Shell(session_id, arguments.command)
            return follow_turn(connection, op, after, arguments)
        changes = arguments.verb != "diff"
        session_id = choose.session_id(connection, arguments.session, changes=changes)
        match arguments.verb:
            case "diff":
                _diff(connection, session_id, arguments)
            case "revert":
                _revert(connection, session_id, arguments)
            case "unrevert":
                name = choose.session_name(read_snapshot(connection.ask, session_id))
                done = f"undid the last revert of {name}"
                _restore(connection, Unrevert(session_id), done, json=arguments.json)
            case verb:
                raise AssertionError(f"there is no verb {verb} here")
    return 0


def _revert(connection: DaemonConnection, session_id: str, arguments: Namespace) -> None:
    snapshot = read_snapshot(connection.ask, session_id)
    turn_id = arguments.turn
    if len(turn_id) < ULID_CHARS:
        turn_id = choose.turn_id((mark.turn_id for mark in snapshot.marks), turn_id)
    what = f"step {arguments.step} of turn {turn_id}" if arguments.step else f"turn {turn_id}"
    text = _prompt_of(snapshot, turn_id)
    quoted = f" “{cut(text, choose.TITLE_COLUMNS)}”" if text else ""
    done = f"went back to the point before {what}{quoted} of {choose.session_name(snapshot)}"
    _restore(connection, Revert(session_id, turn_id, arguments.step), done, json=arguments.json)


def _restore(connection: DaemonConnection, op: Revert | Unrevert, done: str, *, json: bool) -> None:
    accepted = submit(connection, op, json=json, done=done)
    if isinstance(accepted.result, RevertResult) and not json:
        _print_reverted_files(accepted.result)


def _prompt_of(snapshot: Snapshot, turn_id: str) -> str:
    """Return the prompt that started a turn, as one line."""
    starts = [mark.items for mark in snapshot.marks if mark.turn_id == turn_id]
    items = snapshot.items[starts[0] :] if starts else []
    return next((one_line(item.text) for item in items if isinstance(item, UserMessage)), "")


def _print_reverted_files(result: RevertResult) -> None:
    """Print which files were put back; frontends that follow the session get a warning instead."""
    for path in result.files:
        say(f"{'removed' if path in result.removed else 'put back'}: {quoted_path(path)}")
    for path in result.conflicts:
        unknown = path in result.without_snapshot
        reason = "there is no snapshot of it" if unknown else "something else has changed it"
        reason = result.problems.get(path, reason)
        complain(f"{quoted_path(path)} is left as it is, because {reason}")
    if result.partial:
        complain("more files may have changed: some steps have no snapshot")
    for session_id in result.sub_agents:
        complain(
            "not reverted: changes by a background sub-agent of the reverted turns; "
            f"to revert these changes as well: tiller revert {session_id}"
        )


def _diff(connection: DaemonConnection, session_id: str, arguments: Namespace) -> None:
    """Print the diff between snapshots; without snapshots, the calls that edited files."""
    turn_id = arguments.turn
    if arguments.step and turn_id is None:
        raise UsageError("--step needs a turn: give its id, or `last`")
    if turn_id is not None and len(turn_id) < ULID_CHARS:
        marks = read_snapshot(connection.ask, session_id).marks
        turn_id = choose.turn_id((mark.turn_id for mark in marks), turn_id)
    op = SessionDiff(session_id, turn_id, arguments.step)
    result = connection.ask(op, SessionDiffResult)
    if arguments.path:
        result = _only(result, arguments.path)
    if arguments.json:
        print_json(result)
    elif not result.files and result.partial:
        _print_edits(connection, session_id)
    else:
        _print_diff(result)


def _only(result: SessionDiffResult, path: str) -> SessionDiffResult:
    """The changes to one file, or to the files in one directory."""
    path = os.path.normpath(path)
    chosen = [one for one in result.files if one.path == path or one.path.startswith(f"{path}/")]
    if result.files and not chosen:
        raise UsageError(f"{quoted_path(path)} was not changed; tiller diff lists what was")
    wanted = {one.path for one in chosen}
    parts = re.split(r"^(?=diff --git )", result.diff, flags=re.MULTILINE)
    diff = "".join(part for part in parts if any(f" b/{one}\n" in part for one in wanted))
    return structs.replace(result, files=tuple(chosen), diff=diff)


def _print_diff(result: SessionDiffResult) -> None:
    """Show a diff on a terminal; a pipe gets only the plain diff, as input for `git apply`."""
    if is_piped():
        print_raw(result.diff)
    elif result.files:
        lines = [change_line(change) for change in result.files]
        lines += diff_lines(
            result.diff, stdout_width() - 1, stdout_theme(), lines_max=DIFF_LINES_MAX
        )
        page("\n".join(lines))
    if result.cut:
        complain("the diff is too long; the files at its end are missing")
    if result.partial:
        complain("more files may have changed: some steps have no snapshot")
    if not result.files:
        complain("no file was changed")


def _print_edits(connection: DaemonConnection, session_id: str) -> None:
    """Print the calls that edited files. Changes that commands made are not known."""
    items = read_snapshot(connection.ask, session_id).items
    calls = [item for item in items if isinstance(item, ToolCall) and item.diff]
    if is_piped():
        print_raw("".join(call.diff for call in calls))
    elif calls:
        theme, width = stdout_theme(), stdout_width() - 1
        shown = (call_lines(call, Facts(), width, theme, opened=True) for call in calls)
        page("\n".join(line for lines in shown for line in lines))
    if not calls:
        complain("no call in this session edited a file")
