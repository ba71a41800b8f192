"""Keeps requests within the context window: prunes old tool output, or compacts to a summary.

The log still has everything. A compaction is an item that replaces what came before it; pruning
names the calls whose output is no longer sent. `history_compacted` records both, so that a reloaded
session sends the same bytes. What to prune and preserve is chosen by pure functions;
`ContextWindow` asks a model for the summary.
"""

from collections.abc import Sequence
from contextlib import aclosing
from copy import copy

import structlog
import trio

from tiller_daemon.models.base import ModelError, ModelRequest, TextDelta, UsageReported
from tiller_daemon.turn.context import TurnContext, TurnModel
from tiller_daemon.turn.history import History
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.prompt import with_header
from tiller_daemon.turn.retry import RetryWait, stream_with_retry
from tiller_daemon.turn.tokens import PRUNED_OUTPUT, TokenMeter, estimate_tokens, output_tokens
from tiller_protocol.events import HistoryCompacted, ItemCompleted, ItemStarted, StatusChanged
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Compaction, Item, Notice, ToolCall, Usage, UserMessage

log = structlog.get_logger()

FULL_SHARE = 0.85
"""The context is compacted when it fills this share of the usable window."""

SHRINK_SHARE_MAX = 0.7
"""A compaction that leaves more than this share of the former context has failed."""

PRESERVED_INPUT_TOKENS_MAX = 20_000
PRESERVED_INPUT_SHARE_MAX = 0.2
"""Limits on the newest user input that a compaction preserves verbatim: tokens, and share of the
window. The smaller one applies."""

PRUNE_PROTECT_TOKENS = 40_000
PRUNE_GAIN_TOKENS_MIN = 20_000
"""At the end of a turn the newest tool output is not pruned, and nothing is for a smaller gain:
pruning changes the request prefix that providers cache."""

FAILURES_MAX = 2
"""The turn ends when this many of its compactions have failed."""

COMPACTION_S_MAX = 300.0
"""Time limit of a summary, retries included."""

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


class ContextFull(Exception):
    """The context could not be made smaller; the message tells the user what to do."""


def is_full(tokens: int, model: TurnModel) -> bool:
    """Whether a request of this many tokens comes too close to the limit of the window."""
    usable = model.context_window - (model.max_output_tokens or 0)
    return tokens >= FULL_SHARE * max(usable, 1)


def newest_inputs(items: Sequence[Item], context_window: int) -> tuple[str, ...]:
    """Return the ids of the newest user messages that fit, and always that of the newest one."""
    preserved: list[str] = []
    tokens = 0
    tokens_max = min(PRESERVED_INPUT_TOKENS_MAX, PRESERVED_INPUT_SHARE_MAX * context_window)
    for item in reversed(items):
        if isinstance(item, UserMessage):
            tokens += estimate_tokens([item])
            if preserved and tokens > tokens_max:
                break
            preserved.append(item.id)
    return tuple(reversed(preserved))


def prunable(items: tuple[Item, ...], *, protect: int, gain: int) -> tuple[str, ...]:
    """Return the ids of old calls whose output can be pruned; none if that gains too little.

    `protect` is how many tokens of the newest tool output stay; `gain` is the least to gain.
    """
    call_ids: list[str] = []
    total = gained = 0
    for item in reversed(items):
        if not isinstance(item, ToolCall) or item.output == PRUNED_OUTPUT:
            continue
        tokens = output_tokens(item)
        total += tokens
        if total > protect:
            call_ids.append(item.id)
            gained += tokens
    return tuple(reversed(call_ids)) if gained >= gain else ()


