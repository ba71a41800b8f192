"""The turn: from a user's input until the agent has nothing left to do. Open this file first.

`run_turn` is the whole control flow, and `after_step` decides after each response. It neither opens
nor closes the turn. The session has logged `turn_started`, and closes the turn with the `Ending`
that `run_turn` returns, or after a cancellation or crash. A turn that is resumed after the daemon
stopped takes the same path, with its earlier steps counted.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from tiller_daemon.models.base import ModelError, ModelRequest
from tiller_daemon.turn.after_step import (
    OUTPUT_SCHEMA,
    Answered,
    Continue,
    after_step,
    final,
    limit_reached,
)
from tiller_daemon.turn.budget import ReachedLimit, Spent, reached_limit, spent_by
from tiller_daemon.turn.call import record_changes
from tiller_daemon.turn.compaction import (
    CompactionFailed,
    ContextFull,
    ContextWindow,
    NothingToCompact,
    prune,
)
from tiller_daemon.turn.context import Budgets, Ending, TurnContext
from tiller_daemon.turn.decisions import last_user_text
from tiller_daemon.turn.history import History
from tiller_daemon.turn.image_refusal import images_hint
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.step import StepContext, StepResult, take_step
from tiller_daemon.turn.unfinished import AskAgain
from tiller_daemon.turn.user_tasks import given_tasks, run_tasks, task_calls
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    AnyBody,
    ItemCompleted,
    ItemStarted,
    QueueChanged,
    StepEnded,
    StepStarted,
    WarningRaised,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Notice, QueuedInput, ToolCall, Usage, UserMessage
from tiller_protocol.turns import LAST_STEP

LAST_STEP_NOTICE = (
    "This is the last step of the turn, and you can't call tools any more. Say what you did, what "
    "you found and what is left."
)


async def run_turn(context: TurnContext, history: History, ports: Ports) -> Ending:
    """Run steps until the agent has nothing left to do; return how the turn ended.

    A failed model request is an ending, not an exception. Cancellation and bugs propagate and leave
    items open. Raises `TaskRejected`.
    """
    budget = _BudgetTracker(context.budgets, ports)
    if reached := budget.session_limit():
        return limit_reached(reached)
    step, tasks = context.before.turn_steps, given_tasks(history.items)
    if step and (reached := budget.turn_limit(step)):
        return limit_reached(reached)
    if not step and (denied := await _ask_hooks(history, ports)):
        return Ending("blocked", ErrorInfo("hook", denied))
    await run_tasks(tasks, history, ports)
    window = ContextWindow(context, history, ports)
    repaired = is_paused = False
    while True:
        try:
            # Steering waits for a step after a compaction, so that the model continues from its
            # summary, and after a provider's pause, so that the response continues seamlessly.
            if not await window.compact_if_full() and not is_paused:
                await _add_inputs(ports.mailbox.take_steering(), history, ports)
            step += 1
            limit = budget.limit(step)
            step_context = await _begin_step(context, step, limit, history, ports)
            result = await _take_step(step_context, history, window, ports)
        except ModelError as error:
            hint = images_hint(error, history.for_request())
            return Ending("failed", ErrorInfo(error.kind, error.message + hint))
        except ContextFull as error:
            return Ending("failed", ErrorInfo("context_full", str(error)))
        response = result.response
        window.count(response.usage, step_context.request, len(response.calls))
        ended = response.ended(step, context.model.price(response.usage))
        budget.spend(ended)
        await record_changes(history, ports)
        await ports.emit(ended)
        is_paused = response.finish_reason == "paused"
        after = after_step(
            result, limit, history.items, ports.mailbox, context.prompt, repaired=repaired
        )
        match after:
            case Continue():
                continue
            case AskAgain(code, text):
                repaired = repaired or code == OUTPUT_SCHEMA
                await _add_notice(code, text, history, ports)
            case Answered(answer):
                if not limit and await _must_go_on(answer, history, ports):
                    continue
                if not await _take_follow_ups(context, history, ports):
                    await prune(context.compaction.policy, history, ports)
                    return final(context.prompt, limit, answer)
            case Ending():
                return after


async def run_compaction(
    context: TurnContext, history: History, ports: Ports, instructions: str = ""
) -> Ending:
    """Compact history because the user asked for it, in a turn without steps."""
    try:
        await ContextWindow(context, history, ports).compact_now(instructions)
    except NothingToCompact as nothing:
        await ports.emit(WarningRaised("nothing_to_compact", str(nothing)))
        return Ending("completed", last_message=str(nothing))
    except CompactionFailed as error:
        message = f"History was not compacted. {error}"
        return Ending("failed", ErrorInfo("compaction_failed", message))
    return Ending("completed")


async def _ask_hooks(history: History, ports: Ports) -> str:
    """Run the user's hooks for the start of a turn; return why they deny the turn, or ""."""
    decision = await ports.hooks.turn_started(last_user_text(history.items))
    if decision.context and not decision.denied:
        await _add_notice("hook", decision.context, history, ports)
    return decision.denied


