"""`exec` and `resume`: run one turn to its end, from a prompt or without a new message.

Modules that only show the turn are imported after it has started, to reach the model sooner.
"""

import contextlib
import signal
import sys
from argparse import Namespace
from collections.abc import Generator
from types import FrameType
from typing import NoReturn

from tiller_client.command_line.choices import read_overrides, read_settings
from tiller_client.command_line.prompt import (
    name_files,
    read_images,
    read_prompt,
    read_schema,
    read_workspace,
    read_worktree,
)
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.errors import NoAnswer, NoDaemon, RejectedError, TimedOut, UsageError
from tiller_client.following.watch import Signals, Watch
from tiller_client.program_name import program
from tiller_protocol.answers import Created, Queued, ReplayResult, Started, Steered
from tiller_protocol.events import StatusChanged
from tiller_protocol.ops import (
    Compact,
    Replay,
    SessionCreate,
    SessionDelete,
    Shell,
    TurnContinue,
    UserInput,
)
from tiller_protocol.settings import TurnOverrides

AnyTurnOp = UserInput | TurnContinue | Compact | Shell
"""The ops that start a turn."""

ENDS_TURN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""The signals that interrupt a turn; SIGALRM comes when the time limit has passed."""

WAYS_TO_WAIT = "Add your prompt to it with --queue, or run a new turn after it with --wait."


def run(arguments: Namespace) -> int:
    """Run one turn; the exit status tells how it ended."""
    if arguments.verb == "resume":
        return _resume(arguments)
    return _exec(arguments)


def _resume(arguments: Namespace) -> int:
    asks = not arguments.session
    if asks and (arguments.json or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise UsageError(
            f"name the session: {program()} resume SESSION, where `last` is the most recently "
            "active one of this directory. You can choose from a list only on a terminal"
        )
    with _time_limit(arguments.timeout), connect("tiller resume") as connection:
        if asks:
            from tiller_client.verbs.sessions import pick_session

            arguments.session = pick_session(connection)
        session_id, after = join(connection, arguments.session)
        op = TurnContinue(session_id, read_overrides(arguments))
        return follow_turn(connection, op, after, arguments)


def _exec(arguments: Namespace) -> int:
    if arguments.queue and not arguments.session:
        raise UsageError("a new session is never busy; --queue needs --session SESSION")
    with _time_limit(arguments.timeout):
        # Within the time limit, because a pipe may never end.
        worktree = read_worktree(arguments)
        if worktree and arguments.session:
            raise UsageError("--worktree is for a new session; leave out --session")
        text, context = read_prompt(arguments.prompt, arguments.worktree or "")
        images, files = read_images(arguments.image), name_files(arguments.file)
        schema = read_schema(arguments.output_schema) if arguments.output_schema else None
        workspace = read_workspace(arguments.directory)
        with connect("tiller exec") as connection:
            if arguments.session:
                session_id, after = join(connection, arguments.session, workspace)
                overrides = read_overrides(arguments, schema)
            else:
                settings = read_settings(arguments)
                created = SessionCreate(workspace, settings=settings, worktree=worktree)
                session_id, after = connection.ask(created, Created).session_id, 0
                overrides = TurnOverrides(output_schema=schema)
            delivery = "queue" if arguments.queue else "start"
            op = UserInput(
                session_id,
                text,
                images,
                files,
                delivery,
                overrides=overrides,
                context=context,
            )
            try:
                return follow_turn(connection, op, after, arguments)
            except RejectedError:
                if not arguments.session:
                    with contextlib.suppress(RejectedError):
                        connection.submit(SessionDelete(session_id))
                raise


@contextlib.contextmanager
def _time_limit(seconds: float | None) -> Generator[None]:
    """Raise `TimedOut` after this time, wherever the program waits, until `Signals` takes over."""
    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _give_up(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TimedOut("the time limit (--timeout) passed before a turn began")


def follow_turn(
    connection: DaemonConnection, op: AnyTurnOp, after: int, arguments: Namespace
) -> int:
    """Submit an op that starts a turn, and show the session until the turn has ended.

    `arguments` say how much to show: `json`, `verbose` or `quiet`. A signal interrupts the turn,
    and its end is awaited; a second Ctrl-C raises `Detached`. With `detach`, a signal leaves the
    turn running. A request that nobody can answer ends the turn, unless `wait`. Returns the exit
    status.
    """
    how = f"to watch it, run: {program()} attach {op.session_id}"
    with (
        Signals(
            f"detached; the turn may still be running; {how}", ENDS_TURN, leaves=arguments.detach
        ) as signals,
        Watch(
            connection, op.session_id, signals, after, patient=True, leaves_stopped=True
        ) as watch,
    ):
        waits = arguments.verb == "exec" and arguments.wait
        started = _start(connection, op, watch, signals, waits=waits)
        from tiller_client.following.turn import RunningTurn
        from tiller_client.verbs.submitting import mark_seen

        turn = RunningTurn(op, watch, signals, arguments)
        try:
            status = turn.follow(started)
            mark_seen(connection, op.session_id, watch.last)
            return status
        except NoAnswer as silence:
            raise NoAnswer(f"{silence}; the turn may still be running; {how}") from None
        except NoDaemon:
            end = "the daemon was stopped before it reported how the turn ended"
            raise NoDaemon(f"{end}; to see it, run: {program()} show {op.session_id}") from None


def _start(
    connection: DaemonConnection, op: AnyTurnOp, watch: Watch, signals: Signals, *, waits: bool
) -> Started | Queued | Steered:
    """Submit the op. With `waits`, submit it again when a busy session has become idle."""
    said = False
    while True:
        try:
            result = connection.submit(op).result
            assert isinstance(result, Started | Queued | Steered)
            return result
        except RejectedError as error:
            if error.code != "busy" or not isinstance(op, UserInput):
                raise
            if not waits:
                raise RejectedError(error.answer, f"{error} {WAYS_TO_WAIT}") from None
        if not said:
            said = True
            from tiller_client.console import complain

            complain("a turn is running in this session; waiting for its end")
        _await_rest(watch, signals)


def _await_rest(watch: Watch, signals: Signals) -> None:
    while True:
        update = watch.wait(busy=True)
        if signals.timed_out:
            raise TimedOut("the time limit (--timeout) passed while the session was still busy")
        if update.cut_off:
            raise update.cut_off
        if update.interrupted:
            raise KeyboardInterrupt
        if any(event.body == StatusChanged("idle") for event in update.events):
            return


def join(connection: DaemonConnection, reference: str, directory: str = ".") -> tuple[str, int]:
    """Return the id of a session and the `seq` of its last event."""
    from tiller_client.command_line import choose

    session_id = choose.session_id(connection, reference, directory, changes=True)
    return session_id, connection.ask(Replay(session_id, limit=1), ReplayResult).head
