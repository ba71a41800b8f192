"""Runs jobs in threads: those of one lane in order, those of different lanes side by side."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

JOBS_MAX = 64
"""Maximum number of jobs that run or wait; the daemon handles as many submissions at a time."""

_Job = TypeVar("_Job")


class Lanes(Generic[_Job]):
    """Jobs to do. A lane has a thread while it has jobs."""

    def __init__(
        self,
        work: Callable[[_Job], None],
        start: Callable[[Callable[[], None]], object],
    ) -> None:
        """`work` does one job; `start` starts a thread, and reports what it raises."""
        self._work = work
        self._start = start
        self._lanes: dict[str, deque[_Job]] = {}
        self._lock = threading.Lock()
        self._capacity = threading.Semaphore(JOBS_MAX)

    def put(self, job: _Job, lane: str | None) -> None:
        """Add a job, in a lane of its own if `lane` is `None`; waits while there are `JOBS_MAX`."""
        self._capacity.acquire()
        if lane is None:
            self._start(lambda: self._do(job))
            return
        with self._lock:
            jobs = self._lanes.get(lane)
            if jobs is not None:
                jobs.append(job)
                return
            self._lanes[lane] = jobs = deque([job])
        self._start(lambda: self._drain(lane, jobs))

    def join(self) -> None:
        """Wait until every job is done; none can be added any more."""
        for _ in range(JOBS_MAX):
            self._capacity.acquire()

    def _drain(self, lane: str, jobs: deque[_Job]) -> None:
        while True:
            self._do(jobs[0])
            with self._lock:
                jobs.popleft()
                if not jobs:
                    del self._lanes[lane]
                    return

    def _do(self, job: _Job) -> None:
        try:
            self._work(job)
        finally:
            self._capacity.release()
