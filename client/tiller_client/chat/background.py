"""Runs tasks in the background of an application, until it ends."""

import asyncio
from collections.abc import Coroutine

from prompt_toolkit.application import Application


class BackgroundTasks:
    """An application's tasks. If a task fails, the application ends and raises the task's error."""

    def __init__(self, app: Application[None]) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run this task until it is done or `end` is called."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._finished)
        self._tasks.append(task)

    async def end(self) -> None:
        """Cancel all tasks and wait for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._app.is_running and not self._app.is_done:
            self._app.exit(exception=error)
