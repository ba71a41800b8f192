"""One step: a model request, the response to it, and the calls which that response asks for."""

from functools import partial

from msgspec import Struct

from tiller_daemon.models.base import ModelRequest
from tiller_daemon.turn.assembly import Response, stream_response
from tiller_daemon.turn.dispatch import CallDispatcher
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.tasks import Tasks, run_with_tasks

NO_TOOLS_LEFT = "not run: the turn has reached its limit"
CUT_OFF = "not run: the response was cut off at its length limit, so the call may be incomplete"


class StepContext(Struct, frozen=True):
    """What is fixed for one model request. `step` counts from 1.

    With a `limit` that is reached, a sentence, it is the last one and gets no tools.
    """

    step: int
    request: ModelRequest
    limit: str | None


class StepResult(Struct, frozen=True):
    """What a step came to; `rejected` means that the user's no to a call ends the turn."""

    response: Response
    rejected: bool = False


async def take_step(step_context: StepContext, history: History, ports: Ports) -> StepResult:
    """Stream the response and answer its calls, all in `history` and as events.

    Raises `ModelError`. Calls may begin before the response has ended, and all have ended when
    this returns or raises.
    """
    return await run_with_tasks(partial(_take_step, step_context, history, ports))


async def _take_step(
    step_context: StepContext, history: History, ports: Ports, tasks: Tasks
) -> StepResult:
    calls = CallDispatcher(history, ports, tasks, early=step_context.limit is None)
    try:
        response = await stream_response(step_context.request, calls, ports)
    except BaseException:
        await calls.complete_withheld()
        raise
    ports.report_step_usage(response.usage)
    history.add(*response.items)
    rejected = False
    if step_context.limit:
        await calls.refuse(response.calls, "skipped", NO_TOOLS_LEFT)
    elif response.finish_reason == "length":
        await calls.drop()
        await calls.refuse(response.calls, "invalid", CUT_OFF)
    else:
        rejected = await calls.run(response.calls)
    return StepResult(response, rejected)
