"""Temporal activities that give a task to tiller's fleet and wait for it.

See docs/fleet-recipes.md. Run it where `tiller fleet ls` works, with temporalio installed.
"""

import asyncio
import hashlib
import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

QUEUE = "tiller"
POLL = timedelta(seconds=5)
FINAL = ("done", "cancelled", "unknown")


async def fleet(action: str, *words: str) -> list[dict[str, Any]]:
    """Run `tiller fleet … --json` and return its lines."""
    process = await asyncio.create_subprocess_exec(
        *("tiller", "fleet", action, "--json", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, problem = await process.communicate()
    if process.returncode:
        # Wrong usage, such as another task with this id, does not become right by a repetition.
        raise ApplicationError(problem.decode().strip(), non_retryable=process.returncode == 2)
    return [json.loads(line) for line in said.splitlines()]


@activity.defn
async def submit(prompt: str, repository: str, options: list[str]) -> str:
    """Submit a task and return its id, which every attempt of this activity makes anew."""
    info = activity.info()
    name = f"{info.workflow_namespace}/{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"
    task_id = f"wf-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    (task,) = await fleet("run", "--id", task_id, "--repo", repository, *options, "--", prompt)
    return str(task["id"])


@activity.defn
async def wait(task_id: str) -> dict[str, Any]:
    """Wait until a task has ended, log what its session says, and return the task.

    The heartbeat carries the session and the number of its last event, so an attempt on another
    worker logs only what came after it.
    """
    details = activity.info().heartbeat_details
    session, cursor = details if details else ("", 0)
    try:
        while True:
            (task,) = await fleet("status", task_id)
            if session != task.get("session_id", ""):  # also if another host has it now
                session, cursor = task.get("session_id", ""), 0
            events: list[dict[str, Any]] = []
            with suppress(ApplicationError):  # nothing was published yet
                events = await fleet("logs", f"{session}@{task['host']}") if session else []
            for event in events:
                if event["seq"] > cursor:
                    cursor = event["seq"]
                    item = event["body"].get("item", {})
                    if item.get("type") == "assistant_message" and item["text"]:
                        activity.logger.info("%s", item["text"])
            activity.heartbeat(session, cursor)
            if task["state"] in FINAL:
                return task
            await asyncio.sleep(POLL.total_seconds())
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details and details.cancel_requested:  # else this worker stops, and another goes on
            with suppress(ApplicationError):  # it has ended already
                await fleet("cancel", task_id)
        raise


@workflow.defn
class FleetTask:
    """One task, from submission to outcome."""

    @workflow.run
    async def run(self, prompt: str, repository: str, options: list[str]) -> dict[str, Any]:
        """Return the task as `tiller fleet status --json` shows it."""
        task_id = await workflow.execute_activity(
            submit,
            args=[prompt, repository, options],
            start_to_close_timeout=timedelta(minutes=1),
        )
        return await workflow.execute_activity(
            wait,
            task_id,
            start_to_close_timeout=timedelta(hours=12),
            heartbeat_timeout=timedelta(minutes=1),
        )


async def main() -> None:
    """Work for the Temporal server on this machine until interrupted."""
    client = await Client.connect("localhost:7233")
    async with Worker(client, task_queue=QUEUE, workflows=[FleetTask], activities=[submit, wait]):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
