"""Decides how a turn goes on after a step, by the contents of the response. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from tiller_daemon.turn.budget import ReachedLimit
from tiller_daemon.turn.context import Ending, TurnPrompt
from tiller_daemon.turn.output_schema import message_problem, repair_notice, without_fences
from tiller_daemon.turn.ports import Mailbox
from tiller_daemon.turn.step import StepResult
from tiller_daemon.turn.unfinished import AskAgain, judge, whole_answer
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.items import Item

OUTPUT_SCHEMA = "output_schema"
"""The code of the notice, and of the error, about a message that does not match the schema."""


class Continue(Struct, frozen=True):
    """The model goes on: it has called tools, the provider has paused, or steering is waiting."""


class Answered(Struct, frozen=True):
    """The model has answered, so the turn ends unless hooks or queued input keep it going."""

    answer: str


def after_step(
    result: StepResult,
    limit: ReachedLimit | None,
    items: Sequence[Item],
    mailbox: Mailbox,
    prompt: TurnPrompt,
    *,
    repaired: bool,
) -> Continue | AskAgain | Answered | Ending:
    """Return how the turn goes on after a step; `limit` made it the last one, unless it is None.

    `items` is the history, which ends with the response. `repaired` tells whether the model was
    asked before for a message that matches the schema.
    """
    response, steered = result.response, mailbox.has_steering
    unfinished = judge(response, items)
    goes_on = response.calls or response.finish_reason == "paused"
    if result.rejected:
        return Ending("blocked", result.rejected)
    if limit and (goes_on or mailbox.queue or unfinished):
        return limit_reached(limit)
    if response.finish_reason == "content_filter":
        message = "The provider withheld the answer under its content policy."
        return Ending("failed", ErrorInfo("content_policy", message))
    if goes_on or steered:
        return Continue()
    if unfinished:
        return unfinished
    schema, answer = prompt.output_schema, whole_answer(items)
    if schema is not None and (problem := message_problem(schema, answer)):
        if repaired or limit:
            message = f"The final message does not match the output schema: {problem}."
            return Ending("failed", ErrorInfo(OUTPUT_SCHEMA, message))
        return AskAgain(OUTPUT_SCHEMA, repair_notice(schema, problem))
    return Answered(answer)


def final(prompt: TurnPrompt, limit: ReachedLimit | None, answer: str) -> Ending:
    """Return how a turn ends whose model has answered, in its last step or before."""
    answer = "" if prompt.output_schema is None else without_fences(answer)
    # Without its tools, the model can only stop, whether it is done or not.
    if limit and prompt.tools:
        return limit_reached(limit, answer)
    return Ending("completed", last_message=answer)


def limit_reached(limit: ReachedLimit, answer: str = "") -> Ending:
    """Return how a turn ends that has reached a limit."""
    code, advice = "limit_reached", "Continue the turn, or send a message."
    if limit.of_session:
        code, advice = "session_budget", "Raise `session_budget` or start a new session."
    return Ending("limit_reached", ErrorInfo(code, f"{limit.sentence} {advice}"), answer)
