"""`attach` and `log`: a session's events from a given one on, live or so far."""

from argparse import Namespace

from tiller_client import choose
from tiller_client.catchup import Follower
from tiller_client.connection import DaemonConnection
from tiller_client.console import Console, print_json
from tiller_client.errors import UsageError
from tiller_client.interactive import InteractiveSession
from tiller_client.render import Renderer
from tiller_client.runtime import my_places
from tiller_client.watch import Signals, Watch
from tiller_protocol.answers import ReplayResult, SessionSummary
from tiller_protocol.ops import Replay

NAME = "tiller attach"


def run(arguments: Namespace) -> int:
    """Run `attach` or `log`."""
    with DaemonConnection(my_places(), NAME) as connection:
        session = choose.session(connection, arguments.session)
        if arguments.after > session.head:
            raise UsageError(
                f"--after {arguments.after} is beyond the last event of this session, "
                f"number {session.head}"
            )
        if arguments.verb == "log":
            return _log(connection, session, arguments)
        return _attach(connection, session, arguments)


def _log(connection: DaemonConnection, session: SessionSummary, arguments: Namespace) -> int:
    console = Console()
    renderer = Renderer(
        console.paint, console.width, wraps=console.terminal, whole=arguments.verbose
    )
    follower = Follower(connection.hello.log_id, arguments.after)
    while (after := follower.wanted) is not None:
        result = connection.ask(Replay(session.session_id, after), ReplayResult)
        for event in follower.take_replay(result, connection.hello.log_id).events:
            if arguments.json:
                print_json(event)
            else:
                console.show(renderer.feed(event))
    console.show(renderer.end_line())
    return 0


def _attach(connection: DaemonConnection, session: SessionSummary, arguments: Namespace) -> int:
    """Follow until Ctrl-C, the end of input, or with `--until-idle` the end of the turn."""
    console = Console(quiet=arguments.quiet, json=arguments.json)
    with (
        Signals("detached") as signals,
        Watch(connection, session.session_id, signals, arguments.after, patient=True) as watch,
    ):
        interactive = InteractiveSession(
            connection,
            session.session_id,
            watch,
            console,
            json=arguments.json,
            prompts=True,
            whole=arguments.verbose,
            delivery="auto",
        )
        interactive.start_from(session.requests, busy=session.status != "idle")
        try:
            while True:
                update = interactive.advance()
                if update.interrupted or update.input_ended:
                    return 0
                if arguments.until_idle and watch.caught_up and interactive.idle:
                    return 0
        finally:
            interactive.show_end()
