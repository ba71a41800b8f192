"""`compact`, `revert`, `unrevert`, `diff` and `shell`: a session's history, and its files."""

from argparse import Namespace

from tiller_client import choose
from tiller_client.connection import Connection
from tiller_client.console import print_json, say, stdout_paint, stdout_width
from tiller_client.errors import UsageError
from tiller_client.render_item import call_label, diff_lines
from tiller_client.runtime import my_places
from tiller_client.verbs.plain import submit
from tiller_client.verbs.turns import follow_turn, join
from tiller_protocol.answers import SessionResult
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import AnyOp, Compact, Revert, SessionGet, Shell, Unrevert

DIFF_LINES_MAX = 10_000


def run(arguments: Namespace) -> int:
    """Run one of the verbs of history."""
    with Connection(my_places(), f"tiller {arguments.verb}") as connection:
        if arguments.verb == "shell":
            session_id, after = join(connection, arguments.session)
            command = Shell(session_id, arguments.command)
            return follow_turn(connection, command, after, json=arguments.json)
        session_id = choose.session_id(connection, arguments.session)
        if arguments.verb == "diff":
            _diff(connection, session_id, json=arguments.json)
        else:
            op = _op(connection, session_id, arguments)
            submit(connection, op, json=arguments.json)
    return 0


def _op(connection: Connection, session_id: str, arguments: Namespace) -> AnyOp:
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


def _last_turn(connection: Connection, session_id: str) -> str:
    marks = connection.ask(SessionGet(session_id), SessionResult).snapshot.marks
    if not marks:
        raise UsageError("there is no turn in this session's history")
    return marks[-1].turn_id


def _diff(connection: Connection, session_id: str, *, json: bool) -> None:
    """Print the calls that changed files; what a command changed is not known."""
    items = connection.ask(SessionGet(session_id), SessionResult).snapshot.items
    calls = [item for item in items if isinstance(item, ToolCall) and item.diff]
    paint, width = stdout_paint(), stdout_width()
    for call in calls:
        if json:
            print_json(call)
        else:
            say(paint.bold(call_label(call)))
            say(diff_lines(call.diff, paint, width, DIFF_LINES_MAX))
    if not calls and not json:
        say("no call of this session changed a file by an edit")
