"""Handles responses that are no answer because they are cut off or empty. Pure.

A notice asks the model again, a few times in a row; after that, the turn ends with an error.
"""

from collections.abc import Sequence

from msgspec import Struct

from tiller_daemon.turn.assembly import Response
from tiller_daemon.turn.context import Ending
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import AssistantMessage, Item, Notice, ToolCall, UserMessage
from tiller_protocol.turns import ASKS_AGAIN, CUT_OFF, EMPTY_RESPONSE, is_continued

CONTINUATIONS_MAX = 2
"""How often in a row the model is asked to go on; an answer of three responses is long enough."""

EMPTY_RETRIES_MAX = 1
"""How often in a row the model is asked again after an empty response."""

GO_ON = (
    "The answer was cut off at the length limit of a response. Go on exactly where it stopped: "
    "repeat nothing, and say nothing about the interruption."
)
ANSWER_SOONER = (
    "The response reached its length limit before the answer began. Think less, and answer now."
)
ANSWER = (
    "The response was empty. Go on with the task; if there is nothing left to do, say what you did "
    "and what you found."
)

CUT_OFF_AGAIN = Ending(
    "limit_reached",
    ErrorInfo(
        CUT_OFF,
        f"The answer was cut off at the model's length limit, {CONTINUATIONS_MAX + 1} times in a "
        "row. Continue the turn, or raise the model's `max_output`.",
    ),
)
EMPTY_AGAIN = Ending(
    "failed",
    ErrorInfo(
        EMPTY_RESPONSE,
        f"The model sent {EMPTY_RETRIES_MAX + 1} empty responses in a row. Continue the turn to "
        "try again, or choose another model.",
    ),
)


class AskAgain(Struct, frozen=True):
    """A notice asks the model to go on or to answer again."""

    code: str
    """The code of the notice."""
    text: str
    """The text of the notice."""


def judge(response: Response, items: Sequence[Item]) -> AskAgain | Ending | None:
    """Return what to do if a response is cut off or empty; None for all other responses.

    That includes responses that the provider paused or withheld. `items` is the history, which ends
    with the response.
    """
    if response.calls or response.finish_reason in ("content_filter", "paused"):
        return None
    if response.finish_reason == "length":
        text = ANSWER_SOONER if response.is_empty else GO_ON
        often = _times_asked(items, CUT_OFF) >= CONTINUATIONS_MAX
        return CUT_OFF_AGAIN if often else AskAgain(CUT_OFF, text)
    if response.is_empty:
        often = _times_asked(items, EMPTY_RESPONSE) >= EMPTY_RETRIES_MAX
        return EMPTY_AGAIN if often else AskAgain(EMPTY_RESPONSE, ANSWER)
    return None


def whole_answer(items: Sequence[Item]) -> str:
    """Return the text of the last message, joined with the messages that it continues."""
    pieces: list[str] = []
    for position in range(len(items) - 1, -1, -1):
        item = items[position]
        if isinstance(item, AssistantMessage) and item.state != "discarded":
            pieces.append(item.text)
            if not is_continued(items, position):
                break
    return "".join(reversed(pieces))


def _times_asked(items: Sequence[Item], code: str) -> int:
    """Count the notices with this code since the latest input, call, or notice of another kind."""
    times = 0
    for item in reversed(items):
        match item:
            case Notice():
                if item.code not in ASKS_AGAIN:
                    break
                times += item.code == code
            case UserMessage() | ToolCall(discarded=False):
                break
            case _:
                pass
    return times
