"""Tells the model that its agent may now write, or no longer, and hands over the plan. Pure.

The marks of the model's latest steps decide, so the notice is also correct after a revert, in a
fork, and after the agent itself was changed.
"""

from collections.abc import Callable

from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.history import for_request
from tiller_protocol.ids import ItemId
from tiller_protocol.items import AssistantMessage, Notice
from tiller_protocol.snapshot import Mark, Snapshot

CODE = "mode"
"""Code of the notice."""

MAY_WRITE = (
    "Your role has changed: you are now the agent `{now}`, which may change files and run commands "
    "as far as its permissions allow. Before, you were `{before}`, which could only read. That "
    "limit no longer applies."
)
ONLY_READS = (
    "Your role has changed: you are now the agent `{now}`, which only reads. Before, you were "
    "`{before}`, which could write. From here on, change nothing: calls that write are denied. "
    "Leave unfinished work as it is until the user wants you to continue."
)
PLAN_ABOVE = (
    "If the last message of `{before}` is a plan, carry it out, unless the user says otherwise."
)
PLAN_QUOTED = (
    "This was the last message of `{before}`. If it is a plan, carry it out, unless the user says "
    "otherwise.\n<message>\n{text}\n</message>"
)
STEPS = "The list of steps that `{before}` has shown to the user:\n{lines}"


def mode_notices(
    snapshot: Snapshot, context: TurnContext, new_id: Callable[[], str]
) -> tuple[Notice, ...]:
    """Return the notice for a turn that begins now; none if the model may do the same as before."""
    before = next((mark for mark in reversed(snapshot.marks) if mark.step), None)
    if before is None or before.read_only == context.permissions.read_only:
        return ()
    names = {"now": context.agent, "before": before.agent}
    parts = [(MAY_WRITE if before.read_only else ONLY_READS).format(**names)]
    if before.read_only:
        parts += _handed_over(snapshot, before)
    return (Notice(ItemId(new_id()), CODE, "\n\n".join(parts)),)


def _handed_over(snapshot: Snapshot, before: Mark) -> list[str]:
    """Return the last message and the plan of the previous agent, which could only read."""
    parts: list[str] = []
    if message := _last_message(snapshot, before.turn_id):
        sent = for_request(snapshot.items, frozenset(snapshot.pruned))
        text = PLAN_ABOVE if message in sent else PLAN_QUOTED
        parts.append(text.format(before=before.agent, text=message.text))
    if any(entry.state != "completed" for entry in snapshot.plan):
        lines = "\n".join(f"- {entry.text} ({entry.state})" for entry in snapshot.plan)
        parts.append(STEPS.format(before=before.agent, lines=lines))
    return parts


def _last_message(snapshot: Snapshot, turn_id: str) -> AssistantMessage | None:
    begin = next(mark.items for mark in snapshot.marks if mark.turn_id == turn_id)
    for item in reversed(snapshot.items[begin:]):
        if isinstance(item, AssistantMessage) and item.state == "completed" and item.text:
            return item
    return None
