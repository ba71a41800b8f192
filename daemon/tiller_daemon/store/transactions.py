"""Runs transactions on the log's connection, makes them durable, and measures the disk.

The caller must have the connection to itself. The module knows neither trio nor threads.
"""

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from tiller_daemon.store.base import LogError
from tiller_daemon.store.schema import log_error
from tiller_daemon.store.wal import PAGE_BYTES, wal_of, write_mark
from tiller_daemon.store.wal_length import WalLength

Result = TypeVar("Result")

SLOW_SYNC_S = 0.001
"""If the mean time of synced commits on the loop is above this, a thread makes them. Passing work
to the thread and back takes about as long, but meanwhile the loop runs other tasks."""

FAST_SYNC_S = 0.002
"""Synced commits return to the loop when `FAST_SYNCS` of the thread's last `SYNCS_MEASURED` took
less than this. The mean is not used, because most times in the thread include a millisecond or more
of waiting for the interpreter. If the disk itself is slow, the first commit on the loop sends them
back to the thread."""

SYNCS_MEASURED = 16
"""How many of the thread's synced commits are remembered."""

FAST_SYNCS = 4
"""How many of the remembered commits must have been fast."""

SYNC_WEIGHT = 0.05
"""The weight of the last synced commit in the mean. A shared disk has one slow sync in fifty, which
costs less than leaving the fast syncs to the thread."""

RETURNING_MEAN_S = 0.9 * SLOW_SYNC_S
"""The mean that is assumed when synced commits return to the loop."""

CHECKPOINT_PAGES = 1000
"""The estimated number of pages at which the write-ahead log is moved into the main file."""

WAL_PAGES_MAX = 16_000
"""The estimated number of pages at which a commit itself does so first, although that delays it."""

VACUUM_PAGES = 4000
"""How many unused pages are returned to the disk at a time, at rest; others wait about 0.1 s."""

COMMIT_PAGES = 6
"""How many pages a small transaction writes: one of each table and index that it changes."""

READ_ONLY = "{name} can't be written: make it writable"

REMOVED = (
    "{name} was removed or replaced while tillerd was using it, so nothing can be stored: put it "
    "back, or restart tillerd, which then uses the files as they are"
)


@dataclass(eq=False)
class Job(Generic[Result]):
    """A call with the connection, and its result."""

    work: Callable[[sqlite3.Connection], Result]
    """The function to call."""
    writes: bool
    """Whether the job runs in a transaction."""
    synced: bool = True
    """Whether the job's changes must survive a power failure."""
    size: int = 0
    """About how many bytes the job writes."""
    result: Result | None = None
    """What the function has returned."""
    error: Exception | None = None
    """What the function has raised, or why its changes were not stored."""

    def run(self, connection: sqlite3.Connection) -> None:
        """Call `work`, and store its result or its error."""
        try:
            self.result = self.work(connection)
        except Exception as error:
            self.error = error


