"""Runs the log's transactions: short ones on the loop, the others in a thread.

A small transaction takes 0.05 ms and a fast disk syncs in 0.2 ms, but passing work to a thread and
back takes 1 ms while the loop is busy. So a write runs at once if nothing is queued and the disk
has been fast. Otherwise it is queued, and the thread commits all that is queued in one transaction.
`transactions` has the transactions themselves.
"""

import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import trio

from tiller_daemon.store.base import LogError
from tiller_daemon.store.schema import log_error
from tiller_daemon.store.transactions import Job, Transactions

Result = TypeVar("Result")

JOBS_QUEUED_MAX = 1024
"""Maximum number of queued reads and writes; further callers wait."""

GROUP_WRITES_MAX = 256
"""Maximum number of writes in one transaction: with more, a commit costs next to nothing each."""

GROUP_BYTES_MAX = 4 * 1024 * 1024
"""Total size of bodies after which a transaction takes no further write."""

INLINE_BYTES_MAX = 256 * 1024
"""Size of bodies above which a write is left to the thread: storing them takes about 1 ms."""

REST_S = 2.0
"""How long nothing must have been written before the write-ahead log is emptied."""

UNSYNCED_S_MAX = 0.04
"""How long after an unsynced commit the file is synced, unless a synced commit came first."""

CLOSE_S_MAX = 30.0
"""How long `close` waits for the disk, even when cancelled; then the thread is abandoned."""


