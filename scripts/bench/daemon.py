#!/usr/bin/env python3
"""Measures the daemon end to end: real processes, real sockets, HTTP to a local model server.

    .venv/bin/python scripts/bench/daemon.py [--quick] [--only start,turn,...] [--home DIR]
                                             [--slow-disk MS]

Prints one table; docs/performance.md explains its figures and their budgets. `--home` names the
directory for the daemons' homes. Figures that wait for the log show the speed of the disk there
(its fdatasync time is printed first), or of the program in /dev/shm. `--slow-disk 10` makes every
sync by the daemon take 10 ms longer (needs `cc`). `--quick` takes a minute.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import trio
from cli import compile_project
from measured import Daemon, Frontend, Model, await_death, frontend_of, pid_of, slow_disk
from model_server import Play
from table import Row, print_rows, slope

from tiller_protocol.events import ItemDelta, TurnEnded
from tiller_protocol.ops import Interrupt

TILLER = (sys.executable, "-P", "-m", "tiller_client")
SYNC_WRITES = 100
THINK_MS = 20.0
STAGES = (
    "input to ack",
    "input to request",
    "first delta to frontend",
    "stream's end to turn_ended",
)
SESSION_TURNS = 25
"""Turns in one session before a new session is made, so that the history stays short."""


def main() -> None:
    """Measure the requested parts and print the table."""
    parser = argparse.ArgumentParser(description="Measure the daemon end to end.")
    parser.add_argument("--quick", action="store_true", help="run a short check of about a minute")
    parser.add_argument("--only", help=f"parts to run, of {','.join(PARTS)}; default: all")
    parser.add_argument("--home", type=Path, help="directory for homes; default: a temporary one")
    parser.add_argument("--slow-disk", type=float, metavar="MS", help="delay each sync by MS")
    arguments = parser.parse_args()
    parts = arguments.only.split(",") if arguments.only else list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there are no parts {', '.join(unknown)}; there are {', '.join(PARTS)}")
    compile_project()
    root = Path(tempfile.mkdtemp(prefix="tb", dir=arguments.home))
    try:
        syncs = _sync_ms(root)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {root}")
        if arguments.slow_disk:
            Daemon.shared_variables = slow_disk(root, arguments.slow_disk)
        rows = [Row("fdatasync of the disk", "ms", syncs)]
        for part in parts:
            with Model() as model:
                home = root / part
                rows += trio.run(partial(PARTS[part], home, model, quick=arguments.quick))
        print_rows(rows)
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def measure_start(root: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure the daemon's start, `--help`, and the time from command line to first request."""
    count = 3 if quick else 10
    ready: list[float] = []
    cold: list[float] = []
    for number in range(count):
        daemon = Daemon(root / f"s{number}", model.url)
        with daemon:
            pass
        ready.append(daemon.start() * 1000)
        daemon.stop()
    for number in range(count):
        daemon = Daemon(root / f"c{number}", model.url)
        cold.append((await _exec(daemon, model, f"cold{number}"))[0])
        _client_cpu_ms(daemon, "daemon", "stop")
    warm: list[float] = []
    clients: list[float] = []
    with Daemon(root / "w", model.url) as daemon:
        await _exec(daemon, model, "first")
        for number in range(count):
            took_ms, cpu_ms = await _exec(daemon, model, f"warm{number}")
            warm.append(took_ms)
            clients.append(cpu_ms)
        helps = [_help_ms(daemon) for _ in range(2 * count)]
    client_ms = statistics.median(clients)
    return [
        Row("daemon: start to ready", "ms", tuple(ready), None, 300),
        Row("tiller --help", "ms", tuple(helps), None, 100),
        Row("tiller exec to request, no daemon", "ms", tuple(cold), None, 250),
        Row("tiller exec to request, daemon runs", "ms", tuple(warm), client_ms, 120),
    ]


