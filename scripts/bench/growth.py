#!/usr/bin/env python3
"""Measures how costs grow with steps, history, frontends, and concurrent, logged, loaded sessions.

    .venv/bin/python scripts/bench/growth.py [--quick] [--only steps,log,...] [--home DIR]

Runs real processes, as `daemon.py` does. Within a part, each figure should be the same in every
row: a figure that grows from row to row depends on the size. `--quick` skips the largest sizes.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import trio
from measured import Daemon, Frontend, Model, frontend_of
from model_server import Play
from msgspec.structs import replace
from table import Row, print_rows

from tiller_daemon.store.base import Batch, EventRow, SessionRow
from tiller_daemon.store.log import open_log
from tiller_protocol.codec import decode_event, encode_event
from tiller_protocol.events import Event, ItemDelta, SessionCreated, TurnEnded
from tiller_protocol.ops import SessionGet, SessionList
from tiller_protocol.settings import Settings

STEPS = 1000
STEPS_SHOWN = 50
CALLS_PER_STEP = 8
TURNS = 10
"""Turns measured at each size."""
LOADED = 10_000
LOADED_SHOWN = 5
"""Number of rows for loaded sessions; each row covers an equal share of them."""


async def grow_steps(home: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure the gap between a response and the next request, early and late in one turn."""
    steps = STEPS // 5 if quick else STEPS
    with Daemon(home, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, Play("warm", rounds=2, path="README.md"))
            await _turn(frontend, model, Play("steps", rounds=steps, path="README.md"))
    played = await model.played("steps", steps + 1)
    gaps = [_ms(one.ended, after.arrived) for one, after in pairwise(played)]
    return [
        Row(f"step {at + 1} to {at + STEPS_SHOWN}", "ms", tuple(gaps[at : at + STEPS_SHOWN]))
        for at in (0, steps // 2, steps - STEPS_SHOWN)
    ]


async def grow_sessions(home: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure concurrent sessions, each with 100 deltas at 50 a second, which take at least 2 s."""
    rows: list[Row] = []
    for count in (1, 10, 100) if quick else (1, 10, 100, 300, 1000):
        with Daemon(home / str(count), model.url) as daemon:
            async with frontend_of(daemon) as frontend:
                await _turn(frontend, model, Play("warm"))
                sessions = [await frontend.create() for _ in range(count)]
                rows += await _all_at_once(daemon, frontend, model, sessions)
    return rows


async def _all_at_once(
    daemon: Daemon, frontend: Frontend, model: Model, sessions: list[str]
) -> list[Row]:
    waits: list[float] = []
    wall: list[float] = []

    async def one(session_id: str) -> None:
        play = Play(session_id, deltas=100, pace_ms=20)
        submitted, _ = await frontend.say(session_id, play)
        (played,) = await model.played(play.id)
        ended = await frontend.until(session_id, TurnEnded)
        waits.append(_ms(submitted, played.arrived))
        wall.append(ended.at - submitted)

    begun, memory = daemon.cpu_s(), daemon.rss_bytes()
    async with trio.open_nursery() as nursery:
        for session_id in sessions:
            nursery.start_soon(one, session_id)
    count = len(sessions)
    cpu_ms = (daemon.cpu_s() - begun) / count * 1000
    grown = (daemon.rss_bytes() - memory) / count / 1e3
    name = f"{count:,} sessions at once"
    return [
        Row(f"{name}: input to request", "ms", tuple(waits)),
        Row(f"{name}: a turn", "s", tuple(wall), cpu_ms),
        Row(f"{name}: memory of each afterwards", "KB", (grown,)),
    ]


async def grow_history(home: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure a turn in sessions with short and long histories."""
    rows: list[Row] = []
    with Daemon(home, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, Play("warm"))
            for items in (10, 1000) if quick else (10, 100, 1000, 5000):
                session_id = await frontend.create()
                rounds = items // CALLS_PER_STEP + 1
                filling = Play(f"fill{items}", rounds=rounds, calls=CALLS_PER_STEP, path="a")
                await _turn(frontend, model, filling, session_id)
                begun = daemon.cpu_s()
                waits = [
                    await _wait_for_request(frontend, model, f"h{items}-{number}", session_id)
                    for number in range(TURNS)
                ]
                cpu_ms = (daemon.cpu_s() - begun) / TURNS * 1000
                name = f"history of {items:,} items: input to request"
                rows.append(Row(name, "ms", tuple(waits), cpu_ms))
    return rows


async def grow_frontends(home: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure a stream with a delta every 2 ms, watched by few and many frontends."""
    deltas = 500 if quick else 2000
    rows: list[Row] = []
    with Daemon(home, model.url) as daemon:
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, Play("warm", deltas=200))
            others: list[Frontend] = []
            for count in (1, 5, 20, 50):
                others += [Frontend(daemon) for _ in range(count - 1 - len(others))]
                session_id = await frontend.create()
                for other in others:
                    other.follow(session_id)
                begun = daemon.cpu_s()
                play = Play(f"watched{count}", deltas=deltas, pace_ms=2.0)
                await _turn(frontend, model, play, session_id)
                us = (daemon.cpu_s() - begun) / deltas * 1e6
                first = await frontend.until(session_id, ItemDelta)
                (played,) = await model.played(play.id)
                name = f"{count} frontends"
                rows.append(Row(f"{name}: CPU of a delta", "us", (us,)))
                rows.append(Row(f"{name}: first delta", "ms", (_ms(played.began, first.at),)))
            for other in others:
                other.close()
    return rows


async def grow_log(home: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure daemons whose logs have few and many sessions."""
    rows: list[Row] = []
    for count in (100, 10_000) if quick else (100, 10_000, 100_000):
        daemon = Daemon(home / str(count), model.url)
        await _fill(daemon.places.state / "tiller.db", str(daemon.workspace), count)
        ready_ms = daemon.start() * 1000
        memory = daemon.rss_bytes() / 1e6
        async with frontend_of(daemon) as frontend:
            lists: list[float] = []
            for _ in range(TURNS):
                begun = time.monotonic()
                await frontend.ask(SessionList())
                lists.append(_ms(begun, time.monotonic()))
            await _turn(frontend, model, Play(f"warm{count}"))
            waits = [
                await _wait_for_request(frontend, model, f"log{count}-{number}")
                for number in range(TURNS)
            ]
        daemon.stop()
        name = f"{count:,} sessions in the log"
        rows += [
            Row(f"{name}: start to ready", "ms", (ready_ms,)),
            Row(f"{name}: memory", "MB", (memory,)),
            Row(f"{name}: session_list", "ms", tuple(lists)),
            Row(f"{name}: input to request", "ms", tuple(waits)),
        ]
    return rows


async def _fill(path: Path, workspace: str, count: int) -> None:
    """Make a log of sessions that have begun and done nothing else."""
    async with open_log(path) as log, trio.open_nursery() as nursery:
        for number in range(count):
            session_id = f"01K{number:023}"
            created = Event(1, session_id, float(number), SessionCreated(workspace, Settings()))
            row = SessionRow(session_id, workspace, float(number), float(number), 1, "A title")
            event = EventRow(1, float(number), encode_event(created))
            nursery.start_soon(log.append, Batch(row, (event,), synced=False))
            if number % 1000 == 0:
                await trio.lowlevel.checkpoint()


async def grow_loaded(home: Path, model: Model, *, quick: bool) -> list[Row]:
    """Measure opening sessions that have worked, one after another; they stay in memory."""
    count = LOADED // 10 if quick else LOADED
    daemon = Daemon(home, model.url)
    with daemon:
        async with frontend_of(daemon) as frontend:
            worked = await frontend.create()
            await _turn(frontend, model, Play("worked", calls=CALLS_PER_STEP, path="a"), worked)
    sessions = await _copy(daemon.places.state / "tiller.db", worked, count)
    rows: list[Row] = []
    with daemon:
        async with frontend_of(daemon) as frontend:
            await _turn(frontend, model, Play("warm"))
            for first in range(0, count, count // LOADED_SHOWN):
                part = sessions[first : first + count // LOADED_SHOWN]
                begun, memory = daemon.cpu_s(), daemon.rss_bytes()
                waits: list[float] = []
                for session_id in part:
                    asked = time.monotonic()
                    await frontend.ask(SessionGet(session_id))
                    waits.append(_ms(asked, time.monotonic()))
                cpu_ms = (daemon.cpu_s() - begun) / len(part) * 1000
                name = f"session {first + 1:,} to {first + len(part):,} loaded"
                rows.append(Row(name, "ms", tuple(waits), cpu_ms))
                grown = (daemon.rss_bytes() - memory) / len(part) / 1e3
                rows.append(Row(f"{name}: memory of each", "KB", (grown,)))
            waits = [
                await _wait_for_request(frontend, model, f"loaded{number}")
                for number in range(TURNS)
            ]
            rows.append(Row(f"{count:,} loaded: input to request", "ms", tuple(waits)))
    return rows


async def _copy(path: Path, session_id: str, count: int) -> list[str]:
    """Add copies of a session to a log; return their ids."""
    copies = [f"01K{number:023}" for number in range(count)]
    async with open_log(path) as log:
        events = [decode_event(body) for body in await log.events(session_id, 0, 1000, 1 << 24)]
        row = await log.session(session_id)
        assert row
        async with trio.open_nursery() as nursery:
            for number, copy in enumerate(copies):
                bodies = [encode_event(replace(event, session_id=copy)) for event in events]
                rows = tuple(
                    EventRow(event.seq, event.time, body)
                    for event, body in zip(events, bodies, strict=True)
                )
                batch = Batch(replace(row, session_id=copy), rows, synced=False)
                nursery.start_soon(log.append, batch)
                if number % 1000 == 0:
                    await trio.lowlevel.checkpoint()
    return copies


async def _turn(frontend: Frontend, model: Model, play: Play, session_id: str = "") -> None:
    session_id = session_id or await frontend.create()
    begin = len(frontend.seen[session_id])
    async with trio.open_nursery() as nursery:
        # Concurrently, as the model server waits until somebody reads its reports.
        nursery.start_soon(model.played, play.id, play.rounds + 1)
        await frontend.say(session_id, play)
        ended = await frontend.until(session_id, TurnEnded, begin)
    assert isinstance(ended.event.body, TurnEnded)
    if ended.event.body.outcome != "completed":
        raise RuntimeError(f"a turn ended otherwise: {ended.event.body}")


async def _wait_for_request(
    frontend: Frontend, model: Model, name: str, session_id: str = ""
) -> float:
    """Run one turn; return the milliseconds from its input to its request."""
    session_id = session_id or await frontend.create()
    begin = len(frontend.seen[session_id])
    submitted, _ = await frontend.say(session_id, Play(name))
    (played,) = await model.played(name)
    await frontend.until(session_id, TurnEnded, begin)
    return _ms(submitted, played.arrived)


def _ms(begun: float, ended: float) -> float:
    return (ended - begun) * 1000


PARTS: dict[str, Callable[..., Awaitable[list[Row]]]] = {
    "steps": grow_steps,
    "sessions": grow_sessions,
    "history": grow_history,
    "frontends": grow_frontends,
    "log": grow_log,
    "loaded": grow_loaded,
}


def main() -> None:
    """Measure the requested parts and print the table."""
    parser = argparse.ArgumentParser(description="Measure how costs grow.")
    parser.add_argument("--quick", action="store_true", help="skip the largest sizes")
    parser.add_argument("--only", help=f"parts to run, of {','.join(PARTS)}; default: all")
    parser.add_argument("--home", type=Path, help="directory for homes; default: a temporary one")
    arguments = parser.parse_args()
    parts = arguments.only.split(",") if arguments.only else list(PARTS)
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there are no parts {', '.join(unknown)}; there are {', '.join(PARTS)}")
    root = Path(tempfile.mkdtemp(prefix="tg", dir=arguments.home))
    try:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {root}")
        rows: list[Row] = []
        for part in parts:
            with Model() as model:
                rows += trio.run(partial(PARTS[part], root / part, model, quick=arguments.quick))
        print_rows(rows)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