class _Queued:
    """A job in the queue; `done` is set when it has a result or an error."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.done = trio.Event()


_STOP = object()
"""In the queue: ends the thread."""

_SYNC_SOON = object()
"""In the queue: has the thread sync the file after `UNSYNCED_S_MAX`."""

_CHECKPOINT = object()
"""In the queue: has the thread move the write-ahead log into the main file."""

_EMPTY = object()
"""In the queue: has the thread also empty the write-ahead log."""

_WAIT_FOR_REST = object()
"""In the queue: has the thread call `_empty_at_rest` after `REST_S`."""


class Database:
    """Runs jobs on the connection, until `close`. Use it from one event loop.

    The loop uses the connection only while nothing is queued or running in the thread, so the
    connection never has two users.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._transactions = Transactions(connection, path)
        self._path = path
        self._damage = ""
        self._slots = trio.Semaphore(JOBS_QUEUED_MAX)
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._uses_by_thread = 0
        self._sync_is_queued = False
        self._rest_is_awaited = False
        self._last_write = time.monotonic()
        self._closed = False
        self._ended = trio.Event()
        self._loop = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name="tiller-log", daemon=True)
        self._thread.start()

    async def read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` in the thread and return its result; raises `LogError`."""
        return await self._run_in_thread(Job(work, writes=False))

    async def look_up(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Like `read`, but on the loop if possible: for `work` that finds rows by their key."""
        job = Job(work, writes=False)
        if not self._is_free:
            return await self._run_in_thread(job)
        self._transactions.read([job])
        return self._result(job)

    async def write(
        self, work: Callable[[sqlite3.Connection], None], size: int = 0, *, synced: bool = True
    ) -> None:
        """Run `work`, which writes about `size` bytes; it is committed when this returns.

        What is committed survives the end of this process. If it is `synced`, it also survives a
        power failure; otherwise it does so `UNSYNCED_S_MAX` later, or after the next synced write.

        Raises `LogError`. Cancellation does not stop a job that is already queued. A write that
        runs on the loop does not yield to other tasks.
        """
        job = Job(work, writes=True, synced=synced, size=size)
        self._last_write = time.monotonic()
        is_short = size <= INLINE_BYTES_MAX and (not synced or self._transactions.sync_is_fast)
        if not is_short or not self._is_free:
            await self._run_in_thread(job)
            return
        self._transactions.commit([job], inline=True)
        self._leave_to_thread()
        self._result(job)

    def problems(self) -> tuple[str, ...]:
        """The damage that was met last, and why nothing can be stored, in sentences."""
        return tuple(filter(None, (self._damage, self._transactions.problem())))

    async def close(self) -> None:
        """Finish queued jobs, close the file, and end the thread."""
        if not self._closed:
            self._closed = True
            self._queue.put(_STOP)
        with trio.move_on_after(CLOSE_S_MAX, shield=True):
            await self._ended.wait()
            self._thread.join()

    @property
    def _is_free(self) -> bool:
        """Whether the loop may use the connection now."""
        return self._uses_by_thread == 0 and not self._closed

    async def _run_in_thread(self, job: Job[Result]) -> Result:
        await self._slots.acquire()
        if self._closed:
            self._slots.release()
            raise LogError("closed", f"the log {self._path} is closed: the daemon is stopping")
        queued = _Queued(job)
        self._uses_by_thread += 1
        self._queue.put(queued)
        await queued.done.wait()
        return self._result(job)

    def _leave_to_thread(self) -> None:
        """Queue what a commit leaves to be done later."""
        if self._transactions.must_sync and not self._sync_is_queued:
            self._sync_is_queued = True
            self._queue.put(_SYNC_SOON)
        if self._transactions.must_checkpoint and self._is_free:
            self._uses_by_thread += 1
            self._queue.put(_CHECKPOINT)
        if not self._transactions.is_empty and not self._rest_is_awaited:
            self._rest_is_awaited = True
            self._queue.put(_WAIT_FOR_REST)

    def _empty_at_rest(self) -> None:
        """On the loop: empty the write-ahead log if nothing was written for a while."""
        self._rest_is_awaited = False
        if self._is_free and time.monotonic() - self._last_write >= REST_S:
            self._uses_by_thread += 1
            self._queue.put(_EMPTY)
        else:
            self._leave_to_thread()

    def _result(self, job: Job[Result]) -> Result:
        if isinstance(job.error, sqlite3.Error):
            job.error = log_error(job.error, self._path)
        if isinstance(job.error, LogError) and job.error.kind == "corrupt":
            self._damage = job.error.message
        if job.error is not None:
            raise job.error
        return job.result  # pyright: ignore[reportReturnType]

    def _run(self) -> None:
        sync_at = rest_at = math.inf
        while True:
            try:
                entry = self._queue.get(timeout=_seconds_until(min(sync_at, rest_at)))
            except queue.Empty:
                if rest_at < sync_at:
                    rest_at = math.inf
                    self._call(self._empty_at_rest)
                    continue
                sync_at = math.inf
                # Cleared first: a commit after this needs another sync.
                self._sync_is_queued = False
                if self._transactions.must_sync:
                    self._transactions.sync()
                continue
            if entry is _STOP:
                break
            if entry is _SYNC_SOON:
                sync_at = time.monotonic() + UNSYNCED_S_MAX
            elif entry is _WAIT_FOR_REST:
                rest_at = time.monotonic() + REST_S
            elif entry is _CHECKPOINT or entry is _EMPTY:
                self._transactions.checkpoint(empty=entry is _EMPTY)
                self._call(partial(self._complete, [], uses=1))
            else:
                self._run_jobs(self._take_more(cast("_Queued", entry)))
        self._transactions.close()
        self._call(self._ended.set)

    def _take_more(self, first: _Queued) -> list[_Queued]:
        """Return `first` and the jobs queued behind it, up to the size of a group."""
        taken = [first]
        size = first.job.size
        while len(taken) < GROUP_WRITES_MAX and size < GROUP_BYTES_MAX:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                break
            if not isinstance(entry, _Queued):
                self._queue.put(entry)
                break
            taken.append(entry)
            size += entry.job.size
        return taken

    def _run_jobs(self, taken: list[_Queued]) -> None:
        reads = [queued for queued in taken if not queued.job.writes]
        writes = [queued for queued in taken if queued.job.writes]
        if reads:
            self._transactions.read([queued.job for queued in reads])
            self._call(partial(self._complete, reads, uses=len(reads)))
        if writes:
            self._transactions.commit([queued.job for queued in writes], inline=False)
            self._call(partial(self._complete, writes, uses=len(writes)))

    def _complete(self, done: list[_Queued], *, uses: int) -> None:
        """On the loop: the thread has ended `uses` of the connection."""
        self._uses_by_thread -= uses
        for queued in done:
            self._slots.release()
            queued.done.set()
        self._leave_to_thread()

    def _call(self, function: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):  # no task is left that could wait for a job
            self._loop.run_sync_soon(function)


def _seconds_until(monotonic: float) -> float | None:
    return None if monotonic == math.inf else max(0.0, monotonic - time.monotonic())
