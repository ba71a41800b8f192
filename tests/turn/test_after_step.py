"""How a turn goes on after a step."""

from collections.abc import Sequence

from msgspec import structs

from tiller_daemon.session.inputs.input_queue import InputQueue
from tiller_daemon.turn.after_step import Answered, Continue, after_step
from tiller_daemon.turn.assembly import Response, StreamedItem
from tiller_daemon.turn.budget import ReachedLimit
from tiller_daemon.turn.context import TurnPrompt
from tiller_daemon.turn.step import StepResult
from tiller_daemon.turn.unfinished import AskAgain
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import FinishReason
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, Notice, QueuedInput, ToolCall, Usage

PROMPT = TurnPrompt("", (), (), None)
OBJECTS = structs.replace(PROMPT, output_schema={"type": "object"})
CALL = ToolCall(ItemId("i"), CallId("c"), "read", "{}", "completed")
LIMIT = ReachedLimit("That is enough.")
CUT_OFF = Notice(ItemId("n"), "cut_off", "go on")
EMPTY = Notice(ItemId("n"), "empty_response", "answer")


def text(words: str = "done") -> AssistantMessage:
    return AssistantMessage(ItemId("m"), words, "completed")


def after(
    *items: StreamedItem,
    reason: FinishReason = "stop",
    before: Sequence[Notice] = (),
    limit: ReachedLimit | None = None,
    queued: Sequence[QueuedInput] = (),
    prompt: TurnPrompt = PROMPT,
    rejected: ErrorInfo | None = None,
    repaired: bool = False,
) -> object:
    """What comes after a response of `items`, told in a few words."""
    result = StepResult(Response(items, reason, Usage(), None), rejected)
    history, mailbox = (*before, *items), InputQueue(tuple(queued))
    decision = after_step(result, limit, history, mailbox, prompt, repaired=repaired)
    match decision:
        case Continue():
            return "continue"
        case Answered(answer):
            return f"answered: {answer}"
        case AskAgain(code, _):
            return f"ask again: {code}"
        case _:
            return f"{decision.outcome}: {decision.error and decision.error.code}"


STEERING = QueuedInput("q", "wait", "steer")
FOLLOW_UP = QueuedInput("q", "and then", "queue")


def test_a_response_decides_how_the_turn_goes_on() -> None:
    assert after(text()) == "answered: done"
    assert after(text(), CALL) == "continue"
    assert after(text(), reason="paused") == "continue"
    assert after(text("par"), reason="length") == "ask again: cut_off"
    assert after() == "ask again: empty_response"
    assert after(reason="content_filter") == "failed: content_policy"


def test_a_model_that_was_asked_often_enough_is_not_asked_again() -> None:
    assert after(text(), reason="length", before=[CUT_OFF]) == "ask again: cut_off"
    assert after(text(), reason="length", before=[CUT_OFF] * 2) == "limit_reached: cut_off"
    assert after(before=[EMPTY]) == "failed: empty_response"


def test_steering_goes_before_everything_but_a_rejection_a_limit_and_a_withheld_answer() -> None:
    steered = [STEERING]
    assert after(text(), queued=steered) == "continue"
    assert after(before=[EMPTY], queued=steered) == "continue"
    assert after(text(), CALL, queued=steered, rejected=ErrorInfo("no", "")) == "blocked: no"
    assert after(text(), queued=steered, limit=LIMIT) == "limit_reached: limit_reached"
    assert after(reason="content_filter", queued=steered) == "failed: content_policy"


def test_the_last_step_ends_the_turn_unless_the_model_has_answered() -> None:
    assert after(text(), limit=LIMIT) == "answered: done"
    for response in (after(CALL, limit=LIMIT), after(limit=LIMIT)):
        assert response == "limit_reached: limit_reached"
    assert after(text(), limit=LIMIT, queued=[FOLLOW_UP]) == "limit_reached: limit_reached"
    assert after(text(), queued=[FOLLOW_UP]) == "answered: done"


def test_a_message_that_does_not_match_the_schema_is_repaired_once() -> None:
    assert after(text("{}"), prompt=OBJECTS) == "answered: {}"
    assert after(text("1"), prompt=OBJECTS) == "ask again: output_schema"
    assert after(text("1"), prompt=OBJECTS, repaired=True) == "failed: output_schema"
    assert after(text("1"), prompt=OBJECTS, limit=LIMIT) == "failed: output_schema"
    assert after(CALL, prompt=OBJECTS) == "continue"
