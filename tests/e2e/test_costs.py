"""Limits for the costs of a turn, a step and a delta, as counts that do not depend on load.

Each limit is the count when the test was written plus a third; for counts that vary with load (loop
rounds, context switches, commits) it is twice the count. A higher count is a new cost for every
user: find its cause before you raise the limit.
"""

import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.words import always, bash, calls, read, text
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, ScriptStep

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads /proc"),
    pytest.mark.whole_start,
]

COUNTING = Path(__file__).parents[1] / "support" / "counting.py"
TURNS = 20
STEPS = 30
PIECES = 5_000

SELDOM = 0.2
"""The limit for rare events, such as a context switch to an nng thread."""

PER_TURN = {
    "files opened": 44,  # instructions, skills, agents and commands are looked for anew
    "directories listed": 20,
    "imports": SELDOM,
    "task steps": 30,  # more on a busy machine, where fewer events share a commit
    "loop rounds": 26,
    "context switches": 120,
    "statements": 60,
    "commits": 6,
}

STEP_CALLS = {
    "read": (read("greeting.txt"),),
    "eight reads": tuple(read("greeting.txt", f"call{number}") for number in range(8)),
    "echo": (bash("echo x"),),
    "touch": (bash("touch y"),),
}

PER_STEP: dict[str, dict[str, float]] = {
    "read": {
        "files opened": 14,  # three of them by the scripted model
        "directories listed": 1,
        "imports": 1,
        "task steps": 10,
        "loop rounds": 12,
        "context switches": 60,
        "statements": 20,
        "commits": 2,
    },
    "eight reads": {
        "files opened": 80,
        "directories listed": 1,
        "imports": 1,
        "task steps": 70,  # one for each event of the scripted model
        "loop rounds": 90,
        "context switches": 300,  # nearly all are of nng, for each event published
        "statements": 100,
        "commits": 3,
    },
    "echo": {
        "files opened": 25,  # for root: Landlock's rules, which are made once
        "directories listed": 32,  # to find links to what other programs execute
        "imports": 1,
        "processes": SELDOM,
        "task steps": 26,
        "loop rounds": 24,
        "context switches": 100,
        "statements": 25,
        "commits": 2.5,  # a step may take longer than the window in which events share one
    },
    "touch": {
        "files opened": 140,
        "directories listed": 36,
        "imports": 1,
        "processes": 4,  # git takes both snapshots
        "threads": SELDOM,
        "task steps": 90,
        "loop rounds": 65,
        "context switches": 100,
        "statements": 34,
        "commits": 4,
    },
}

PER_DELTA = {
    "files opened": 0.02,
    "directories listed": 0.01,
    "task steps": 1.1,
    "loop rounds": 1.1,
    "context switches": 0.6,  # more on a busy machine
    "statements": 0.1,
    "commits": 0.02,
}


class Counted:
    """A daemon that reports its counts, and a frontend."""

    def __init__(self, daemon: Daemon, frontend: Frontend) -> None:
        self.frontend = frontend
        self._daemon = daemon

    def counts(self) -> Counter[str]:
        """Return the daemon's counts since it started."""
        assert self._daemon.process is not None
        place = Path(self._daemon.variables["TILLER_COUNTS"])
        place.unlink(missing_ok=True)
        os.kill(self._daemon.process.pid, signal.SIGUSR2)
        while not place.exists():
            os.sched_yield()
        return Counter(json.loads(place.read_bytes()))

    def is_preparing(self) -> bool:
        """Whether `Sandboxes.prepare` is at work, in a thread that trio names after it."""
        assert self._daemon.process is not None
        for name in Path(f"/proc/{self._daemon.process.pid}/task").glob("*/comm"):
            with contextlib.suppress(OSError):  # it has ended
                if name.read_text().startswith("prepare"):
                    return True
        return False

    async def turns(self, workspace: Path, *steps: ScriptStep, count: int = 1) -> Counter[str]:
        """Return the costs of `count` turns, after a first turn."""
        session_id = await self.frontend.session(workspace, *steps)
        await self.turn(session_id, 1)
        before = self.counts()
        for number in range(count):
            await self.turn(session_id, number + 2)
        return self.counts() - before

    async def turn(self, session_id: str, number: int) -> None:
        """Take the turn with this number."""
        await self.frontend.say(session_id)
        ended = await self.frontend.turn_ended(session_id, number)
        assert ended.outcome == "completed"


@pytest.fixture
async def counted(new_daemon: Callable[..., Daemon], nursery: trio.Nursery) -> Counted:
    daemon = new_daemon()
    daemon.program = (str(COUNTING),)
    daemon.variables["TILLER_COUNTS"] = str(daemon.home / "counts")
    daemon.start()
    counted = Counted(daemon, await Frontend.connect(daemon, nursery))
    while counted.is_preparing():
        os.sched_yield()
    return counted


async def test_what_a_turn_costs(counted: Counted, workspace: Path) -> None:
    cost = await counted.turns(workspace, always("done"), count=TURNS)
    _check(cost, TURNS, PER_TURN)
    await counted.frontend.close()


@pytest.mark.parametrize(("name", "parts"), STEP_CALLS.items())
@pytest.mark.nightly
async def test_what_a_step_costs(
    counted: Counted, workspace: Path, name: str, parts: tuple[CallPart, ...]
) -> None:
    """The first turn takes such a step, too, so that one-time costs are left out."""
    step = calls(*parts)
    steps = [step] * STEPS
    cost = await counted.turns(workspace, step, text("first"), *steps, always("done"))
    _check(cost, STEPS, PER_STEP[name])
    await counted.frontend.close()


async def test_the_first_command_waits_for_nothing_that_was_prepared(
    counted: Counted, workspace: Path
) -> None:
    """To find a sandbox that works takes processes, and for root a scan of all of `/etc`."""
    session_id = await counted.frontend.session(workspace, calls(bash("echo x")), always("done"))
    before = counted.counts()
    await counted.turn(session_id, 1)
    cost = counted.counts() - before
    assert cost["processes"] == 2  # git tells the configuration of a new workspace
    assert cost["directories listed"] < 60  # a scan of `/etc` lists hundreds
    await counted.frontend.close()


async def test_what_a_delta_costs(counted: Counted, workspace: Path) -> None:
    """A scripted model yields once for each piece, so each may cost one step of one task."""
    stream = text("word " * PIECES, PIECES)
    cost = await counted.turns(workspace, text("first"), stream, always("done"))
    _check(cost, PIECES, PER_DELTA)
    await counted.frontend.close()


def _check(cost: Counter[str], count: int, most: dict[str, float]) -> None:
    each = {name: cost[name] / count for name in {*cost, *most}}
    above = {name: value for name, value in each.items() if value > most.get(name, 0)}
    assert above == {}, f"of {each}"
