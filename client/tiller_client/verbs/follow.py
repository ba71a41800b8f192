"""`attach` and `log`: show a session's events from a given event on; `attach` follows new ones."""

from argparse import Namespace

from tiller_client.command_line import choose
from tiller_client.connecting.connection import DaemonConnection, connect
from tiller_client.console import Console, print_json
from tiller_client.errors import UsageError
from tiller_client.following.interactive import InteractiveSession
from tiller_client.following.snapshots import read_events
from tiller_client.following.watch import Signals, Watch
from tiller_client.rendering.events import Renderer
from tiller_client.rendering.labels import is_shown
from tiller_client.verbs.all_hosts import find_session
from tiller_client.verbs.submitting import mark_seen
from tiller_protocol.events import ItemCompleted, ItemStarted
from tiller_protocol.snapshot import SessionSummary

NAME = "tiller attach"

TAIL_EVENTS = 200
"""How many events at the end of the log are searched first for the last items."""

TAIL_GROWTH = 8
"""Factor by which `TAIL_EVENTS` grows as long as those events hold too few items."""


def run(arguments: Namespace) -> int:
    """Run `attach` or `log`."""
    if arguments.verb == "attach":
        find_session(arguments)
    with connect(NAME) as connection:
        session = choose.session(connection, arguments.session)
        after = _after(connection, session, arguments)
        if after > session.head:
            raise UsageError(
                f"--after {after} is beyond the last event of this session, number {session.head}"
            )
        if arguments.verb == "log":
            return _log(connection, session, after, arguments)
        return _attach(connection, session, after, arguments)


def _after(connection: DaemonConnection, session: SessionSummary, arguments: Namespace) -> int:
    """Return the event to start after. `--tail` counts items, or events with `--json`."""
    if arguments.tail is None:
        return arguments.after
    if arguments.json:
        return max(0, session.head - arguments.tail)
    return before_last_items(connection, session, arguments.tail)


def before_last_items(
    connection: DaemonConnection, session: SessionSummary, number_of_items: int
) -> int:
    """Return the `seq` of the event before the last items; reads no more log than necessary."""
    reach = TAIL_EVENTS
    while True:
        after = max(0, session.head - reach)
        starts: dict[str, int] = {}
        for event in read_events(connection.ask, session.session_id, after):
            match event.body:
                case ItemStarted(item):
                    starts[item.id] = event.seq
                case ItemCompleted(item) if not is_shown(item):
                    starts.pop(item.id, None)
                case _:
                    pass
        if len(starts) >= number_of_items:
            return sorted(starts.values())[-number_of_items] - 1
        if not after:
            return 0
        reach *= TAIL_GROWTH


def _log(
    connection: DaemonConnection, session: SessionSummary, after: int, arguments: Namespace
) -> int:
    console = Console()
    renderer = Renderer(
        console.theme, console.width, wraps=console.terminal, whole=arguments.verbose
    )
    for event in read_events(connection.ask, session.session_id, after):
        if arguments.json:
            print_json(event)
        else:
            console.show(renderer.feed(event))
    console.show(renderer.end_line())
    return 0


def _attach(
    connection: DaemonConnection, session: SessionSummary, after: int, arguments: Namespace
) -> int:
    """Follow until Ctrl-C, the end of input, or with `--until-idle` the end of the turn."""
    console = Console(quiet=arguments.quiet, json=arguments.json)
    with (
        Signals("detached") as signals,
        Watch(connection, session.session_id, signals, after, patient=True) as watch,
    ):
        interactive = InteractiveSession(watch, console, whole=arguments.verbose)
        interactive.follow(
            session, lambda: arguments.until_idle and watch.caught_up and interactive.idle
        )
        mark_seen(connection, session.session_id, watch.last)
    return 0
