"""The only thread that uses the log's connection: it groups queued writes into transactions.

It knows transactions and threads, not what is written. A dedicated thread takes half the time of
`trio.to_thread` per commit.
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
"""Most queued reads and writes; further callers wait."""

GROUP_WRITES_MAX = 256
"""Most writes in one transaction: with more, the cost of the commit no longer matters."""

GROUP_BYTES_MAX = 4 * 1024 * 1024
"""Total size of bodies after which a transaction takes no further write."""

CLOSE_S_MAX = 30.0
"""How long `close` waits for the disk, even when cancelled; then the thread is abandoned."""


class _Job(Generic[Result]):
    """A function to run with the connection; `writes` means in a transaction.

    `size` is the number of bytes that it writes. `result` or `error` is valid once `done` is set.
    """

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
    """Runs jobs in a thread, from its creation until `close`. Use it from one event loop."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._slots = trio.Semaphore(JOBS_QUEUED_MAX)
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._ended = trio.Event()
        self._loop = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name="tiller-log", daemon=True)
        self._thread.start()

    async def read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` in the thread and return its result; raises `LogError`."""
        return await self._run_job(_Job(work, writes=False))

    async def write(self, work: Callable[[sqlite3.Connection], None], size: int = 0) -> None:
        """Run `work`, which writes about `size` bytes; it is committed when this returns.

        Raises `LogError`. Cancellation does not stop a job that is already queued.
        """
        await self._run_job(_Job(work, writes=True, size=size))

    async def close(self) -> None:
        """Finish queued jobs, close the file, and end the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            await self._ended.wait()
            self._thread.join()

    async def _run_job(self, job: "_Job[Result]") -> Result:
        await self._slots.acquire()
        if self._closed:
            self._slots.release()
            raise LogError("closed", f"the log {self._path} is closed: the daemon is stopping")
        self._jobs.put(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.result  # pyright: ignore[reportReturnType]

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

    def _take(self) -> tuple[list[_Job[Any]], list[_Job[Any]], bool]:
        """Wait for a job, then take all queued ones; the last value is True after `close`."""
        reads: list[_Job[Any]] = []
        writes: list[_Job[Any]] = []
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

    def _commit(self, jobs: list[_Job[Any]]) -> None:
        """Run all jobs in one transaction; a job that fails is rolled back alone."""
        if not jobs:
            return
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                connection.execute("SAVEPOINT job")
                _try(connection, job)
                if job.error is not None:
                    # Fails if SQLite has rolled back the whole transaction, such as on a full disk.
                    connection.execute("ROLLBACK TO job")
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            for job in jobs:
                job.error = job.error or log_error(error, self._path)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # then the next BEGIN fails too, and this is retried
                self._connection.execute("ROLLBACK")

    def _report_done(self, jobs: list[_Job[Any]]) -> None:
        if jobs:
            self._call(lambda: self._complete(jobs))

    def _complete(self, jobs: list[_Job[Any]]) -> None:
        for job in jobs:
            if isinstance(job.error, sqlite3.Error):
                job.error = log_error(job.error, self._path)
            self._slots.release()
            job.done.set()

    def _call(self, function: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):  # no task is left that could wait for a job
            self._loop.run_sync_soon(function)


def _try(connection: sqlite3.Connection, job: _Job[Any]) -> None:
    try:
        job.result = job.work(connection)
    except Exception as error:
        job.error = error
