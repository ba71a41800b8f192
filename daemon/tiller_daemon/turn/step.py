"""Takes one step: a model request, its response, and the tool calls of that response."""

from functools import partial

from msgspec import Struct

from tiller_daemon.models.base import ModelRequest
from tiller_daemon.turn.assembly import Response, stream_response
from tiller_daemon.turn.budget import ReachedLimit
from tiller_daemon.turn.dispatch import CallDispatcher
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.tasks import Tasks, run_with_tasks
from tiller_protocol.errors import ErrorInfo

NO_TOOLS_LEFT = "not run: the turn has reached its limit"
CUT_OFF = "not run: the response was cut off at its length limit, so the call may be incomplete"


class StepContext(Struct, frozen=True):
    """The number, request and limit of one step."""

    step: int
    """The step's number, counted from 1 in each turn."""
    request: ModelRequest
    limit: ReachedLimit | None
    """The limit that makes this the last step, without tools; None if another step may follow."""


class StepResult(Struct, frozen=True):
    """How a step ended."""

    response: Response
    rejected: ErrorInfo | None = None
    """Why a call that did not run ends the turn; None if no call does."""


async def take_step(step_context: StepContext, history: History, ports: Ports) -> StepResult:
    """Stream the response and run its calls; add both to `history` and emit their events.

    Raises `ModelError`. Calls may start before the response ends; all have ended when this returns
    or raises.
    """
    return await run_with_tasks(partial(_take_step, step_context, history, ports))


async def _take_step(
    step_context: StepContext, history: History, ports: Ports, tasks: Tasks
) -> StepResult:
    calls = CallDispatcher(history, ports, tasks, early=step_context.limit is None)
    try:
        response = await stream_response(step_context.request, calls, ports)
    except BaseException:
        # On a cancellation, too, because the results of calls must not be lost.
        await calls.announce_withheld()
        raise
    ports.spending.report_step(response.usage)
    history.add(*response.items)
    rejected = None
    if step_context.limit:
        await calls.refuse(response.calls, "skipped", NO_TOOLS_LEFT)
    elif response.finish_reason == "length":
        # It is unknown which calls are complete, so no call counts, even if it has started.
        await calls.drop()
        await calls.refuse(response.calls, "invalid", CUT_OFF)
    else:
        rejected = await calls.run(response.calls)
    return StepResult(response, rejected)
