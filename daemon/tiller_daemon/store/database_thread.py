"""The one thread that uses the log's connection: it groups waiting writes into one transaction.

Knows transactions and threads, not what is written. A thread of its own costs half of what
`trio.to_thread` does per commit and does not end when idle.
"""

import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import trio

from tiller_daemon.store.base import LogError
from tiller_daemon.store.schema import close_file, log_error

Result = TypeVar("Result")

JOBS_QUEUED_MAX = 1024
"""Reads and writes that wait for the thread; further callers wait for room."""

GROUP_WRITES_MAX = 256
"""Writes in one transaction: beyond it a commit costs less than its share of the work."""

GROUP_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of bodies after which a transaction takes no further write."""

CLOSE_S_MAX = 30.0
"""How long `close` waits for the disk, even when cancelled; then the thread is left to itself."""


class Job(Generic[Result]):
    """Something to do with the connection; `writes` says that it needs a transaction."""

    def __init__(
        self, work: Callable[[sqlite3.Connection], Result], *, writes: bool, size: int = 0
    ) -> None:
        self.work = work
        self.writes = writes
        self.size = size
        self.result: Result | None = None
        self.error: Exception | None = None
        self.done = trio.Event()


class DatabaseThread:
    """Runs jobs in a thread. Make it with `start`, end it with `close`; use it from one loop."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._slots = trio.Semaphore(JOBS_QUEUED_MAX)
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._ended = trio.Event()
        self._loop = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name="tiller-log", daemon=True)
        self._thread.start()

    async def do(self, job: Job[Result]) -> Result:
        """Run a job; a write has been committed when this returns. Raises `LogError`.

        Cancellation: a job that has left here runs all the same.
        """
        await self._slots.acquire()
        if self._closed:
            self._slots.release()
            raise LogError("closed", f"the log {self._path} is closed: the daemon is stopping")
        self._jobs.put(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.result  # pyright: ignore[reportReturnType]

    async def close(self) -> None:
        """Run what waits, move the log into its main file, and end the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            await self._ended.wait()
            self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            reads, writes, stopping = self._take()
            for job in reads:
                _try(self._connection, job)
            self._report_done(reads)
            self._commit(writes)
            self._report_done(writes)
        close_file(self._connection)
        self._call(self._ended.set)

    def _take(self) -> tuple[list[Job[Any]], list[Job[Any]], bool]:
        """Wait for a job, then take what else is there; the last value is True at the end."""
        reads: list[Job[Any]] = []
        writes: list[Job[Any]] = []
        size = 0
        job = self._jobs.get()
        while job is not None:
            (writes if job.writes else reads).append(job)
            size += job.size
            if len(writes) >= GROUP_WRITES_MAX or size >= GROUP_BYTES_MAX:
                return reads, writes, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return reads, writes, False
        return reads, writes, True

    def _commit(self, jobs: list[Job[Any]]) -> None:
        """One transaction for all jobs; a job that fails by itself is left out of it."""
        if not jobs:
            return
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                connection.execute("SAVEPOINT job")
                _try(connection, job)
                if job.error is not None:
                    connection.execute("ROLLBACK TO job")  # fails when SQLite ended the whole
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            for job in jobs:
                job.error = job.error or log_error(error, self._path)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # the next BEGIN fails then, and comes here again
                self._connection.execute("ROLLBACK")

    def _report_done(self, jobs: list[Job[Any]]) -> None:
        if jobs:
            self._call(lambda: self._complete(jobs))

    def _complete(self, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            if isinstance(job.error, sqlite3.Error):
                job.error = log_error(job.error, self._path)
            self._slots.release()
            job.done.set()

    def _call(self, function: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):  # then nobody is left to be told
            self._loop.run_sync_soon(function)


def _try(connection: sqlite3.Connection, job: Job[Any]) -> None:
    try:
        job.result = job.work(connection)
    except Exception as error:
        job.error = error
