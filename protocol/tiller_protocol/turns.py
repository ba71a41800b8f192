"""The running turn's state in a snapshot."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct

from tiller_protocol.doc import doc
from tiller_protocol.events import TurnContextShown
from tiller_protocol.items import (
    AssistantMessage,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    Usage,
    UsdCost,
)

RESUMED = "resumed"
"""Code of the notice that a turn continues after a restart of the daemon."""

CUT_OFF = "cut_off"
"""Code of the notice that asks the model to continue an answer that reached a length limit."""

EMPTY_RESPONSE = "empty_response"
"""Code of the notice that asks the model again because its response was empty."""

LAST_STEP = "last_step"
"""Code of the notice that the next step is the last one."""

ASKS_AGAIN = frozenset({CUT_OFF, EMPTY_RESPONSE, LAST_STEP})
"""Codes of the notices that may come between a cut-off answer and its continuation."""


class OpenTurn(Struct, omit_defaults=True):
    """The turn that is running, or that was running when the log ended."""

    turn_id: Annotated[str, doc("Id of the turn.")]
    started_at: Annotated[float, doc("Time of the start in Unix seconds.")]
    context: Annotated[TurnContextShown, doc("The turn's context, as in `turn_started`.")]
    step: Annotated[int, doc("The latest step's number; 0 before the first step.")] = 0
    step_open: Annotated[bool, doc("Whether the latest step is still running.")] = False
    steps_ended: Annotated[int, doc("Number of steps that have ended.")] = 0
    delegated_steps: Annotated[int, doc("Number of model requests by sub-agents.")] = 0
    usage: Annotated[Usage, doc("Tokens so far, including sub-agents.")] = Usage()
    cost: UsdCost = None
    last_message: Annotated[str, doc("The model's latest message.")] = ""
    resumed: Annotated[int, doc("Number of times that a restarted daemon resumed the turn.")] = 0
    away_s: Annotated[float, doc("Time in the turn when no daemon ran, in seconds.")] = 0.0

    def worked_s(self, now: float) -> float:
        """The working time until `now` (Unix seconds), in seconds."""
        return max(0.0, now - self.started_at - self.away_s)


def is_continued(items: Sequence[Item], position: int) -> bool:
    """Whether the message at `position` continues the previous message where it was cut off."""
    was_cut_off = False
    for index in range(position - 1, -1, -1):
        item = items[index]
        match item:
            case Notice():
                if item.code not in ASKS_AGAIN:
                    return False
                was_cut_off = was_cut_off or item.code == CUT_OFF
            case AssistantMessage():
                if item.state != "discarded":
                    return was_cut_off
            case Reasoning() | Patch() | ToolCall(discarded=True):
                pass
            case _:
                return False
    return False


def add_cost(total: float | None, more: float | None) -> float | None:
    """Add two costs in US dollars; `None` means that the price is unknown and counts as 0."""
    return total if more is None else more + (total or 0.0)
