"""Runs concurrent tasks. The first failure cancels the others, and is raised without a group."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Tasks:
    """The tasks of one call of `run_with_tasks`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.failure: Exception | None = None
        self._nursery = nursery

    def start_soon(
        self, job: Callable[[*Arguments], Awaitable[None]], *arguments: *Arguments
    ) -> None:
        """Start a task."""
        self._nursery.start_soon(self._run, job, arguments)

    async def start(
        self, job: Callable[[*Arguments], Awaitable[None]], *arguments: *Arguments
    ) -> None:
        """Start a task and return once it runs, so that tasks start in the order of these calls."""
        await self._nursery.start(self._begin, job, arguments)

    def fail(self, error: Exception) -> None:
        """Cancel all tasks; `run_with_tasks` raises the first error."""
        self.failure = self.failure or error
        self._nursery.cancel_scope.cancel()

    async def _begin(
        self,
        job: Callable[[*Arguments], Awaitable[None]],
        arguments: tuple[*Arguments],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        task_status.started()
        await self._run(job, arguments)

    async def _run(
        self, job: Callable[[*Arguments], Awaitable[None]], arguments: tuple[*Arguments]
    ) -> None:
        try:
            await job(*arguments)
        except Exception as error:
            self.fail(error)


async def run_with_tasks(main: Callable[[Tasks], Awaitable[T]]) -> T:
    """Run `main` and the tasks that it starts; return its result when all have ended.

    An exception in any of them cancels the others and is raised when all have ended.
    """
    done: list[T] = []
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery)
        try:
            done.append(await main(tasks))
        # A nursery would wrap the error in a group.
        except Exception as error:
            tasks.fail(error)
    if tasks.failure is not None:
        raise tasks.failure
    return done[0]
