"""A process that appends until it is killed, and says on its output what was committed.

Run as `append_forever.py PATH`; it writes `ready`, then a line `SESSION SEQ` after each commit.
Each batch has its submission, named `SESSION-SEQ`.
"""

import os
import sys
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))
from store.rows import batch_of, submission_row
from tiller_daemon.store.log import SqliteLog, open_log

SESSIONS = 6
BATCH_EVENTS = 3


async def append_to(log: SqliteLog, session_id: str) -> None:
    head = await log.head(session_id)
    while True:
        first, head = head + 1, head + BATCH_EVENTS
        submission = submission_row(f"{session_id}-{head}")
        await log.append(batch_of(session_id, first, head, submission=submission, bytes_min=300))
        os.write(1, f"{session_id} {head}\n".encode())
        await trio.lowlevel.checkpoint()  # a short commit does not yield


async def main(path: Path) -> None:
    os.write(1, b"ready\n")
    async with open_log(path) as log, trio.open_nursery() as nursery:
        for number in range(SESSIONS):
            nursery.start_soon(append_to, log, f"s{number}")


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