class Transactions:
    """Runs jobs on the connection, and measures how long the disk takes."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, check_owner: Callable[[], None]
    ) -> None:
        self.sync_is_fast = True
        """Whether a synced commit takes less time than passing the work to a thread and back."""
        self.must_sync = False
        """Whether there has been an unsynced commit since the last sync."""
        self.is_empty = True
        """Whether nothing has been written since the write-ahead log was emptied."""
        self._connection = connection
        self._path = path
        self._check_owner = check_owner
        self._commits_sync = True
        self._mean_s = 0.0
        self._last_s: deque[float] = deque(maxlen=SYNCS_MEASURED)
        self._pages = 0
        self._must_mark = True
        self._files = (path, wal_of(path))
        self._length = WalLength(wal_of(path))
        self._identities = {
            name: identity for name in self._files if (identity := _identity(name)) is not None
        }

    @property
    def must_checkpoint(self) -> bool:
        """Whether the write-ahead log is long enough to be moved into the main file."""
        return self._pages >= CHECKPOINT_PAGES

    def read(self, jobs: Sequence[Job[Any]]) -> None:
        """Run jobs that only read."""
        for job in jobs:
            job.run(self._connection)

    def commit(self, jobs: Sequence[Job[Any]], *, inline: bool) -> None:
        """Run jobs in one transaction; a job that fails is rolled back alone.

        `inline` tells whether this runs on the loop instead of in a thread.
        """
        execute = self._connection.execute
        synced = any(job.synced for job in jobs)
        self._check_owner()
        try:
            self._check_files()
            if self._pages >= WAL_PAGES_MAX:
                self.checkpoint(empty=False)
            self._sync_commits(synced)
            changes = self._connection.total_changes
            execute("BEGIN IMMEDIATE")
            if self._must_mark:
                write_mark(self._connection, self._path)
            for job in jobs:
                execute("SAVEPOINT job")
                job.run(self._connection)
                if job.error is not None:
                    # This fails if SQLite has rolled back the whole transaction, for example
                    # because the disk is full.
                    execute("ROLLBACK TO job")
                execute("RELEASE job")
            began = time.perf_counter()
            execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            for job in jobs:
                job.error = job.error or log_error(error, self._path)
            return
        except LogError as error:
            for job in jobs:
                job.error = error
            return
        self._must_mark = False
        self._length.note()
        stored = [job for job in jobs if job.error is None]
        # SQLite syncs nothing for a transaction in which nothing was written.
        if synced and stored:
            self._note_sync(time.perf_counter() - began, inline=inline)
        if stored and (not synced or self._connection.total_changes > changes):
            self.must_sync = not synced
        self.is_empty = False
        self._pages += sum(COMMIT_PAGES + job.size // PAGE_BYTES for job in jobs)

    def sync(self) -> None:
        """Make all earlier commits survive a power failure; a failure is only reported."""
        # Cleared before the sync, because a commit that the loop makes meanwhile may miss it.
        self.must_sync = False
        try:
            # SQLite locks only the main file, so closing this descriptor drops none of its locks.
            descriptor = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_data(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            # If the disk can no longer be written, the next synced commit fails.
            structlog.get_logger().warning("log_not_synced", error=str(error))

    def checkpoint(self, *, empty: bool) -> None:
        """Move the write-ahead log into the main file; if that fails, the log stays as it is.

        With `empty` the write-ahead log is emptied too, so that damage to it can't hide any commit.
        Otherwise its space on the disk is reused, which makes later commits faster.
        """
        self._check_owner()
        self._pages = 0
        self.is_empty = empty and not self._give_back()
        mode = "TRUNCATE" if empty else "PASSIVE"
        if not self._must_mark:
            with suppress(sqlite3.Error):  # as on a full disk, where a checkpoint may free space
                write_mark(self._connection, self._path)
        self._must_mark = True
        self._length.begin_anew()
        with suppress(sqlite3.Error):
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    def _give_back(self) -> bool:
        """Return unused space to the disk, and whether there is more that can be returned."""
        try:
            ((unused,),) = self._connection.execute("PRAGMA freelist_count").fetchall()
            if not unused:
                return False
            write_mark(self._connection, self._path)
            self._must_mark = False
            # Run as a script, because `execute` would return only one page.
            self._connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
            ((left,),) = self._connection.execute("PRAGMA freelist_count").fetchall()
        except sqlite3.Error:  # as on a full disk
            return False
        return 0 < left < unused  # nothing can be returned by a file of an older release

    def close(self) -> None:
        """Move the write-ahead log into the main file if possible, and close the file."""
        # If this fails, committed data is safe in the -wal file, which the next start reads.
        self.checkpoint(empty=True)
        self._connection.close()
        self._length.close()

    def problem(self) -> str:
        """Return why the next commit or start will fail, in a sentence; empty if it won't."""
        known = dict(self._identities)
        for name in self._files:
            if known.get(name) not in (None, _identity(name)):
                return REMOVED.format(name=name)
            if name in known and not os.access(name, os.W_OK):
                return READ_ONLY.format(name=name)
        return ""

    def _check_files(self) -> None:
        """Raise `LogError` if a file was removed or replaced, because SQLite would not notice.

        A file that was moved away and back passes this check, which does no harm.
        """
        for name in self._files:
            identity = _identity(name)
            known = self._identities.get(name)
            if known is None and identity is not None:
                self._identities[name] = identity  # SQLite creates the second one when it needs it
            elif identity != known:
                raise LogError("io", REMOVED.format(name=name))

    def _sync_commits(self, synced: bool) -> None:  # noqa: FBT001 - the state to set
        if self._commits_sync != synced:
            # Run as a script, because a cached statement would set nothing: SQLite applies this
            # pragma when it compiles the statement.
            self._connection.executescript(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            self._commits_sync = synced

    def _note_sync(self, took_s: float, *, inline: bool) -> None:
        if inline:
            self._mean_s += SYNC_WEIGHT * (took_s - self._mean_s)
            self.sync_is_fast = self._mean_s < SLOW_SYNC_S
            self._last_s.clear()
            return
        self._last_s.append(took_s)
        if sum(took_s < FAST_SYNC_S for took_s in self._last_s) >= FAST_SYNCS:
            self._mean_s = RETURNING_MEAN_S
            self.sync_is_fast = True

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # if this fails, so does the next BEGIN, which retries it
                self._connection.execute("ROLLBACK")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - before every commit, and takes half the time
    except OSError:
        return None
    return status.st_dev, status.st_ino


sync_data = getattr(os, "fdatasync", os.fsync)
"""`fdatasync`, or `fsync` on macOS, which lacks `fdatasync`."""
