"""Measures a gateway: its memory and CPU time for many sessions, the stream, and tasks per second.

Run as `gateway.py [SESSIONS …]`, by default 1, 100 and 1,000 sessions with one short turn each. It
starts a NATS server, a daemon and a gateway on this machine. The last figure is of 50 tasks that
answer at once, in 8 slots.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from support.fleet import Broker, Host, repository  # noqa: E402 - found there
from tiller_client.api.blocking import Client  # noqa: E402
from tiller_daemon.models.scripted import ScriptStep, TextPart  # noqa: E402
from tiller_protocol.events import TurnEnded  # noqa: E402
from tiller_protocol.settings import Settings  # noqa: E402

TASKS, SLOTS = 50, 8
PIECES = 20
SETTLE_S = 10.0
"""After the last turn, until the gateway has published everything."""


def main(counts: list[int]) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (root / "h").mkdir()
        broker = stack.enter_context(Broker(root))
        host = stack.enter_context(Host(root / "h", "host", broker, f"slots = {SLOTS}"))
        words = "word " * 100
        host.daemon.play("main", ScriptStep(parts=(TextPart(words, pieces=PIECES),), repeat=True))
        assert host.gateway
        work = root / "work"
        work.mkdir()
        made = 0
        with Client("bench", environ=host.daemon.variables) as client:
            for count in counts:
                before = _cpu_s(host.gateway.pid)
                for _ in range(count - made):
                    _run_turn(client, work)
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


def _run_turn(client: Client, workspace: Path) -> None:
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
    main([int(word) for word in sys.argv[1:]] or [1, 100, 1000])
