"""Ops that start, steer, end and revert turns, and the running turn's state in a snapshot."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.items import (
    AssistantMessage,
    Decision,
    Image,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
    Usage,
    UsdCost,
)
from tiller_protocol.op import Op, Result, SessionRef
from tiller_protocol.settings import Positive, TurnContextShown, TurnOverrides

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


class UserInput(Op, frozen=True, tag="user_input"):
    """Sends the user's input: text, images, files, or several of these.

    Answered by `Started`, `Steered` or `Queued`. If an image or file can't be used, the whole input
    is rejected.
    """

    session_id: SessionRef
    text: Annotated[str, doc("The user's text; may be empty if something is attached.")] = ""
    images: Annotated[
        tuple[Image, ...],
        doc("Images and PDFs. The content determines the format; large images are scaled down."),
    ] = ()
    files: Annotated[
        tuple[str, ...],
        doc(
            "Paths of files, absolute or relative to the workspace. The model gets the paths, not "
            "the content, and reads the files that it needs."
        ),
    ] = ()
    delivery: Annotated[
        Literal["auto", "start", "steer", "queue"],
        doc(
            "`start` begins a turn with this input. `steer` adds the input to the running turn. "
            "`queue` lets the running turn take the input after the turn's other work. `auto` "
            "steers the running turn. If no turn is running, `auto` and `queue` start one. If "
            "older inputs wait, that turn begins with the first of them, and this input is queued."
        ),
    ] = "auto"
    expected_turn_id: Annotated[
        IdText | None, doc("Accept the input only if this turn is running. Default: no check.")
    ] = None
    overrides: Annotated[
        TurnOverrides, doc("Choices for the turn that this input starts, if it starts one.")
    ] = TurnOverrides()
    no_reply: Annotated[
        bool,
        doc(
            "If no turn is running, only add the input to history; the answer has no result. If a "
            "turn is running, the input steers it. Can't be combined with the delivery `queue`."
        ),
    ] = False
    system: Annotated[
        str, doc("Text to add to the system prompt of the turn that this input starts.")
    ] = ""
    context: Annotated[
        str,
        doc(
            "Context for the input, such as a program's output. The model gets it after `text`, "
            "marked as context. Commands and sub-agents named in the context are not called."
        ),
    ] = ""


class TurnContinue(Op, frozen=True, tag="turn_continue"):
    """Starts a turn without a new message. Answered by `Started`, or rejected as `busy`.

    If inputs are queued, the turn takes the first one. Otherwise, the turn continues the work that
    a failure, an interrupt, a limit, a revert or a fork has cut off. Rejected as `empty_input` if
    there is nothing to continue.
    """

    session_id: SessionRef
    overrides: Annotated[
        TurnOverrides,
        doc("Choices for the new turn, in addition to the choices of the continued turn."),
    ] = TurnOverrides()


class Compact(Op, frozen=True, tag="compact"):
    """Replaces old history with a summary. Answered by `Started`, or rejected as `busy`.

    The compaction is a turn without steps. If history is too short, the turn completes with the
    warning `nothing_to_compact`. If no summary can be made, the turn fails.
    """

    session_id: SessionRef
    instructions: Annotated[str, doc("What the user wants the summary to keep.")] = ""


class Shell(Op, frozen=True, tag="shell"):
    """Runs the user's own command in the workspace, and adds the output to history.

    No permission rule applies. The command is a turn without steps. The turn's only item is a
    `bash` call with `by_user`. The turn can be interrupted but not steered. Answered by `Started`,
    or rejected as `busy`.
    """

    session_id: SessionRef
    command: Annotated[str, doc("The command line, for the shell.")]


class Started(Result, frozen=True, tag="started"):
    """A turn has started."""

    turn_id: Annotated[str, doc("Id of the new turn.")]


class Steered(Result, frozen=True, tag="steered"):
    """The running turn gets the input before its next model request.

    If the turn ends first, the input is queued.
    """

    turn_id: Annotated[str, doc("Id of the running turn.")]
    input_id: Annotated[str, doc("Id of the input while it waits.")]


class Queued(Result, frozen=True, tag="queued"):
    """The input waits in the queue."""

    input_id: Annotated[str, doc("Id of the queued input.")]
    position: Annotated[int, doc("Position in the queue; 0 is next.")]


class QueueEdit(Op, frozen=True, tag="queue_edit"):
    """Changes one queued input. Answered by `Started` if `promote` begins a turn."""

    session_id: SessionRef
    input_id: Annotated[IdText, doc("Id of the queued input.")]
    action: Annotated[
        Literal["edit", "remove", "promote", "move"],
        doc(
            "`edit` replaces the text. `remove` drops the input. `move` changes the position. "
            "`promote` lets the input steer the running turn or, if no turn is running, start one."
        ),
    ]
    text: Annotated[str, doc("The new text, for `edit`.")] = ""
    position: Annotated[int, Meta(ge=0), doc("The new position, for `move`; 0 is next.")] = 0


class Interrupt(Op, frozen=True, tag="interrupt"):
    """Cancels the running turn at once, or ends a background command or sub-agent."""

    session_id: SessionRef
    turn_id: Annotated[IdText | None, doc("The turn to end. Default: the running turn.")] = None
    background_id: Annotated[
        IdText | None, doc("End this background command or sub-agent instead; the turn continues.")
    ] = None


class Answer(Op, frozen=True, tag="answer"):
    """Answers an open request."""

    request_id: Annotated[IdText, doc("Id of the request.")]
    decision: Annotated[
        Decision,
        doc(
            "`once`, `always` and `always_here` approve the call. `always` also allows the "
            "request's `always` patterns for the rest of the session. `always_here` also allows "
            "these patterns for every session in the request's `always_here` directory. `reject` "
            "with a reason in `text` refuses only this call. `reject` without a reason also ends "
            "the turn, unless the request is a question. `answer` replies to a question."
        ),
    ]
    text: Annotated[
        str, doc("For `answer`: the reply. For `reject`: a reason, which the model gets.")
    ] = ""


class Revert(Op, frozen=True, tag="revert"):
    """Restores files and history to the state before a turn, or before a step of a turn.

    A file that others have changed since that point stays as it is. Answered by `RevertResult`.
    """

    session_id: SessionRef
    turn_id: Annotated[IdText, doc("The turn to undo, with everything after it.")]
    step: Annotated[
        Positive | None,
        doc("The first step to undo; later steps are undone, too. Default: the whole turn."),
    ] = None


class Unrevert(Op, frozen=True, tag="unrevert"):
    """Undoes the last revert, if no turn has begun since. Answered by `RevertResult`."""

    session_id: SessionRef


class RevertResult(Result, frozen=True, tag="revert"):
    """The effect of a revert on files. Paths are relative to the workspace."""

    files: Annotated[tuple[str, ...], doc("Files that were restored or removed.")] = ()
    conflicts: Annotated[tuple[str, ...], doc("Files that can't be restored and stay as is.")] = ()
    partial: Annotated[bool, doc("Whether some changes may be unknown and not reverted.")] = False
    sub_agents: Annotated[
        tuple[str, ...],
        doc("Sessions of background sub-agents whose changes stay; revert each one separately."),
    ] = ()
    removed: Annotated[tuple[str, ...], doc("Those of `files` that were removed.")] = ()
    without_snapshot: Annotated[tuple[str, ...], doc("Conflicts that no snapshot contains.")] = ()
    problems: Annotated[dict[str, str], doc("Why conflicts could not be written, by path.")] = {}  # noqa: RUF012


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
