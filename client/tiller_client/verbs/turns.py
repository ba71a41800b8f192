"""`exec` and `resume`: run one turn to its end, by a prompt or without a new message.

The model comes first: what only shows the turn is imported once the turn has started.
"""

import contextlib
from argparse import Namespace
from typing import TYPE_CHECKING, assert_never

from tiller_client.choices import read_overrides, read_settings
from tiller_client.connection import DaemonConnection
from tiller_client.errors import STATUS_INTERRUPTED, RejectedError
from tiller_client.prompt import (
    name_files,
    read_images,
    read_schema,
    read_text,
    read_workspace,
)
from tiller_client.runtime import my_places
from tiller_client.watch import Signals, Watch
from tiller_protocol.answers import Created, ReplayResult, Started
from tiller_protocol.events import Outcome, TurnEnded
from tiller_protocol.ops import (
    Compact,
    Interrupt,
    Replay,
    SessionCreate,
    SessionDelete,
    Shell,
    TurnContinue,
    UserInput,
)
from tiller_protocol.settings import TurnOverrides

if TYPE_CHECKING:
    from tiller_client.interactive import InteractiveSession

AnyTurnOp = UserInput | TurnContinue | Compact | Shell
"""The ops that start a turn."""


def run(arguments: Namespace) -> int:
    """Run one turn; the exit status tells how it ended."""
    if arguments.verb == "resume":
        return _resume(arguments)
    return _exec(arguments)


def _resume(arguments: Namespace) -> int:
    with DaemonConnection(my_places(), "tiller resume") as connection:
        session_id, after = join(connection, arguments.session)
        overrides = read_overrides(arguments, approve=arguments.approve, sandbox=arguments.sandbox)
        op = TurnContinue(session_id, overrides)
        return follow_turn(connection, op, after, arguments)


def _exec(arguments: Namespace) -> int:
    text = read_text(arguments.prompt)
    images, files = read_images(arguments.image), name_files(arguments.file)
    schema = read_schema(arguments.output_schema) if arguments.output_schema else None
    workspace = read_workspace(arguments.directory)
    with DaemonConnection(my_places(), "tiller exec") as connection:
        if arguments.session:
            session_id, after = join(connection, arguments.session, workspace)
            overrides = read_overrides(
                arguments,
                approve=arguments.approve,
                sandbox=arguments.sandbox,
                output_schema=schema,
            )
        else:
            op = SessionCreate(workspace, settings=read_settings(arguments))
            session_id, after = connection.ask(op, Created).session_id, 0
            overrides = TurnOverrides(output_schema=schema)
        op = UserInput(session_id, text, images, files, "start", overrides=overrides)
        try:
            return follow_turn(connection, op, after, arguments)
        except RejectedError:
            if not arguments.session:
                with contextlib.suppress(RejectedError):
                    connection.submit(SessionDelete(session_id))
            raise


def follow_turn(
    connection: DaemonConnection, op: AnyTurnOp, after: int, arguments: Namespace
) -> int:
    """Submit an op that starts a turn, and show the session until the turn has ended.

    `arguments` say how much of it: `json`, `verbose` or `quiet`. Ctrl-C interrupts the turn and
    waits for its end; a second one raises `Detached`. Returns the exit status.
    """
    json: bool = arguments.json
    detached = (
        f"detached; the turn may still be running; follow it with: tiller attach {op.session_id}"
    )
    with (
        Signals(detached) as signals,
        Watch(connection, op.session_id, signals, after) as watch,
    ):
        turn_id = connection.ask(op, Started).turn_id
        from tiller_client.console import Console, complain
        from tiller_client.interactive import InteractiveSession
        from tiller_client.text import one_line

        console = Console(separate_answers=True, quiet=arguments.quiet, json=json)
        interactive = InteractiveSession(
            connection,
            op.session_id,
            watch,
            console,
            json=json,
            prompts=False,
            whole=arguments.verbose,
            delivery="steer",
        )
        interactive.start_from((), busy=True)
        interactive.ends_with = turn_id
        if not json and not console.quiet:
            console.line(console.paint.dim(f"session {op.session_id}"))
        try:
            ended = _until_ended(connection, interactive, signals, turn_id)
        finally:
            interactive.show_end()
    if json and ended.error:
        complain(one_line(ended.error.message))
    return status_of(ended.outcome)


def join(connection: DaemonConnection, reference: str, directory: str = ".") -> tuple[str, int]:
    """The id of a session, and the `seq` of its last event."""
    from tiller_client import choose

    session_id = choose.session_id(connection, reference, directory, changes=True)
    return session_id, connection.ask(Replay(session_id, limit=1), ReplayResult).head


def status_of(outcome: Outcome) -> int:
    """The exit status for an outcome."""
    match outcome:
        case "completed":
            return 0
        case "failed":
            return 1
        case "blocked":
            return 3
        case "limit_reached":
            return 4
        case "interrupted":
            return STATUS_INTERRUPTED
        case _:
            assert_never(outcome)


def _until_ended(
    connection: DaemonConnection, interactive: "InteractiveSession", signals: Signals, turn_id: str
) -> TurnEnded:
    def interrupt() -> None:
        with contextlib.suppress(RejectedError):  # it may have ended just now
            connection.submit(Interrupt(interactive.session_id, turn_id))

    while True:
        try:
            update = interactive.advance()
        except BrokenPipeError:
            if signals.interrupted:  # the same Ctrl-C has ended the reader of stdout
                interrupt()
            raise
        if interactive.ended:
            return interactive.ended
        if update.interrupted:
            interrupt()
