"""Measures how fast the log commits and the sockets answer: median and spread of several runs.

Run as `log_and_sockets.py [RUNS]`. The log is on the disk of the temporary directory; the frontends
are threads in another process. On a busy machine the figures mean little, so look at the spread.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pynng
import trio

from tiller_daemon.store.base import Batch, EventRow, SessionRow
from tiller_daemon.store.log import SqliteLog, open_log
from tiller_daemon.transport.nng import NngTransport
from tiller_daemon.transport.runtime import RuntimeDirectory
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET

RUNS = 5
BODY_BYTES = 400
APPENDS = 4000
ASKS = 4000
PUBLICATIONS = 50_000
MESSAGE_BYTES_MAX = 1 << 24

Figures = dict[str, float]


def main(runs: int) -> None:
    """Measure everything `runs` times."""
    for sessions in (1, 8, 64):
        report(f"log, {sessions} sessions", runs, lambda n=sessions: trio.run(log_run, n))
    for frontends in (1, 8):
        report(f"ops, {frontends} frontends", runs, lambda n=frontends: asking_run(n))
    report("events, 1 subscriber", runs, lambda: trio.run(publishing_run))


def report(name: str, runs: int, run: Callable[[], Figures]) -> None:
    """Print the median of each figure, and its least and greatest values."""
    found = [run() for _ in range(runs)]
    print(name)
    for key in found[0]:
        values = sorted(figures[key] for figures in found)
        middle = statistics.median(values)
        print(f"  {key:<22}{middle:>10.0f}   ({values[0]:.0f} … {values[-1]:.0f})")


async def log_run(sessions: int) -> Figures:
    """Measure a log to which each session appends one event at a time, as a turn does."""
    latencies: list[float] = []

    async def session(log: SqliteLog, name: str) -> None:
        body = os.urandom(BODY_BYTES)
        for seq in range(1, APPENDS // sessions + 1):
            row = SessionRow(name, "/w", 1.0, float(seq), seq)
            begun = time.perf_counter()
            await log.append(Batch(row, (EventRow(seq, 1.0, body),)))
            latencies.append(time.perf_counter() - begun)

    with tempfile.TemporaryDirectory() as directory:
        async with open_log(Path(directory, "tiller.db")) as log:
            begun, cpu = time.perf_counter(), time.process_time()
            async with trio.open_nursery() as nursery:
                for number in range(sessions):
                    nursery.start_soon(session, log, f"s{number}")
            took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return figures_of(latencies, took, cpu)


def asking_run(frontends: int) -> Figures:
    """Measure frontends that each ask, wait for the answer, and ask again."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "serve", directory]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            server.stdout.readline()
            latencies: list[float] = []
            asking = [
                threading.Thread(target=ask, args=(directory, ASKS // frontends, latencies))
                for _ in range(frontends)
            ]
            begun, cpu = time.perf_counter(), cpu_seconds(server.pid)
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
            took, cpu = time.perf_counter() - begun, cpu_seconds(server.pid) - cpu
            server.terminate()
    return figures_of(latencies, took, cpu)


def ask(directory: str, count: int, latencies: list[float]) -> None:
    """Ask `count` times as one frontend, and record how long each answer takes."""
    with pynng.Req0(dial=f"ipc://{directory}/{OPS_SOCKET}") as asker:
        for _ in range(count):
            begun = time.perf_counter()
            asker.send(bytes(200))
            asker.recv()
            latencies.append(time.perf_counter() - begun)


async def serve(directory: Path) -> None:
    """Answer the frontends until killed; runs in a separate process."""

    async def echo(submission: bytes) -> bytes:
        return submission

    with RuntimeDirectory(directory), NngTransport(directory, MESSAGE_BYTES_MAX) as transport:
        print("ready", flush=True)
        await transport.serve(echo)


async def publishing_run() -> Figures:
    """Measure what publishing costs the daemon; frontends read missed events from the log."""
    event = os.urandom(BODY_BYTES)
    with (
        tempfile.TemporaryDirectory() as directory,
        NngTransport(Path(directory), MESSAGE_BYTES_MAX) as transport,
        pynng.Sub0(dial=f"ipc://{directory}/{EVENTS_SOCKET}", topics=[b""]),
    ):
        begun, cpu = time.perf_counter(), time.process_time()
        for _ in range(PUBLICATIONS):
            transport.publish("session", event)
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"per second": PUBLICATIONS / took, "cpu us": cpu / PUBLICATIONS * 1e6}


def figures_of(latencies: list[float], took: float, cpu: float) -> Figures:
    """Return operations a second and latencies in microseconds."""
    ordered = sorted(latencies)
    return {
        "per second": len(ordered) / took,
        "p50 us": ordered[len(ordered) // 2] * 1e6,
        "p99 us": ordered[int(len(ordered) * 0.99)] * 1e6,
        "cpu us": cpu / len(ordered) * 1e6,
    }


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, from Linux's /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        trio.run(serve, Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else RUNS)
