"""Keeps requests within the context window: prunes old tool output, or compacts to a summary.

The log still has everything. A compaction is an item that replaces all earlier items in requests;
pruning names the calls whose output is no longer sent. `history_compacted` records both, so that a
reloaded session sends the same bytes. `tokens` finds out which output to prune, and `ContextWindow`
asks a model for the summary.
"""

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from copy import copy
from typing import NoReturn

import structlog
import trio
from msgspec import structs

from tiller_daemon.config import CompactionPolicy
from tiller_daemon.models.base import (
    Finished,
    ModelError,
    ModelRequest,
    TextDelta,
    UsageReported,
)
from tiller_daemon.turn.context import TurnContext, TurnModel
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.prompt import with_header
from tiller_daemon.turn.retry import RetryWait, retry_status
from tiller_daemon.turn.tokens import PRUNED_OUTPUT, TokenMeter, estimate_tokens
from tiller_protocol.events import (
    FinishReason,
    HistoryCompacted,
    ItemCompleted,
    ItemStarted,
    StatusChanged,
    WarningRaised,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Compaction, Item, Notice, ToolCall, Usage, UserMessage

log = structlog.get_logger()

SHRINK_SHARE_MAX = 0.7
"""A compaction that leaves more than this share of the former context has failed."""

PRESERVED_INPUT_SHARE_MAX = 0.2
"""The newest user input that a compaction preserves verbatim takes at most this share of the
window, whatever the configuration permits."""

FAILURES_MAX = 2
"""The turn ends when this many of its compactions have failed."""

COMPACTION_S_MAX = 300.0
"""Time limit of a summary, retries included, but not the delays before them."""

COMPACTING = StatusChanged("busy", cause="compacting")

SUMMARY_SYSTEM = (
    "You write the handover of a coding session for a colleague who will continue it. They will "
    "see nothing of the session except your summary and the user's newest messages."
)
SUMMARY_REQUEST = """\
Write the handover now, as plain text under these headings and nothing else:
Goal: what the user wants, including every constraint and preference they stated.
Done: what was changed and learned, with paths, names, commands and their results.
Now: what was in progress, and its state.
Next: the remaining steps, in order.
Facts: anything else needed to continue without looking it up again.
"""

BY_USER = "What the user says about this handover: "

AUTO_IS_OFF = (
    "Automatic compaction is turned off (`compaction.auto`): compact the session, then continue."
)


NO_SUMMARY: dict[FinishReason, str] = {
    "length": "The summary was cut off at the model's length limit.",
    "content_filter": "The provider withheld the summary under its content policy.",
}
"""Why a response with this finish reason is no summary."""


class ContextFull(Exception):
    """The context is full and could not be made smaller; the message tells the user what to do."""


class CompactionFailed(Exception):
    """No summary has replaced history; the message gives the reason, if possible the provider's."""


class NothingToCompact(CompactionFailed):
    """No summary, however short, would have made the context much smaller."""


def is_full(tokens: int, model: TurnModel, share: float) -> bool:
    """Whether a request of `tokens` tokens fills at least `share` of the usable window."""
    usable = model.context_window - (model.max_output_tokens or 0)
    return tokens >= share * max(usable, 1)


def newest_inputs(items: Sequence[Item], tokens_max: float) -> tuple[str, ...]:
    """Return the ids of the newest user messages that fit into `tokens_max`, but at least one."""
    preserved: list[str] = []
    tokens = 0
    for item in reversed(items):
        if isinstance(item, UserMessage):
            tokens += estimate_tokens([item])
            if preserved and tokens > tokens_max:
                break
            preserved.append(item.id)
    return tuple(reversed(preserved))


def without_thoughts(summary: str) -> str:
    """Return a summary without the thoughts that some servers send as text before it."""
    thoughts, end, rest = summary.partition("</think>")
    # The prompt may have begun the thoughts.
    only_thoughts = end and not rest.strip()
    return rest if only_thoughts or thoughts.lstrip().startswith("<think>") else summary


async def prune(policy: CompactionPolicy, history: History, ports: Ports) -> None:
    """Stop sending the output of old calls if that saves enough. Call at the end of a turn."""
    sent = history.for_request()
    count, saved = history.estimator.prunable(sent, policy.prune_protect_tokens)
    if policy.prune and saved >= policy.prune_gain_tokens:
        await _apply_pruning(_unpruned_calls(sent[:count]), history, ports)


class ContextWindow:
    """The context window of one turn: measures how full it is, and compacts history when needed."""

    def __init__(self, context: TurnContext, history: History, ports: Ports) -> None:
        self._context = context
        self._history = history
        self._ports = ports
        self._failures = 0
        fixed = len(context.prompt.system) + sum(tool.chars for tool in context.prompt.tools)
        self._meter = TokenMeter(fixed, history.estimator)
        before = context.before
        self._meter.count(before.tokens, history.sent_before(before.items), before.items)

    def count(self, usage: Usage, request: ModelRequest, calls: int) -> None:
        """Record the usage of the response to `request`.

        `calls` is how many calls the response has; they are the last items of history.
        """
        tokens = usage.tokens if usage.input_tokens else 0
        self._meter.count(tokens, request.items, len(self._history.items) - calls)

    def _tokens(self) -> int:
        return self._meter.tokens(self._history.items, self._history.for_request)

    async def compact_if_full(self) -> bool:
        """Compact history if the context is nearly full; return whether it was."""
        policy = self._context.compaction.policy
        full = policy.auto and is_full(self._tokens(), self._context.model, policy.full_share)
        if full:
            await self._compact()
        return full

    async def compact_after(self, overflow: ModelError) -> None:
        """Compact history because the provider refused a request as too long.

        Raises `ContextFull`.
        """
        if not self._context.compaction.policy.auto:
            raise ContextFull(f"{overflow.message} {AUTO_IS_OFF}")
        self._meter.distrust_count()
        await self._compact()

    async def compact_now(self, instructions: str) -> None:
        """Compact history as the user asks for it. Raises `CompactionFailed`.

        Failure and cancellation leave history unchanged.
        """
        await self._ports.emit(COMPACTING)
        if not self._has_replaceable_items():
            raise NothingToCompact("There is nothing to compact: no history is left to summarise.")
        # The estimate can be compared with what a summary leaves; the count may be far too low.
        self._meter.discard_count()
        await self._replace_by_summary(self._tokens(), instructions)

    async def _compact(self) -> None:
        """Compact history, or prune it if that fails. Raises `ContextFull` if neither helps.

        Cancellation leaves history unchanged.
        """
        before, failure = self._tokens(), None
        await self._ports.emit(COMPACTING)
        try:
            await self._replace_by_summary(before)
        except CompactionFailed as error:
            failure = error
            self._failures += 1
            await self._make_up_for(error)
        await self._ports.emit(StatusChanged("busy"))
        after = self._tokens()
        if after > SHRINK_SHARE_MAX * before or self._failures >= FAILURES_MAX:
            window = self._context.model.context_window
            problem = f"{str(failure).removesuffix('.')}. " if failure else ""
            raise ContextFull(
                f"The context is full ({before:,} of {window:,} tokens) and could not be made "
                f"smaller. {problem}Start a new session, or choose a model with a larger window."
            )
        if failure:  # else the error above says it
            message = f"History could not be summarised, so old tool output is left out. {failure}"
            await self._ports.emit(WarningRaised("compaction_failed", message))

    async def _make_up_for(self, error: CompactionFailed) -> None:
        """Prune old tool output, because the compaction has failed."""
        log.warning("compaction_failed", session_id=self._context.session_id, reason=str(error))
        sent = self._history.for_request()
        count, _ = self._history.estimator.prunable(sent, protect=0)
        # The newest output stays, because the model is about to act on it.
        oldest = _unpruned_calls(sent[:count])[:-1]
        if oldest:
            await _apply_pruning(oldest, self._history, self._ports)
            self._meter.discard_count()

    def _has_replaceable_items(self) -> bool:
        """Whether history has more than a summary and the inputs preserved with the summary."""
        preserved = self._preserved_inputs()
        return any(
            not isinstance(item, Compaction) and item.id not in preserved
            for item in self._history.for_request()
        )

    def _preserved_inputs(self) -> tuple[str, ...]:
        share = PRESERVED_INPUT_SHARE_MAX * self._context.model.context_window
        tokens_max = min(self._context.compaction.policy.preserve_tokens, share)
        return newest_inputs(self._history.items, tokens_max)

    def _measure(self, compaction: Compaction) -> tuple[int, TokenMeter]:
        """Return the tokens after a compaction, and the meter to use from then on.

        They are measured on a copy of history, because a summary that is too large must leave no
        trace.
        """
        compacted = History([*self._history.items, compaction], self._history.pruned)
        meter = copy(self._meter)
        meter.discard_count()
        return meter.tokens(compacted.items, compacted.for_request), meter

    async def _replace_by_summary(self, before: int, instructions: str = "") -> None:
        """Replace history by a summary that shrinks it enough. Raises `CompactionFailed`."""
        history = self._history
        try:
            with trio.fail_after(COMPACTION_S_MAX) as scope:
                wanted = await self._ports.hooks.before_compaction(before)
                if instructions:
                    wanted = f"{wanted}\n{BY_USER}{instructions}".lstrip("\n")
                summary, usage = await self._summarise(wanted, scope)
        except ModelError as error:
            raise CompactionFailed(error.message) from error
        except trio.TooSlowError:
            message = f"The model took more than {COMPACTION_S_MAX:.0f} s for the summary."
            raise CompactionFailed(message) from None
        preserved, until = self._preserved_inputs(), ItemId(history.items[-1].id)
        compaction = Compaction(ItemId(self._ports.new_id()), summary, until, preserved)
        after, meter = self._measure(compaction)
        if after > SHRINK_SHARE_MAX * before:
            self._reject_summary(compaction, before)
        if not summary.strip():
            raise CompactionFailed("The model wrote an empty summary.")
        history.add(compaction)
        self._meter = meter
        await self._ports.emit(
            ItemStarted(compaction),
            ItemCompleted(compaction),
            HistoryCompacted(
                before,
                after,
                compaction.id,
                usage=usage,
                cost=self._context.compaction.model.price(usage),
            ),
        )
        if added := await self._ports.hooks.after_compaction(summary, after):
            notice = Notice(ItemId(self._ports.new_id()), "hook", added)
            history.add(notice)
            await self._ports.emit(ItemStarted(notice), ItemCompleted(notice))

    async def _summarise(self, wanted: str, scope: trio.CancelScope) -> tuple[str, Usage]:
        """Ask the model for a summary; `wanted` is text that hooks and the user add to the request.

        Delays between attempts are announced as for any other request, and extend `scope`.
        """
        text = f"{SUMMARY_REQUEST}\n{wanted}" if wanted else SUMMARY_REQUEST
        ask = Notice(ItemId(self._ports.new_id()), "compaction", text)
        model = self._context.compaction.model
        request = ModelRequest(
            model=model.provider_model,
            system=with_header(model.prompt_header, SUMMARY_SYSTEM),
            items=(*self._history.for_request(), ask),
            tools=(),
            session_id=self._context.session_id,
            ordinal=self._context.before.steps,
            purpose="compaction",
            hosted_tools=model.hosted_tools,
            options=model.options,
        )
        pieces: list[str] = []
        usage, waited = Usage(), False
        reason: FinishReason = "unknown"
        async with aclosing(self._ports.compaction_model.stream(request)) as stream:
            async for event in stream:
                if waited and not isinstance(event, RetryWait):
                    await self._ports.emit(COMPACTING)
                waited = isinstance(event, RetryWait)
                match event:
                    case RetryWait():
                        # The attempt failed, so its pieces are void.
                        pieces.clear()
                        scope.deadline += event.delay_s
                        await self._ports.emit(retry_status(event))
                    case TextDelta():
                        pieces.append(event.text)
                    case UsageReported():
                        usage = event.usage
                    case Finished():
                        reason = event.reason
                    case _:
                        pass
        if reason in NO_SUMMARY:
            raise CompactionFailed(NO_SUMMARY[reason])
        return without_thoughts("".join(pieces)), usage

    def _reject_summary(self, compaction: Compaction, before: int) -> NoReturn:
        """Raise the error that says whether the summary is too long or the history too short."""
        shortest, _ = self._measure(structs.replace(compaction, summary=""))
        if shortest > SHRINK_SHARE_MAX * before:
            raise NothingToCompact(
                "There is nothing to compact: a summary could replace only a small part of the "
                f"context ({before - shortest:,} of {before:,} tokens)."
            )
        raise CompactionFailed("The summary is not much shorter than what it would replace.")


def _unpruned_calls(items: Iterable[Item]) -> tuple[str, ...]:
    calls = (item for item in items if isinstance(item, ToolCall))
    return tuple(call.id for call in calls if call.output != PRUNED_OUTPUT)


async def _apply_pruning(pruned: tuple[str, ...], history: History, ports: Ports) -> None:
    before = estimate_tokens(history.for_request())
    history.prune(pruned)
    after = estimate_tokens(history.for_request())
    await ports.emit(HistoryCompacted(before, after, pruned=pruned))
