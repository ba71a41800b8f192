"""`kill -9` of a process that appends: what it said was committed is there, whole (G1, G2, G3).

`TILLER_KILL_CYCLES` sets how often; the file is kept from cycle to cycle.
"""

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from store.append_forever import BATCH_EVENTS, SESSIONS
from store.rows import body_of, submission_row
from tiller_daemon.store.log import open_log

CYCLES = int(os.environ.get("TILLER_KILL_CYCLES", "12"))
LINES_MAX = 400
CHILD = Path(__file__).with_name("append_forever.py")


@pytest.mark.promise("G1")
def test_nothing_that_was_committed_is_lost_to_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "tiller.db"
    source = random.Random(9)
    reported = dict.fromkeys((f"s{number}" for number in range(SESSIONS)), 0)
    for _ in range(CYCLES):
        for line in run_and_kill(path, after_lines=source.choice([0, source.randrange(LINES_MAX)])):
            session_id, head = line.split()
            reported[session_id] = int(head)
        reported = trio.run(check, path, reported)
    assert min(reported.values()) > 0
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def run_and_kill(path: Path, after_lines: int) -> list[str]:
    """Lines of the child until it was killed; a last line without its end was not said."""
    child = subprocess.Popen([sys.executable, str(CHILD), str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"ready\n"
        lines = [child.stdout.readline() for _ in range(after_lines)]
        child.kill()
        lines += child.stdout.readlines()
    child.wait()
    return [line.decode() for line in lines if line.endswith(b"\n")]


async def check(path: Path, reported: dict[str, int]) -> dict[str, int]:
    heads: dict[str, int] = {}
    async with open_log(path) as log:
        for session_id, committed in reported.items():
            heads[session_id] = head = await log.head(session_id)
            assert head >= committed
            assert head % BATCH_EVENTS == 0
            found = await log.events(session_id, 0, 1 << 30, 1 << 30)
            assert found == [body_of(session_id, seq, 300) for seq in range(1, head + 1)]
            for seq in range(BATCH_EVENTS, head + BATCH_EVENTS + 1, BATCH_EVENTS):
                name = f"{session_id}-{seq}"
                expected = submission_row(name) if seq <= head else None
                assert await log.submission(name) == expected
    return heads