async def measure_turns(root: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure short turns, one after another, with a model that thinks and one that does not.

    With a model that thinks, each stage shows by itself. With one that answers at once the stages
    overlap, as the answer arrives while the input is still being written to the log.
    """
    count = 50 if quick else 300
    with Daemon(root, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, await frontend.create(), Play("warm", deltas=20))
            thinks = await _turns(frontend, model, count, think_ms=THINK_MS)
            begun = daemon.cpu_s()
            hurries = await _turns(frontend, model, count, think_ms=0)
            cpu_ms = (daemon.cpu_s() - begun) / count * 1000
    budgets = (2, 2.5, 0.8, 1.5)
    rows = [
        Row(name, "ms", values, None, budget)
        for (name, values), budget in zip(thinks.items(), budgets, strict=True)
    ]
    rows += [Row(f"  the same, answered at once: {name}", "ms", hurries[name]) for name in hurries]
    return [*rows, Row("CPU of a turn of 20 deltas", "ms", (cpu_ms,), None, 3)]


async def _turns(
    frontend: Frontend, model: Model, count: int, *, think_ms: float
) -> dict[str, tuple[float, ...]]:
    """Return the milliseconds that each stage took in `count` turns."""
    stages: list[tuple[float, ...]] = []
    session_id = ""
    for number in range(count):
        if number % SESSION_TURNS == 0:
            session_id = await frontend.create()
        begin = len(frontend.seen[session_id])
        play = Play(f"turn{think_ms}-{number}", deltas=20, think_ms=think_ms)
        submitted, accepted = await frontend.say(session_id, play)
        first = await frontend.until(session_id, ItemDelta, begin)
        ended = await frontend.until(session_id, TurnEnded, begin)
        (played,) = await model.played(play.id)
        stages.append(
            (
                _ms(submitted, accepted),
                _ms(submitted, played.arrived),
                _ms(played.began, first.at),
                _ms(played.ended, ended.at),
            )
        )
    return dict(zip(STAGES, zip(*stages, strict=True), strict=True))


async def measure_streams(root: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure one long answer at full speed, and one with a piece every 2 ms."""
    rows: list[Row] = []
    full = 20_000
    paced = 1_000 if quick else 2_000
    with Daemon(root, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, await frontend.create(), Play("warm", deltas=200))
            for name, pieces, pace_ms, budget in (
                ("CPU of a delta, 20,000 at full speed", full, 0.0, 6),
                ("CPU of a delta, one every 2 ms", paced, 2.0, 240),
            ):
                took_us: list[float] = []
                rates: list[float] = []
                events: list[float] = []
                for number in range(2 if quick else 5):
                    session_id = await frontend.create()
                    begun, at = daemon.cpu_s(), time.monotonic()
                    play = Play(f"{name}{number}", deltas=pieces, pace_ms=pace_ms)
                    await _turn(frontend, model, session_id, play)
                    took_us.append((daemon.cpu_s() - begun) / pieces * 1e6)
                    rates.append(pieces / (time.monotonic() - at))
                    events.append(len(frontend.seen[session_id]))
                rows.append(Row(name, "us", tuple(took_us), None, budget))
                rows.append(Row("  deltas a second", "1/s", tuple(rates)))
                rows.append(Row("  events that they became", "", tuple(events)))
    return rows


IN_SANDBOX = "the same, in the sandbox"


async def measure_steps(root: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure the time from the end of a response to the next request, with tools in between."""
    steps = 50 if quick else 200
    echo = Play("", rounds=steps, commands=["echo step-{n}"])
    read = Play("", rounds=steps, path="README.md")
    eight = Play("", rounds=10 if quick else 30, calls=8, path="README.md")
    rows: list[Row] = []
    with Daemon(root, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, await frontend.create(), Play("warm", rounds=2, path="."))
            for name, play, budget in (
                ("step with one echo in bash", echo, 4),
                (IN_SANDBOX, echo, 20),
                ("step with one read of 20 lines", read, 1.5),
                ("step with eight reads at once", eight, 6),
            ):
                sandboxed = name == IN_SANDBOX
                session_id = await frontend.create("workspace_write" if sandboxed else None)
                play.id = name
                begun = daemon.cpu_s()
                await _turn(frontend, model, session_id, play)
                cpu_ms = (daemon.cpu_s() - begun) / play.rounds * 1000
                played = await model.played(name, play.rounds + 1)
                gaps = [_ms(one.ended, after.arrived) for one, after in pairwise(played)]
                rows.append(Row(name, "ms", tuple(gaps), cpu_ms, budget))
                rows.append(Row("  slope over the steps", "us/step", (slope(gaps) * 1000,)))
    return rows


async def measure_many(root: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure a hundred concurrent sessions, each with 200 deltas at 100 a second."""
    count = 30 if quick else 100
    acks: list[float] = []
    requests: list[float] = []
    deltas: list[float] = []
    with Daemon(root, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            sessions = [await frontend.create() for _ in range(count)]
            await _turn(frontend, model, await frontend.create(), Play("warm"))

            async def one(session_id: str) -> None:
                play = Play(session_id, deltas=200, pace_ms=10)
                submitted, accepted = await frontend.say(session_id, play)
                first = await frontend.until(session_id, ItemDelta)
                await frontend.until(session_id, TurnEnded)
                (played,) = await model.played(play.id)
                acks.append(_ms(submitted, accepted))
                requests.append(_ms(submitted, played.arrived))
                deltas.append(_ms(played.began, first.at))

            begun, at = daemon.cpu_s(), time.monotonic()
            async with trio.open_nursery() as nursery:
                for session_id in sessions:
                    nursery.start_soon(one, session_id)
            wall_s = time.monotonic() - at
            cpu_s = daemon.cpu_s() - begun
    name = f"{count} sessions at once"
    return [
        Row(f"{name}: wall (2.0 by the model)", "s", (wall_s,), None, 2.4),
        Row(f"{name}: CPU", "s", (cpu_s,), None, 2 * count / 100),
        Row(f"{name}: input to ack", "ms", tuple(acks)),
        Row(f"{name}: input to request", "ms", tuple(requests), None, 150),
        Row(f"{name}: first delta", "ms", tuple(deltas)),
    ]


async def measure_memory(root: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure the daemon's memory: idle, with sessions loaded, and after they are unloaded."""
    count = 200 if quick else 1000
    daemon = Daemon(root, model.url)
    with daemon:
        idle = daemon.rss_bytes()
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, await frontend.create(), Play("warm"))
            used = daemon.rss_bytes()
            begun, at = daemon.cpu_s(), time.monotonic()
            for _ in range(count):
                await frontend.create()
            took_ms = (time.monotonic() - at) / count * 1000
            cpu_ms = (daemon.cpu_s() - begun) / count * 1000
            created = daemon.rss_bytes()
    daemon.start()
    restarted = daemon.rss_bytes()
    daemon.stop()
    return [
        Row("memory of the idle daemon", "MB", (idle / 1e6,), None, 45),
        Row("memory after the first turn", "MB", (used / 1e6,)),
        Row("memory of a loaded idle session", "KB", ((created - used) / count / 1e3,), None, 30),
        Row("memory of an unloaded session", "KB", ((restarted - idle) / count / 1e3,)),
        Row("session_create", "ms", (took_ms,), cpu_ms, 2.5),
    ]


async def measure_interrupts(root: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure interrupts of a stream that hangs and of a command that sleeps."""
    count = 10 if quick else 50
    streams: list[float] = []
    tools: list[float] = []
    deaths: list[float] = []
    with Daemon(root, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            for number in range(count):
                session_id = await frontend.create()
                await frontend.say(session_id, Play(f"hang{number}", deltas=10, hang=True))
                await frontend.until(session_id, ItemDelta)
                begun = time.monotonic()
                await frontend.ask(Interrupt(session_id))
                streams.append(_ms(begun, (await frontend.until(session_id, TurnEnded)).at))
            for number in range(count):
                session_id = await frontend.create()
                sleep = ("sleep", f"1000.{number}")
                play = Play(f"tool{number}", rounds=1, commands=[f"exec {' '.join(sleep)}"])
                await frontend.say(session_id, play)
                watched = os.pidfd_open(await pid_of(sleep))
                died: list[float] = []
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(await_death, watched, died)
                    begun = time.monotonic()
                    await frontend.ask(Interrupt(session_id))
                    ended = await frontend.until(session_id, TurnEnded)
                tools.append(_ms(begun, ended.at))
                deaths.append(_ms(begun, died[0]))
    return [
        Row("interrupt of a stream to turn_ended", "ms", tuple(streams), None, 3),
        Row("interrupt of a command to turn_ended", "ms", tuple(tools), None, 7),
        Row("interrupt of a command to its death", "ms", tuple(deaths), None, 6),
    ]


PARTS: dict[str, Callable[..., Awaitable[list[Row]]]] = {
    "start": measure_start,
    "turn": measure_turns,
    "stream": measure_streams,
    "step": measure_steps,
    "many": measure_many,
    "memory": measure_memory,
    "interrupt": measure_interrupts,
}


async def _turn(frontend: Frontend, model: Model, session_id: str, play: Play) -> None:
    """Run one turn to its end."""
    begin = len(frontend.seen[session_id])
    await frontend.say(session_id, play)
    ended = await frontend.until(session_id, TurnEnded, begin)
    assert isinstance(ended.event.body, TurnEnded)
    if ended.event.body.outcome != "completed":
        raise RuntimeError(f"a turn ended otherwise: {ended.event.body}")
    await model.played(play.id, play.rounds + 1)


async def _exec(daemon: Daemon, model: Model, name: str) -> tuple[float, float]:
    """Run `tiller exec`; return the milliseconds to the model request and of the client's CPU."""
    begun = time.monotonic()
    cpu_ms = _client_cpu_ms(daemon, "exec", "-C", str(daemon.workspace), f'PLAY {{"id": "{name}"}}')
    (played,) = await model.played(name)
    return _ms(begun, played.arrived), cpu_ms


def _client_cpu_ms(daemon: Daemon, *arguments: str) -> float:
    """Run a verb, which must succeed; return the CPU milliseconds of the client alone."""
    process = subprocess.Popen(
        [*TILLER, *arguments],
        env=daemon.variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"tiller {arguments[0]} ended with {process.returncode}")
    return (used.ru_utime + used.ru_stime) * 1000


def _help_ms(daemon: Daemon) -> float:
    begun = time.monotonic()
    _client_cpu_ms(daemon, "--help")
    return _ms(begun, time.monotonic())


def _sync_ms(root: Path) -> tuple[float, ...]:
    """Return how many milliseconds each of several small durable writes in `root` takes."""
    taken: list[float] = []
    descriptor = os.open(root / "sync", os.O_WRONLY | os.O_CREAT)
    try:
        for _ in range(SYNC_WRITES):
            os.write(descriptor, b"x" * 4096)
            begun = time.perf_counter()
            os.fdatasync(descriptor)
            taken.append((time.perf_counter() - begun) * 1000)
    finally:
        os.close(descriptor)
    return tuple(taken)


def _ms(begun: float, ended: float) -> float:
    return (ended - begun) * 1000


if __name__ == "__main__":
    main()
