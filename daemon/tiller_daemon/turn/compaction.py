"""Keeping within the context window: pruning old tool output, and compaction to a summary.

The log keeps everything. A compaction is an item that replaces what came before it; pruning names
the calls whose output is no longer sent. `history_compacted` records both, so that a reloaded
session sends the same bytes. The choices are pure functions; `ContextWindow` asks a model.
"""

from collections.abc import Sequence
from contextlib import aclosing
from copy import copy

import structlog
import trio
from msgspec import structs

from tiller_daemon.models.base import ModelError, ModelRequest, TextDelta, UsageReported
from tiller_daemon.turn.context import TurnContext, TurnModel
from tiller_daemon.turn.history import PRUNED_OUTPUT, History, for_request
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.retry import RetryWait, stream_with_retry
from tiller_daemon.turn.tokens import TokenMeter, estimate_tokens
from tiller_protocol.events import HistoryCompacted, ItemCompleted, ItemStarted, StatusChanged
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Compaction, Item, Notice, ToolCall, Usage, UserMessage

log = structlog.get_logger()

FULL_SHARE = 0.85
"""The context is compacted when it holds this share of the usable window."""

SHRINK_SHARE_MAX = 0.7
"""A compaction that leaves more than this share of what there was has failed."""

PRESERVED_INPUT_TOKENS_MAX = 20_000
PRESERVED_INPUT_SHARE_MAX = 0.2
"""How much of the newest user input a compaction keeps word for word, and of a small window."""

PRUNE_PROTECT_TOKENS = 40_000
PRUNE_GAIN_TOKENS_MIN = 20_000
"""Tool output of the newest tokens is never pruned, and nothing is for a smaller gain."""

FAILURES_MAX = 2
"""So many compactions of one turn may fail; then the turn ends."""

COMPACTION_S_MAX = 300.0
"""How long a summary may take, retries included; then it has failed."""

SUMMARY_SYSTEM = (
    "You write the handover of a coding session to a colleague who continues it and sees nothing "
    "of it but your summary and the user's newest messages."
)
SUMMARY_REQUEST = """\
Write the handover now, as plain text under these headings, and nothing else:
Goal: what the user wants, with every constraint and preference they stated.
Done: what was changed and found, with paths, names, commands and their results.
Now: what was being worked on, and its state.
Next: the open steps, in order.
Facts: whatever else is needed to go on without looking again.
"""


class ContextFull(Exception):
    """No room could be made; the message says what the user can do."""


def is_full(tokens: int, model: TurnModel) -> bool:
    """Whether a request of so many tokens is too near to the end of the window."""
    usable = model.context_window - (model.max_output_tokens or 0)
    return tokens >= FULL_SHARE * max(usable, 1)


def newest_inputs(items: Sequence[Item], context_window: int) -> tuple[str, ...]:
    """The ids of the newest user messages, as many as fit; the newest one in any case."""
    kept: list[str] = []
    tokens = 0
    tokens_max = min(PRESERVED_INPUT_TOKENS_MAX, PRESERVED_INPUT_SHARE_MAX * context_window)
    for item in reversed(items):
        if isinstance(item, UserMessage):
            tokens += estimate_tokens([item])
            if kept and tokens > tokens_max:
                break
            kept.append(item.id)
    return tuple(reversed(kept))


def prunable(items: tuple[Item, ...], *, protect: int, gain: int) -> tuple[str, ...]:
    """The ids of old calls whose output need not be sent any more; none if they gain too little.

    `protect` is how many tokens of the newest tool output stay.
    """
    found: list[str] = []
    seen = gained = 0
    for item in reversed(items):
        if not isinstance(item, ToolCall) or item.output == PRUNED_OUTPUT:
            continue
        tokens = estimate_tokens([structs.replace(item, arguments="")])
        seen += tokens
        if seen > protect:
            found.append(item.id)
            gained += tokens
    return tuple(reversed(found)) if gained >= gain else ()


async def prune(history: History, ports: Ports) -> None:
    """Stop sending the output of old calls, if that gains enough. For the end of a turn."""
    pruned = prunable(
        history.for_request(), protect=PRUNE_PROTECT_TOKENS, gain=PRUNE_GAIN_TOKENS_MIN
    )
    if pruned:
        await _apply_pruning(pruned, history, ports)


class ContextWindow:
    """The room in the context of one turn: how much there is, and how more is made."""

    def __init__(self, context: TurnContext, history: History, ports: Ports) -> None:
        self._context = context
        self._history = history
        self._ports = ports
        self._failures = 0
        fixed = len(context.prompt.system) + sum(tool.chars for tool in context.prompt.tools)
        self._meter = TokenMeter(fixed)
        counted = history.items[: context.before.items]
        self._meter.count(
            context.before.tokens, for_request(counted, history.pruned), context.before.items
        )

    def count(self, usage: Usage, request: ModelRequest, calls: int) -> None:
        """Take the usage of the response to `request`, whose `calls` are the last in history."""
        tokens = usage.tokens if usage.input_tokens else 0
        self._meter.count(tokens, request.items, len(self._history.items) - calls)

    def _tokens(self) -> int:
        return self._meter.tokens(self._history.items, self._history.for_request)

    async def compact_if_full(self) -> bool:
        """Compact when the context is nearly full; returns whether that was done."""
        full = is_full(self._tokens(), self._context.model)
        if full:
            await self.compact()
        return full

    async def compact(self) -> None:
        """Compact history, or if that fails prune it; raises `ContextFull` when neither helped.

        Cancellation leaves history as it was.
        """
        before = self._tokens()
        await self._ports.emit(StatusChanged("busy", cause="compacting"))
        if not await self._replace_by_summary(before):
            self._failures += 1
            oldest = prunable(self._history.for_request(), protect=0, gain=1)[:-1]
            if oldest:
                await _apply_pruning(oldest, self._history, self._ports)
                self._meter.discard_count()
        await self._ports.emit(StatusChanged("busy"))
        after = self._tokens()
        if after > SHRINK_SHARE_MAX * before or self._failures >= FAILURES_MAX:
            window = self._context.model.context_window
            raise ContextFull(
                f"The context is full ({before:,} tokens of {window:,}) and could not be made "
                "smaller. Start a new session, or choose a model with a larger window."
            )

    async def _replace_by_summary(self, before: int) -> bool:
        """Whether a summary was made that shrinks the context enough; only then it counts."""
        history, session_id = self._history, self._context.session_id
        try:
            with trio.fail_after(COMPACTION_S_MAX):
                summary, usage = await _summarise(self._context, history, self._ports)
        except (ModelError, trio.TooSlowError) as error:
            log.warning("compaction_failed", session_id=session_id, reason=str(error))
            return False
        items = history.items
        kept = newest_inputs(items, self._context.model.context_window)
        compaction = Compaction(ItemId(self._ports.new_id()), summary, ItemId(items[-1].id), kept)
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
        return True


async def _summarise(context: TurnContext, history: History, ports: Ports) -> tuple[str, Usage]:
    ask = Notice(ItemId(ports.new_id()), "compaction", SUMMARY_REQUEST)
    request = ModelRequest(
        model=context.compaction.provider_model,
        system=SUMMARY_SYSTEM,
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
