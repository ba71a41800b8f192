"""`send`, `steer`, `interrupt` and `queue`: send input to a session, or change queued input."""

from argparse import Namespace

from tiller_client.command_line import choose
from tiller_client.command_line.choices import read_overrides
from tiller_client.command_line.prompt import name_files, read_images, read_text
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import complain, is_piped, print_json, say, tell
from tiller_client.errors import RejectedError, UsageError
from tiller_client.following.snapshots import read_snapshot
from tiller_client.program_name import program
from tiller_client.rendering.labels import input_line, no_turn_began, waiting_line
from tiller_client.rendering.text import SHORT_ID_CHARS
from tiller_client.verbs.submitting import submit
from tiller_client.verbs.turns import follow_turn, join
from tiller_protocol.answers import AnyResult, Queued, Started, Steered
from tiller_protocol.items import QueuedInput
from tiller_protocol.ops import Interrupt, QueueEdit, UserInput
from tiller_protocol.settings import TurnOverrides
from tiller_protocol.snapshot import Snapshot

NOTHING_TO_STEER = (
    "no turn is running in this session, so there is nothing to steer; start one with: tiller send"
)

QUEUE_CHANGES = {
    "edit": "changed",
    "remove": "dropped",
    "promote": "steered the running turn with",
    "move": "moved",
}
"""The message after each action; the id of the input follows."""


STEERS = " (for the next step)"
"""Marks input for the running turn in the list of queued inputs."""


def run(arguments: Namespace) -> int:
    """Run one of the verbs."""
    with_input = arguments.verb in ("send", "steer")
    text = read_text(arguments.text) if with_input else ""
    images = read_images(arguments.image) if with_input else ()
    files = name_files(arguments.file) if with_input else ()
    with connect(f"tiller {arguments.verb}") as connection:
        session_id = choose.session_id(connection, arguments.session, changes=_changes(arguments))
        match arguments.verb:
            case "send":
                delivery = "queue" if arguments.queue else "auto"
                op = UserInput(
                    session_id,
                    text,
                    images,
                    files,
                    delivery,
                    overrides=read_overrides(arguments),
                    no_reply=arguments.no_reply,
                )
                if arguments.wait:
                    return _send_and_follow(connection, op, arguments)
                _send(connection, op, arguments)
            case "steer":
                op = UserInput(session_id, text, images, files, "steer", arguments.turn)
                _send(connection, op, arguments)
            case "interrupt":
                op = Interrupt(session_id, arguments.turn, arguments.background)
                what = arguments.background or session_id
                submit(connection, op, json=arguments.json, done=f"interrupted {what}")
                if not (arguments.json or arguments.background):
                    _tell_what_waits(read_snapshot(connection.ask, session_id))
            case "queue":
                _queue(connection, session_id, arguments)
            case verb:
                raise AssertionError(f"there is no verb {verb} here")
    return 0


def _changes(arguments: Namespace) -> bool:
    """Whether the verb does more than show the queue."""
    if arguments.verb != "queue":
        return True
    edits = (arguments.remove, arguments.promote, arguments.edit, arguments.move)
    return any(edits)


def _send_and_follow(connection: DaemonConnection, op: UserInput, arguments: Namespace) -> int:
    if op.no_reply:
        raise UsageError("--wait can't be used with --no-reply, because no turn takes the input")
    _, after = join(connection, op.session_id)
    return follow_turn(connection, op, after, arguments)


def _send(connection: DaemonConnection, op: UserInput, arguments: Namespace) -> None:
    try:
        accepted = submit(connection, op, json=arguments.json)
    except RejectedError as error:
        if error.code == "no_active_turn":
            raise RejectedError(error.answer, NOTHING_TO_STEER) from None
        raise
    if op.overrides != TurnOverrides() and not isinstance(accepted.result, Started):
        complain(no_turn_began())
    if not arguments.json:
        hint = "" if is_piped() else _what_next(accepted.result, op.session_id[-SHORT_ID_CHARS:])
        tell(_outcome(accepted.result) + hint)


def _what_next(result: AnyResult | None, session: str) -> str:
    """Return a hint on what a person can do after sending input."""
    match result:
        case Started() | Steered():
            return f"; watch it with: {program()} attach {session}"
        case Queued():
            return f"; see the queue with: {program()} queue {session}"
        case _:
            return "; the model gets it with the next message"


def _outcome(result: AnyResult | None) -> str:
    match result:
        case Started(turn_id):
            return f"started turn {turn_id}"
        case Steered(turn_id, _):
            return f"steers turn {turn_id}"
        case Queued(input_id, position):
            return f"queued at position {position} as {input_id}"
        case _:
            return "added to history"


def _queue(connection: DaemonConnection, session_id: str, arguments: Namespace) -> None:
    snapshot = read_snapshot(connection.ask, session_id)
    queue = snapshot.queue
    if op := _queue_edit(session_id, queue, arguments):
        accepted = submit(connection, op, json=arguments.json)
        if isinstance(accepted.result, Started):
            done = f"{_outcome(accepted.result)} with {op.input_id}"
        else:
            done = f"{QUEUE_CHANGES[op.action]} {op.input_id}"
        if not arguments.json:
            tell(done)
        return
    for queued in queue:
        if arguments.json:
            print_json(queued)
        else:
            steers = queued.delivery == "steer" and snapshot.turn is not None
            say(f"{queued.id}  {input_line(queued)}{STEERS if steers else ''}")
    if arguments.json:
        return
    if not queue:
        say("nothing is queued")
    elif snapshot.turn is None:
        _tell_what_waits(snapshot)


def _tell_what_waits(snapshot: Snapshot) -> None:
    """Say how to go on with queued inputs that no turn takes."""
    if snapshot.queue:
        complain(waiting_line(len(snapshot.queue), f"{program()} resume {snapshot.session_id}"))


def _queue_edit(
    session_id: str, queue: tuple[QueuedInput, ...], arguments: Namespace
) -> QueueEdit | None:
    if arguments.remove:
        return QueueEdit(session_id, choose.input_id(queue, arguments.remove), "remove")
    if arguments.promote:
        return QueueEdit(session_id, choose.input_id(queue, arguments.promote), "promote")
    if arguments.edit:
        reference, text = arguments.edit
        return QueueEdit(session_id, choose.input_id(queue, reference), "edit", read_text(text))
    if arguments.move:
        reference, position = arguments.move
        if not position.isdecimal():
            raise UsageError(f"{position!r} is not a position; give a number (0 is next)")
        input_id = choose.input_id(queue, reference)
        return QueueEdit(session_id, input_id, "move", position=int(position))
    return None
