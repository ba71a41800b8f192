"""Runs jobs in threads: jobs with the same key in order, other jobs at the same time."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

JOBS_MAX = 64
"""Maximum number of jobs that run or wait: as many as the daemon handles at a time."""

_Job = TypeVar("_Job")


class OrderedJobs(Generic[_Job]):
    """Runs jobs; each key has a thread while it has jobs."""

    def __init__(
        self,
        work: Callable[[_Job], None],
        start: Callable[[Callable[[], None]], object],
    ) -> None:
        """`work` does one job; `start` runs a function in a thread and reports its errors."""
        self._work = work
        self._start = start
        self._by_key: dict[str, deque[_Job]] = {}
        self._lock = threading.Lock()
        self._capacity = threading.Semaphore(JOBS_MAX)

    def put(self, job: _Job, key: str | None) -> None:
        """Add a job, which waits for no other job if it has no `key`; block at `JOBS_MAX` jobs."""
        self._capacity.acquire()
        if key is None:
            self._start(lambda: self._do(job))
            return
        with self._lock:
            jobs = self._by_key.get(key)
            if jobs is not None:
                jobs.append(job)
                return
            self._by_key[key] = jobs = deque([job])
        self._start(lambda: self._drain(key, jobs))

    def join(self) -> None:
        """Wait until every job is done; no job can be added after this."""
        for _ in range(JOBS_MAX):
            self._capacity.acquire()

    def _drain(self, key: str, jobs: deque[_Job]) -> None:
        while True:
            self._do(jobs[0])
            with self._lock:
                jobs.popleft()
                if not jobs:
                    del self._by_key[key]
                    return

    def _do(self, job: _Job) -> None:
        try:
            self._work(job)
        finally:
            self._capacity.release()
