"""Runs the user's tasks: calls of the tool `task` that come from an input for sub-agents.

In history, these calls come right after the input. They end before the next model request, which
contains their results.
"""

import re
from collections.abc import Callable, Collection, Sequence

from tiller_daemon.turn.call import record_changes
from tiller_daemon.turn.dispatch import CallDispatcher
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.tasks import Tasks, run_with_tasks
from tiller_daemon.turn.user_command import user_call
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import Item, QueuedInput, ToolCall

TOOL = "task"

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
"""Code, in which an `@` may be a decorator and is no mention."""

_MENTION = re.compile(r"(?<!\S)@([A-Za-z0-9][\w-]*)(?=[,:;.!?)]*(?:\s|\Z))")
"""`@name` as a separate word, which excludes addresses, paths and packages."""


class TaskRejected(Exception):
    """The user rejected a sub-agent's call, which ends the turn for this `reason`."""

    def __init__(self, reason: ErrorInfo) -> None:
        super().__init__(reason.message)
        self.reason = reason


def mentioned(text: str, agents: Collection[str]) -> tuple[str, ...]:
    """Return the agents that a text mentions as `@name`, each once, in order."""
    names = _MENTION.findall(_CODE.sub("`", text))
    return tuple(dict.fromkeys(name for name in names if name in agents))


def task_calls(given: QueuedInput, new_id: Callable[[], str]) -> tuple[ToolCall, ...]:
    """Return the calls that an input makes, one for each of its sub-agents."""
    prompt = _prompt(given)
    return tuple(
        user_call(TOOL, {"prompt": prompt, "agent": agent}, new_id()) for agent in given.sub_agents
    )


def given_tasks(items: Sequence[Item]) -> list[ToolCall]:
    """Return the latest input's calls that have not begun; they are at the end of history."""
    calls: list[ToolCall] = []
    for item in reversed(items):
        if not (isinstance(item, ToolCall) and item.by_user and item.state == "pending"):
            break
        calls.append(item)
    return calls[::-1]


async def run_tasks(calls: Sequence[ToolCall], history: History, ports: Ports) -> None:
    """Run the user's calls, which are in history, to their end; raises `TaskRejected`.

    Calls that can't disturb each other run concurrently.
    """
    if not calls:
        return

    async def run(tasks: Tasks) -> ErrorInfo | None:
        # New input skips none of these calls, since the user wants all results.
        return await CallDispatcher(history, ports, tasks, early=False).run(calls, skips=False)

    rejected = await run_with_tasks(run)
    await record_changes(history, ports)
    if rejected:
        raise TaskRejected(rejected)


def _prompt(given: QueuedInput) -> str:
    """Return the input's text for the sub-agents, without the mentions at its beginning."""
    text = given.text
    while (match := _MENTION.match(text.lstrip())) and match[1] in given.sub_agents:
        text = text.lstrip()[match.end() :].lstrip(" ,:;.!?)")
    if given.files:
        text += "\n\nFiles that the user points to:\n" + "\n".join(given.files)
    return text.strip() or given.text
