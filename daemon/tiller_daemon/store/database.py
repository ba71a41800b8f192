"""Runs the log's transactions: short ones on the event loop, the others in a thread.

A small transaction takes 0.05 ms and a fast disk syncs in 0.2 ms, but passing work to a thread and
back takes 1 ms while the loop is busy. So a write runs at once if nothing is queued and the disk
has been fast. Otherwise the write is queued, and the thread commits all queued writes in one
transaction. `transactions` has the transactions themselves.

Both ways are needed. Through the thread alone, a commit beside a busy loop takes 2.1 ms instead of
0.08. On the loop alone, 64 sessions make 440 instead of 4,600 commits a second on a disk, and block
the loop for up to 0.5 s.
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
"""The most reads and writes in the queue; further callers wait."""

GROUP_WRITES_MAX = 256
"""The most writes in one transaction. With more writes, the cost of the commit hardly matters."""

GROUP_BYTES_MAX = 4 * 1024 * 1024
"""The total size of bodies at which a transaction takes no further writes."""

INLINE_BYTES_MAX = 256 * 1024
"""The size of bodies above which the thread does a write, because storing takes about 1 ms."""

REST_S = 2.0
"""How long to wait after the last write before the write-ahead log is emptied."""

UNSYNCED_S_MAX = 0.04
"""How long after an unsynced commit the file is synced, unless a synced commit came first."""

CLOSE_S_MAX = 30.0
"""How long `close` waits for the disk, even when cancelled, before it abandons the thread."""


class _Queued:
    """A job in the queue; `done` is set when it has a result or an error."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.done = trio.Event()


_STOP = object()
"""Queued to end the thread."""

_SYNC_SOON = object()
"""Queued to have the thread sync the file after `UNSYNCED_S_MAX`."""

_CHECKPOINT = object()
"""Queued to have the thread move the write-ahead log into the main file."""

_EMPTY = object()
"""Queued to have the thread move the write-ahead log into the main file and empty it."""

_WAIT_FOR_REST = object()
"""Queued to have the thread call `_empty_at_rest` after `REST_S`."""


class Database:
    """Runs jobs on the connection until `close` is called. Must be used from one event loop.

    The loop uses the connection only while nothing is queued or running in the thread, so the
    connection never has two users at once.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self._transactions = Transactions(connection, path, check_owner)
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
        """Do the same as `read`, on the loop if possible; `work` must find rows by their key."""
        job = Job(work, writes=False)
        if not self._is_free:
            return await self._run_in_thread(job)
        self._transactions.read([job])
        return self._result(job)

    async def write(
        self, work: Callable[[sqlite3.Connection], None], size: int = 0, *, synced: bool = True
    ) -> None:
        """Run `work`, which writes about `size` bytes, and commit the write.

        A committed write survives the end of this process. If `synced`, the write also survives a
        power failure. Otherwise it does so after `UNSYNCED_S_MAX` or the next synced write.

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

    def met(self, damage: LogError) -> None:
        """Note damage to what was read, so that it is among the `problems`."""
        self._damage = damage.message

    def problems(self) -> tuple[str, ...]:
        """Return sentences about the latest damage, and about why nothing can be stored."""
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
        """Queue the work that commits have left: syncing, moving or emptying the log."""
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
        """Empty the write-ahead log if nothing was written for `REST_S`. Runs on the loop."""
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
            self.met(job.error)
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
                # Cleared before the sync, because a later commit needs another sync.
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
        """Return `first` and the jobs queued after it, up to the maximum size of a group."""
        taken = [first]
        size = first.job.size
        while len(taken) < GROUP_WRITES_MAX and size < GROUP_BYTES_MAX:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                break
            if not isinstance(entry, _Queued):
                # This is the order to stop, which must stay last.
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
        """Wake the callers of `done` jobs after the thread's `uses` of the connection.

        Runs on the loop.
        """
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
