"""Measures a flood of output: the daemon's memory and CPU time, and the delay of other clients.

Several sessions at once each run a command with much output, first as short lines and then as one
endless line. Meanwhile another frontend asks for an idle session, again and again; the times stand
for the lag of the daemon's loop, though they include the sockets. It also asks before the flood,
for comparison. Memory is the highest resident size less the size before the flood.
"""

import argparse
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pynng
import trio

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("tests", "daemon", "protocol", "client")]

from support.daemon import CONFIG, Daemon  # noqa: E402 - found there
from support.frontend import Frontend, new_id  # noqa: E402
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart  # noqa: E402
from tiller_protocol.codec import encode_submission  # noqa: E402
from tiller_protocol.ops import SessionGet, Submission  # noqa: E402
from tiller_protocol.places import OPS_SOCKET, TOKEN_FILE  # noqa: E402

KINDS = {
    "lines": "yes | head -c {size}",
    "one line": "head -c {size} /dev/zero | tr '\\0' x",
}
IDLE_S = 4.0
PAUSE_S = 0.01
"""Seconds between two questions of a busy frontend."""

TURN_S = 1_800.0


async def flood(kind: str, sessions: int, size: int) -> None:
    """Run one kind of flood and print its figures."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as workspace:
        async with trio.open_nursery() as nursery:
            with Daemon(Path(home), CONFIG) as daemon:
                frontend = await Frontend.connect(daemon, nursery)
                other = await Frontend.connect(daemon, nursery, "other")
                idle = await other.session(Path(workspace), _text())
                # First do what a daemon does only once, such as the first turn's imports.
                await _run(frontend, Path(workspace), "true", 1)
                asker = _Asker(daemon, idle)
                await trio.sleep(IDLE_S)
                before = asker.answers_s()
                asker = _Asker(daemon, idle)
                memory = _Memory(daemon)
                cpu_s, began = _cpu_s(daemon), time.monotonic()
                async with trio.open_nursery() as watching:
                    watching.start_soon(memory.watch)
                    await _run(frontend, Path(workspace), KINDS[kind].format(size=size), sessions)
                    watching.cancel_scope.cancel()
                took_s, cpu_s = time.monotonic() - began, _cpu_s(daemon) - cpu_s
                during = asker.answers_s()
                await frontend.disconnect()
                await other.disconnect()
            nursery.cancel_scope.cancel()
    total_mb = sessions * size / 1e6
    print(f"{kind}: {sessions} of {size / 2**20:.0f} MiB in {took_s:.1f} s", end=", ")
    print(f"{cpu_s / total_mb * 1e3:.2f} ms of the daemon's CPU for each MB")
    print(f"  memory: {memory.more_bytes / sessions / 1e6:.1f} MB more for each session")
    for name, took in (("nothing else", before), ("the flood", during)):
        cuts = statistics.quantiles(took, n=100)
        print(f"  an answer beside {name}: p50 {cuts[49] * 1e3:.1f} ms", end=", ")
        print(f"p99 {cuts[98] * 1e3:.1f}, longest {max(took) * 1e3:.1f} (n = {len(took)})")


class _Memory:
    """Tracks by how much the daemon's memory grows."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._before_bytes = daemon.rss_bytes
        self.more_bytes = 0

    async def watch(self) -> None:
        """Look at the memory until cancelled."""
        while True:
            self.more_bytes = max(self.more_bytes, self._daemon.rss_bytes - self._before_bytes)
            await trio.sleep(PAUSE_S)


class _Asker:
    """A frontend in a separate process, which asks until told to stop."""

    def __init__(self, daemon: Daemon, session_id: str) -> None:
        arguments = ["--ask", str(daemon.places.runtime), session_id]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def answers_s(self) -> list[float]:
        """Stop asking, and return the seconds that each answer took."""
        said, _ = self._process.communicate(b"stop")
        return msgspec.json.decode(said, type=list[float])


def _ask(runtime: Path, session_id: str) -> None:
    token = (runtime / TOKEN_FILE).read_text()
    took_s: list[float] = []
    with pynng.Req0(dial=f"ipc://{runtime / OPS_SOCKET}", block_on_dial=True) as socket:
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            submission = Submission(new_id(), SessionGet(session_id), "asker", token)
            frame = encode_submission(submission)
            began = time.monotonic()
            socket.send(frame)
            socket.recv()
            took_s.append(time.monotonic() - began)
    print(msgspec.json.encode(took_s).decode())


async def _run(frontend: Frontend, workspace: Path, command: str, sessions: int) -> None:
    """Run a command in several sessions at once."""
    arguments = {"command": command, "timeout_s": 600}
    call = ScriptStep(parts=(CallPart("bash", arguments=arguments),))
    async with trio.open_nursery() as nursery:
        for _ in range(sessions):
            session_id = await frontend.session(workspace, call, _text())
            await frontend.say(session_id)
            nursery.start_soon(_until_idle, frontend, session_id)


async def _until_idle(frontend: Frontend, session_id: str) -> None:
    with trio.fail_after(TURN_S):
        while (await frontend.snapshot(session_id)).turn is not None:  # noqa: ASYNC110
            await trio.sleep(0.2)


def _text() -> ScriptStep:
    return ScriptStep(parts=(TextPart("done"),))


def _cpu_s(daemon: Daemon) -> float:
    """Return the CPU seconds of the daemon itself, without its children."""
    assert daemon.process is not None
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure every kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--mib", type=int, default=1024, help="MiB that each session prints")
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        _ask(Path(arguments.ask[0]), arguments.ask[1])
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for kind in KINDS:
        trio.run(flood, kind, arguments.sessions, arguments.mib * 2**20)


if __name__ == "__main__":
    main()
