"""Tasks of the user: calls of `task` that no model made, because an input is for sub-agents.

They come right after the input in history and end before the next model request, which contains
their results.
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
"""Text in which an `@` is not a mention: code has decorators."""

_MENTION = re.compile(r"(?<!\S)@([A-Za-z0-9][\w-]*)(?=[,:;.!?)]*(?:\s|\Z))")
"""`@name` as a word of its own: no address, path or package."""


class TaskRejected(Exception):
    """The user rejected what a sub-agent wanted to do, which ends the turn for this `reason`."""

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
    """Return the calls at the end of history that the latest input made and that have not begun."""
    calls: list[ToolCall] = []
    for item in reversed(items):
        if not (isinstance(item, ToolCall) and item.by_user and item.state == "pending"):
            break
        calls.append(item)
    return calls[::-1]


async def run_tasks(calls: Sequence[ToolCall], history: History, ports: Ports) -> None:
    """Run calls of the user, which are in history, to their ends; raises `TaskRejected`.

    Those that can't disturb each other run at the same time.
    """
    if not calls:
        return

    async def run(tasks: Tasks) -> ErrorInfo | None:
        # New input skips none of them, since the user wants the result of each.
        return await CallDispatcher(history, ports, tasks, early=False).run(calls, skips=False)

    rejected = await run_with_tasks(run)
    await record_changes(history, ports)
    if rejected:
        raise TaskRejected(rejected)


def _prompt(given: QueuedInput) -> str:
    """Return the text for the sub-agents, without the mentions that it begins with."""
    text = given.text
    while (match := _MENTION.match(text.lstrip())) and match[1] in given.sub_agents:
        text = text.lstrip()[match.end() :].lstrip(" ,:;.!?)")
    if given.files:
        text += "\n\nFiles that the user points to:\n" + "\n".join(given.files)
    return text.strip() or given.text
