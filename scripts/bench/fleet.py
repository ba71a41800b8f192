"""Measures a link over the fleet beside the daemon's own socket: submissions, and publications.

Run as `fleet.py [ROUNDS]`. It starts a NATS server, a daemon, and both ends of a link, each
in its own process on this machine. A publication's delay is the time from its arrival at the
daemon's own socket to its arrival at the link's.
"""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from table import Row, print_rows

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from support.daemon import Daemon  # noqa: E402 - found there
from support.far_homes import FarHome  # noqa: E402
from support.far_host import GATEWAY, ROLES, FarHost, url  # noqa: E402
from support.fleet import Broker  # noqa: E402
from tiller_client.connecting.connection import DaemonConnection  # noqa: E402
from tiller_client.connecting.hosts import remote_daemon  # noqa: E402
from tiller_client.connecting.runtime import know_remote  # noqa: E402
from tiller_client.connecting.sockets import EventSocket  # noqa: E402
from tiller_daemon.models.scripted import ScriptStep, TextPart  # noqa: E402
from tiller_protocol.answers import Created, ReplayResult  # noqa: E402
from tiller_protocol.codec import decode_event  # noqa: E402
from tiller_protocol.events import TurnEnded  # noqa: E402
from tiller_protocol.ops import Replay, SessionConfigure, SessionCreate, UserInput  # noqa: E402
from tiller_protocol.places import Places, find_places  # noqa: E402

ROUNDS = 300
PIECES = 300

FAR_END = "far-end"
"""The first argument of the process with the far end of the link."""


def main(rounds: int) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("n", "d", "h"):
            (root / name).mkdir()
        nats = stack.enter_context(Broker(root / "n", ROLES))
        daemon = stack.enter_context(Daemon(root / "d"))
        home = FarHome(root / "h", f'[fleet]\nservers = ["{url(nats)}"]')
        far_end = subprocess.Popen(
            [sys.executable, __file__, FAR_END, url(nats, GATEWAY), str(root / "d" / "t")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        stack.callback(far_end.wait)
        stack.callback(far_end.communicate)
        assert far_end.stdout
        far_end.stdout.readline()
        stack.enter_context(home)
        os.environ.update(home.variables)
        remote = remote_daemon("box")
        know_remote(remote)
        local = stack.enter_context(DaemonConnection(daemon.places, "bench"))
        far = stack.enter_context(DaemonConnection(remote.places, "bench"))
        step = ScriptStep(parts=(TextPart("some words " * PIECES, pieces=PIECES),), repeat=True)
        create = SessionCreate(str(root), model=daemon.script(step))
        session_id, read = (local.ask(create, Created).session_id for _ in range(2))
        rows: list[Row] = []
        for name, connection in (("socket", local), ("link", far)):
            rows.append(_timed(f"replay, {name}", rounds, _reading(connection, read)))
            rows.append(_timed(f"set a title, {name}", rounds, _writing(connection, session_id)))
        far.ask(Replay(session_id), ReplayResult)  # from now on, it is published over the fleet
        rows.append(_delays(local, remote.places, session_id))
        print_rows(rows)


def _reading(connection: DaemonConnection, session_id: str) -> Callable[[int], object]:
    return lambda _: connection.ask(Replay(session_id), ReplayResult)


def _writing(connection: DaemonConnection, session_id: str) -> Callable[[int], object]:
    return lambda number: connection.submit(SessionConfigure(session_id, title=f"title {number}"))


def _timed(name: str, rounds: int, work: Callable[[int], object]) -> Row:
    values: list[float] = []
    for number in range(rounds):
        begun = time.perf_counter()
        work(number)
        values.append(1000 * (time.perf_counter() - begun))
    return Row(name, "ms", tuple(values))


def _delays(local: DaemonConnection, far: Places, session_id: str) -> Row:
    """Run a turn, and note when each of its publications arrives on both sockets."""
    sockets = [EventSocket(places, session_id) for places in (local.places, far)]
    arrived: list[dict[int, float]] = [{}, {}]
    local.submit(UserInput(session_id, "go"))
    left = {0, 1}
    while left:
        select.select([one for socket in sockets for one in socket.sources], [], [])
        for place, socket in enumerate(sockets):
            now = time.perf_counter()
            for body in socket.drain_bodies():
                event = decode_event(body)
                arrived[place][event.seq] = now
                if isinstance(event.body, TurnEnded):
                    left.discard(place)
    for socket in sockets:
        socket.close()
    both = arrived[0].keys() & arrived[1].keys()
    values = tuple(1000 * (arrived[1][seq] - arrived[0][seq]) for seq in both)
    return Row("delay of a publication", "ms", values)


def serve_far_end(address: str, home: str) -> None:
    """Run the far end of the link until stdin ends."""
    variables = {"TILLER_HOME": home, "HOME": home}
    places = find_places(variables, sys.platform, os.getuid())
    with FarHost(address, "box", places):
        print("up", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:2] == [FAR_END]:
        serve_far_end(*sys.argv[2:])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