async def prune(history: History, ports: Ports) -> None:
    """Stop sending the output of old calls if that gains enough. Call at the end of a turn."""
    sent = history.for_request()
    # Almost always too little, which needs no look at each call.
    if history.estimator.prunable(sent, PRUNE_PROTECT_TOKENS) < PRUNE_GAIN_TOKENS_MIN:
        return
    pruned = prunable(sent, protect=PRUNE_PROTECT_TOKENS, gain=PRUNE_GAIN_TOKENS_MIN)
    if pruned:
        await _apply_pruning(pruned, history, ports)


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
        """Record the usage of the response to `request`; its `calls` calls end the history."""
        tokens = usage.tokens if usage.input_tokens else 0
        self._meter.count(tokens, request.items, len(self._history.items) - calls)

    def _tokens(self) -> int:
        return self._meter.tokens(self._history.items, self._history.for_request)

    async def compact_if_full(self) -> bool:
        """Compact if the context is nearly full; returns whether it was."""
        full = is_full(self._tokens(), self._context.model)
        if full:
            await self.compact()
        return full

    async def compact(self) -> None:
        """Compact history, or prune it if that fails. Raises `ContextFull` when neither helped.

        Cancellation leaves history unchanged.
        """
        before = self._tokens()
        await self._ports.emit(StatusChanged("busy", cause="compacting"))
        if not await self._replace_by_summary(before):
            self._failures += 1
            # The newest output stays: the model is about to act on it.
            oldest = prunable(self._history.for_request(), protect=0, gain=1)[:-1]
            if oldest:
                await _apply_pruning(oldest, self._history, self._ports)
                self._meter.discard_count()
        await self._ports.emit(StatusChanged("busy"))
        after = self._tokens()
        if after > SHRINK_SHARE_MAX * before or self._failures >= FAILURES_MAX:
            window = self._context.model.context_window
            raise ContextFull(
                f"The context is full ({before:,} of {window:,} tokens) and could not be made "
                "smaller. Start a new session, or choose a model with a larger window."
            )

    async def _replace_by_summary(self, before: int) -> bool:
        """Replace history by a summary if that shrinks it enough; returns whether it did."""
        history, session_id = self._history, self._context.session_id
        try:
            with trio.fail_after(COMPACTION_S_MAX):
                wanted = await self._ports.hooks.before_compaction(before)
                summary, usage = await _summarise(self._context, history, self._ports, wanted)
        except (ModelError, trio.TooSlowError) as error:
            log.warning("compaction_failed", session_id=session_id, reason=str(error))
            return False
        items = history.items
        preserved = newest_inputs(items, self._context.model.context_window)
        compaction = Compaction(
            ItemId(self._ports.new_id()), summary, ItemId(items[-1].id), preserved
        )
        # Measured on a copy: a summary that is too large must leave no trace.
        compacted = History([*items, compaction], history.pruned)
        meter = copy(self._meter)
        meter.discard_count()
        after = meter.tokens(compacted.items, compacted.for_request)
        if not summary.strip() or after > SHRINK_SHARE_MAX * before:
            log.warning("compaction_too_large", session_id=session_id, tokens=after)
            return False
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
                cost=self._context.compaction.price(usage),
            ),
        )
        if added := await self._ports.hooks.after_compaction(summary, after):
            notice = Notice(ItemId(self._ports.new_id()), "hook", added)
            history.add(notice)
            await self._ports.emit(ItemStarted(notice), ItemCompleted(notice))
        return True


async def _summarise(
    context: TurnContext, history: History, ports: Ports, wanted: str
) -> tuple[str, Usage]:
    """Ask the model for a summary; `wanted` is what hooks add to the request."""
    text = f"{SUMMARY_REQUEST}\n{wanted}" if wanted else SUMMARY_REQUEST
    ask = Notice(ItemId(ports.new_id()), "compaction", text)
    request = ModelRequest(
        model=context.compaction.provider_model,
        system=with_header(context.compaction.prompt_header, SUMMARY_SYSTEM),
        items=(*history.for_request(), ask),
        tools=(),
        session_id=context.session_id,
        ordinal=context.before.steps,
        purpose="compaction",
        options=context.compaction.options,
    )
    pieces: list[str] = []
    usage = Usage()
    async with aclosing(
        stream_with_retry(ports.compaction_model, request, time=ports.time, random=ports.random)
    ) as stream:
        async for event in stream:
            match event:
                case RetryWait():
                    # The attempt failed, so its pieces are void.
                    pieces.clear()
                case TextDelta():
                    pieces.append(event.text)
                case UsageReported():
                    usage = event.usage
                case _:
                    pass
    return "".join(pieces), usage


async def _apply_pruning(pruned: tuple[str, ...], history: History, ports: Ports) -> None:
    before = estimate_tokens(history.for_request())
    history.prune(pruned)
    after = estimate_tokens(history.for_request())
    await ports.emit(HistoryCompacted(before, after, pruned=pruned))
