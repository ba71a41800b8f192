"""The lock against sleep, with a program that any machine has in place of the system's."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
import trio

from tiller_daemon.awake import Awake
from tiller_protocol.codec import encode_event
from tiller_protocol.events import LIFECYCLE_TOPIC, Event, StatusChanged, StatusName

LONGEST_S = 20.0


def say(awake: Awake, status: StatusName) -> None:
    """Let a session have this status from now on."""
    awake.note(LIFECYCLE_TOPIC, encode_event(Event(1, "s", 0.0, StatusChanged(status))))


def is_held(pid: str = "self") -> bool:
    """Whether this process, or one that it has started, has started `cat`."""
    for task in Path("/proc", pid, "task").iterdir():
        for child in (task / "children").read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                if Path("/proc", child, "comm").read_text() == "cat\n" or is_held(child):
                    return True
    return False


async def until(wanted: Callable[[], bool]) -> None:
    """Let all tasks run until a function returns true."""
    deadline = time.monotonic() + LONGEST_S
    while not wanted():
        assert time.monotonic() < deadline
        await trio.lowlevel.checkpoint()


async def test_a_turn_whose_end_was_lost_does_not_keep_the_machine_awake_for_ever(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiller_daemon.awake.RECHECK_S", 0.01)
    awake = Awake(lambda: True, tmp_path, lambda: dict(os.environ), ("env", "cat"))
    looked = 0

    def is_busy() -> bool:
        nonlocal looked
        looked += 1
        return looked < 5

    nursery.start_soon(awake.run, is_busy)
    say(awake, "busy")
    await until(is_held)
    await until(lambda: looked == 4)
    assert is_held(), "the turn is still running"
    await until(lambda: not is_held())
    say(awake, "busy")
    looked = -1_000_000
    await until(is_held)
    say(awake, "idle")
    await until(lambda: not is_held())
    nursery.cancel_scope.cancel()


async def test_a_missing_program_is_reported_with_what_to_do(
    autojump_clock, nursery: trio.Nursery, tmp_path: Path
) -> None:
    awake = Awake(lambda: True, tmp_path, lambda: dict(os.environ), ("no-such-program", "cat"))
    with structlog.testing.capture_logs() as logged:
        nursery.start_soon(awake.run, lambda: True)
        say(awake, "busy")
        await trio.testing.wait_all_tasks_blocked()
    (entry,) = logged
    assert entry["event"] == "not_kept_awake"
    assert "The program no-such-program was not found" in entry["reason"]
