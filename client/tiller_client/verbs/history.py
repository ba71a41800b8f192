"""`compact`, `revert`, `unrevert`, `diff` and `shell`: a session's history and its files."""

from argparse import Namespace

from tiller_client import choose
from tiller_client.connection import DaemonConnection
from tiller_client.console import complain, print_json, say, stdout_paint, stdout_width
from tiller_client.errors import UsageError
from tiller_client.render_item import call_label, change_line, diff_lines
from tiller_client.runtime import my_places
from tiller_client.text import one_line
from tiller_client.verbs.submitting import submit
from tiller_client.verbs.turns import follow_turn, join
from tiller_protocol.answers import RevertResult, SessionDiffResult, SessionResult
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import AnyOp, Compact, Revert, SessionDiff, SessionGet, Shell, Unrevert

DIFF_LINES_MAX = 10_000


def run(arguments: Namespace) -> int:
    """Run one of the verbs."""
    with DaemonConnection(my_places(), f"tiller {arguments.verb}") as connection:
        if arguments.verb == "shell":
            session_id, after = join(connection, arguments.session)
            command = Shell(session_id, arguments.command)
            return follow_turn(connection, command, after, json=arguments.json)
        session_id = choose.session_id(connection, arguments.session)
        if arguments.verb == "diff":
            _diff(connection, session_id, arguments)
        else:
            op = _op(connection, session_id, arguments)
            accepted = submit(connection, op, json=arguments.json)
            if isinstance(accepted.result, RevertResult) and not arguments.json:
                _print_reverted_files(accepted.result)
    return 0


def _op(connection: DaemonConnection, session_id: str, arguments: Namespace) -> AnyOp:
    match arguments.verb:
        case "compact":
            return Compact(session_id)
        case "revert":
            turn_id = arguments.turn
            if turn_id == choose.LAST:
                turn_id = _last_turn(connection, session_id)
            return Revert(session_id, turn_id, arguments.step)
        case "unrevert":
            return Unrevert(session_id)
        case verb:
            raise AssertionError(f"{verb} is not of this family")


def _last_turn(connection: DaemonConnection, session_id: str) -> str:
    marks = connection.ask(SessionGet(session_id), SessionResult).snapshot.marks
    if not marks:
        raise UsageError("there is no turn in this session's history")
    return marks[-1].turn_id


def _print_reverted_files(result: RevertResult) -> None:
    """Print what became of the files. Frontends that follow the session get it as a warning."""
    for path in result.files:
        say(f"put back: {one_line(path)}")
    for path in result.conflicts:
        complain(f"left as it is, because something else has changed it: {one_line(path)}")
    if result.partial:
        complain("more files may have changed: some steps have no snapshot")


def _diff(connection: DaemonConnection, session_id: str, arguments: Namespace) -> None:
    """Print the diff between snapshots; without snapshots, the calls that edited files."""
    turn_id = arguments.turn
    if arguments.step and turn_id is None:
        raise UsageError("--step needs a turn: give its id, or `last`")
    if turn_id == choose.LAST:
        turn_id = _last_turn(connection, session_id)
    op = SessionDiff(session_id, turn_id, arguments.step)
    result = connection.ask(op, SessionDiffResult)
    if arguments.json:
        print_json(result)
        return
    if not result.files and result.partial:
        _print_edits(connection, session_id)
        return
    paint, width = stdout_paint(), stdout_width()
    for change in result.files:
        say(change_line(change, paint))
    if result.diff:
        say(diff_lines(result.diff, paint, width, DIFF_LINES_MAX))
    if result.cut:
        complain("the diff is too long; its end is missing")
    if result.partial:
        complain("more files may have changed: some steps have no snapshot")
    if not result.files:
        say("no file was changed")


def _print_edits(connection: DaemonConnection, session_id: str) -> None:
    """Print the calls that edited files; what commands changed is not known."""
    items = connection.ask(SessionGet(session_id), SessionResult).snapshot.items
    calls = [item for item in items if isinstance(item, ToolCall) and item.diff]
    paint, width = stdout_paint(), stdout_width()
    for call in calls:
        say(paint.bold(call_label(call)))
        say(diff_lines(call.diff, paint, width, DIFF_LINES_MAX))
    if not calls:
        say("no call of this session has edited a file")
