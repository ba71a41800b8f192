"""Measures a link over the fleet beside the daemon's own socket: submissions, and publications.

Run as `fleet.py [ROUNDS]`. With `fleet.py gateway [SESSIONS …]`, it measures a gateway instead: its
memory and CPU time for 1, 100 and 1,000 sessions with one short turn each, the size of the stream,
and 50 tasks that answer at once, in 8 slots.

It starts a NATS server, a daemon, and both ends of a link, each in its own process on this machine.
A publication's delay is the time from its arrival at the daemon's own socket to its arrival at the
link's.
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
from support.fleet import Broker, Host, repository  # noqa: E402
from tiller_client.api.blocking import Client  # noqa: E402
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
from tiller_protocol.settings import Settings  # noqa: E402

ROUNDS = 300
PIECES = 300

TASKS, SLOTS = 50, 8
SHORT_PIECES = 20
SETTLE_S = 10.0
"""After the last turn, until the gateway has published everything."""

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


def measure_gateway(counts: list[int]) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (root / "h").mkdir()
        broker = stack.enter_context(Broker(root))
        host = stack.enter_context(Host(root / "h", "host", broker, f"slots = {SLOTS}"))
        words = "word " * 100
        host.daemon.play(
            "main", ScriptStep(parts=(TextPart(words, pieces=SHORT_PIECES),), repeat=True)
        )
        assert host.gateway
        work = root / "work"
        work.mkdir()
        made = 0
        with Client("bench", environ=host.daemon.variables) as client:
            for count in counts:
                before = _cpu_s(host.gateway.pid)
                for _ in range(count - made):
                    _turn(client, work)
                time.sleep(SETTLE_S)
                used = _cpu_s(host.gateway.pid) - before
                memory, disk = _rss(host.gateway.pid), _size(root / "js")
                print(
                    f"{count:5} sessions: {memory / 1e6:.0f} MB in memory, "
                    f"{1000 * used / (count - made):.1f} CPU ms a session with a turn, "
                    f"{disk / 1e6:.2f} MB on the broker's disk",
                    flush=True,
                )
                made = count
        origin = repository(root / "origin")
        began = time.perf_counter()
        done = host.tiller("fleet", "run", "Go", "--repo", str(origin), "--n", str(TASKS), "--wait")
        assert not done.returncode, done.stderr
        print(f"{TASKS / (time.perf_counter() - began):.2f} tasks a second in {SLOTS} slots")


def _turn(client: Client, workspace: Path) -> None:
    session = client.create_session(workspace, Settings())
    with session.follow() as events:
        session.send("Go")
        for event in events:
            if isinstance(event.body, TurnEnded):
                return


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _size(directory: Path) -> int:
    return int(subprocess.check_output(["du", "-sb", directory]).split()[0])


if __name__ == "__main__":
    if sys.argv[1:2] == [FAR_END]:
        serve_far_end(*sys.argv[2:])
    elif sys.argv[1:2] == ["gateway"]:
        measure_gateway([int(word) for word in sys.argv[2:]] or [1, 100, 1000])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