async def _must_go_on(last_message: str, history: History, ports: Ports) -> bool:
    """Run the hooks for the end of the work, unless input is waiting; return whether to go on."""
    if ports.mailbox.queue:
        return False
    if reason := await ports.hooks.turn_done(last_message):
        await _add_notice("hook", reason, history, ports)
    # Steering may have arrived while the hooks ran.
    return bool(reason) or ports.mailbox.has_steering


class _BudgetTracker:
    """Tracks the turn's spending. Limits are checked between steps, so they cut no call short."""

    def __init__(self, budgets: Budgets, ports: Ports) -> None:
        self._budgets = budgets
        self._ports = ports
        self._began = ports.time()
        self._spent = budgets.spent

    def spend(self, step: StepEnded) -> None:
        """Count a finished step."""
        self._spent = self._spent.plus(spent_by(step))

    def session_limit(self) -> ReachedLimit | None:
        """Return the session's limit that is reached, or `None`."""
        spent = self._budgets.spent_before.plus(self._spent_so_far())
        return reached_limit(self._budgets.session, spent, of_session=True)

    def turn_limit(self, step: int) -> ReachedLimit | None:
        """Return the turn's limit that is reached after `step` requests, or `None`."""
        return self._out_of_steps(step) or reached_limit(self._budgets.turn, self._spent_so_far())

    def limit(self, step: int) -> ReachedLimit | None:
        """Return the limit that makes request `step` the last one, or `None`."""
        after = self._spent_so_far().plus(Spent(steps=1))
        of_session = self._budgets.spent_before.plus(after)
        return (
            # The session's limit comes first, since raising only the turn's limit would not help.
            reached_limit(self._budgets.session, of_session, of_session=True)
            or self._out_of_steps(step)
            or reached_limit(self._budgets.turn, after)
        )

    def _out_of_steps(self, step: int) -> ReachedLimit | None:
        if step >= self._budgets.max_steps:
            limit = f"{self._budgets.max_steps} step{'' if self._budgets.max_steps == 1 else 's'}"
            return ReachedLimit(f"The turn's limit of {limit} is reached.")
        return None

    def _spent_so_far(self) -> Spent:
        own = self._spent.plus(Spent(time_s=max(0.0, self._ports.time() - self._began)))
        return own.plus(self._ports.spending.by_others())


async def _begin_step(
    context: TurnContext,
    step: int,
    limit: ReachedLimit | None,
    history: History,
    ports: Ports,
) -> StepContext:
    ports.spending.report_step(Usage())
    await ports.emit(StepStarted(step))
    if limit:
        await _add_notice(LAST_STEP, f"{limit.sentence} {LAST_STEP_NOTICE}", history, ports)
    request = ModelRequest(
        model=context.model.provider_model,
        system=context.prompt.system,
        items=history.for_request(),
        tools=() if limit else context.prompt.tools,
        session_id=context.session_id,
        ordinal=context.before.steps + step - 1,
        variant=context.model.effort,
        hosted_tools=context.model.hosted_tools,
        options=context.model.options,
        max_output_tokens=context.model.max_output_tokens,
        output_schema=context.prompt.output_schema,
        history_cache=history.cache,
    )
    return StepContext(step, request, limit)


async def _take_step(
    step_context: StepContext, history: History, window: ContextWindow, ports: Ports
) -> StepResult:
    """Take the step. If the provider reports a context overflow, compact history and retry once."""
    try:
        return await take_step(step_context, history, ports)
    except ModelError as error:
        if error.kind != "context_overflow":
            raise
        overflow = error
    await window.compact_after(overflow)
    attempt = step_context.request.attempt + 1
    again = replace(step_context.request, items=history.for_request(), attempt=attempt)
    return await take_step(replace(step_context, request=again), history, ports)


async def _add_notice(code: str, text: str, history: History, ports: Ports) -> None:
    notice = Notice(ItemId(ports.new_id()), code, text)
    history.add(notice)
    await ports.emit(ItemStarted(notice), ItemCompleted(notice))


async def _take_follow_ups(context: TurnContext, history: History, ports: Ports) -> bool:
    """Take queued input at the end of a turn; if there is none, close the mailbox."""
    taken = ports.mailbox.take_follow_ups(context.follow_ups)
    if not taken:
        # There was no checkpoint since the queue was empty, so no input can be lost. Later input
        # belongs to the next turn.
        ports.mailbox.close()
    await _add_inputs(taken, history, ports)
    return bool(taken)


async def _add_inputs(inputs: Sequence[QueuedInput], history: History, ports: Ports) -> None:
    """Move inputs from the queue into history in one commit, so that none is in both or neither.

    Sub-agents that an input calls then work on it. Raises `TaskRejected`.
    """
    if not inputs:
        return
    bodies: list[AnyBody] = [QueueChanged(ports.mailbox.queue)]
    tasks: list[ToolCall] = []
    for given in inputs:
        message = UserMessage(
            ItemId(given.id), given.text, given.delivery, given.images, given.files, given.client
        )
        calls = task_calls(given, ports.new_id)
        history.add(message, *calls)
        bodies += [ItemStarted(message), ItemCompleted(message), *map(ItemStarted, calls)]
        tasks += calls
    await ports.emit(*bodies)
    await run_tasks(tasks, history, ports)
