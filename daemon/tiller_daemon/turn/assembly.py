"""Turns the stream of one model request into items; discards failed attempts and retries.

Each call is offered to `CallDispatcher` as soon as its arguments are complete, so that it can start
before the stream ends.
"""

from contextlib import aclosing

import trio
from msgspec import Struct, structs

from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.turn.dispatch import CallDispatcher
from tiller_daemon.turn.hosted_calls import HostedCalls
from tiller_daemon.turn.ports import Ports
from tiller_daemon.turn.retry import RetryWait, retry_status
from tiller_protocol.events import (
    AnyBody,
    Channel,
    FinishReason,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    StatusChanged,
    StepEnded,
    StreamedItemType,
    ToolCallUpdated,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, Citation, Reasoning, ToolCall, Usage

StreamedItem = AssistantMessage | Reasoning | ToolCall


class Response(Struct, frozen=True):
    """A whole response: its items in order, all complete except the calls, which run next."""

    items: tuple[StreamedItem, ...]
    finish_reason: FinishReason
    usage: Usage
    time_to_first_token_s: float | None
    """Seconds from the request to the first event of the response; None if there was no event.
    Failed attempts don't count."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order in which the model made them."""
        calls = (item for item in self.items if isinstance(item, ToolCall))
        return tuple(call for call in calls if not call.by_provider)

    @property
    def is_empty(self) -> bool:
        """Whether the response has neither text nor a call; it may have reasoning."""
        return not any(_is_said(item) and not _is_hosted(item) for item in self.items)

    def ended(self, step: int, cost: float | None) -> StepEnded:
        """Return the event that ends this response's step; `cost` is in US dollars."""
        return StepEnded(
            step,
            self.finish_reason,
            self.usage,
            cost,
            time_to_first_token_s=self.time_to_first_token_s,
        )


async def stream_response(request: ModelRequest, calls: CallDispatcher, ports: Ports) -> Response:
    """Stream one response into items and return it whole.

    Raises `ModelError` when no attempt succeeded. After an error or a cancellation, started items
    stay open until the turn is closed. A context overflow discards them instead, because the same
    step may be retried with a smaller context. So does a response that is too long, because the
    next model request could not contain it.
    """
    response = _ResponseAssembly(calls, ports, request.ordinal)
    try:
        async with aclosing(ports.model.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, RetryWait):
                    await response.discard(event)
                    response = _ResponseAssembly(calls, ports, request.ordinal, event)
                else:
                    await response.feed(event)
    except ModelError as error:
        if error.kind in ("context_overflow", "response_too_long"):
            await response.discard()
        raise
    return await response.complete()


class _ResponseAssembly:
    """One attempt's response so far. Every item stays open until the stream has ended well.

    `wait` comes before the attempt, unless it is the first one.
    """

    def __init__(
        self, calls: CallDispatcher, ports: Ports, ordinal: int, wait: RetryWait | None = None
    ) -> None:
        self._calls = calls
        self._ports = ports
        self._ordinal = ordinal
        self._items: dict[str, StreamedItem] = {}
        self._pieces: dict[str, list[str]] = {}
        self._call_ids: dict[int, str] = {}
        self._complete_calls: set[int] = set()
        self._hosted = HostedCalls(ports, ordinal)
        self._citations: dict[str, list[Citation]] = {}
        self._offered = 0
        self._current: str | None = None  # the item that the next piece of text may extend
        self._usage = Usage()
        self._finish_reason: FinishReason = "unknown"
        self._requested_at = ports.time() + (wait.delay_s if wait else 0.0)
        self._first_token_at: float | None = None
        self._waited = wait is not None

    async def feed(self, event: ModelEvent) -> None:
        """Process one event of the stream."""
        if self._waited:
            # Frontends show `retry` until the attempt produces something.
            self._waited = False
            await self._ports.emit(StatusChanged("busy"))
        if self._first_token_at is None:
            self._first_token_at = self._ports.time()
        match event:
            case TextDelta():
                await self._extend_text(AssistantMessage, event.text)
            case ReasoningDelta():
                await self._extend_reasoning(event)
            case ToolCallStarted():
                await self._start_call(event)
            case ToolCallDelta():
                await self._extend(
                    self._call_ids[event.index], "arguments", event.arguments, "tool_call"
                )
            case ToolCallDone():
                self._complete_calls.add(event.index)
                self._offer_calls()
                # Many calls may arrive at once, and each takes about a millisecond to prepare.
                await trio.lowlevel.checkpoint()
            case HostedCall():
                if call := await self._hosted.feed(event):
                    self._items[call.id] = call
                    self._current = None
            case Cited():
                await self._extend_text(AssistantMessage, "")
                self._citations.setdefault(self._current or "", []).append(event.citation)
            case UsageReported():
                self._usage = event.usage
            case Finished():
                self._finish_reason = event.reason

    async def discard(self, wait: RetryWait | None = None) -> None:
        """Discard the items, as the attempt failed; announce the next one if `wait` is given."""
        begun = await self._calls.drop()
        ours = [i for i in self._items if not self._hosted.call(i)]
        bodies = [b for i in ours for b in _discarded(self._assembled(i), begun=i in begun)]
        bodies += self._hosted.discard()
        if wait:
            bodies.append(retry_status(wait))
        await self._ports.emit(*bodies)

    async def complete(self) -> Response:
        """Complete text and reasoning, or discard them if there is nothing else.

        Providers refuse reasoning that leads to nothing. Calls stay open until they have run.
        """
        await self._hosted.end()
        assembled = [self._assembled(item_id) for item_id in self._items]
        is_kept = self._finish_reason == "paused" or any(map(_is_said, assembled))
        state = "completed" if is_kept else "discarded"
        items = tuple(
            item if isinstance(item, ToolCall) else structs.replace(item, state=state)
            for item in assembled
        )
        await self._ports.emit(*(ItemCompleted(i) for i in items if not isinstance(i, ToolCall)))
        first = self._first_token_at
        waited_s = None if first is None else max(0.0, first - self._requested_at)
        return Response(items, self._finish_reason, self._usage, waited_s)

    def _offer_calls(self) -> None:
        """Offer complete calls in call order; an incomplete call delays the calls after it."""
        for index in list(self._call_ids)[self._offered :]:
            call = self._assembled(self._call_ids[index])
            if index not in self._complete_calls or not isinstance(call, ToolCall):
                return
            self._offered += 1
            self._calls.offer(call)

    async def _extend_text(
        self, kind: type[AssistantMessage] | type[Reasoning], piece: str
    ) -> None:
        if self._current is None or not isinstance(self._items[self._current], kind):
            await self._start(kind(ItemId(self._ports.new_id()), "", "streaming"))
        if piece:
            item_type = "reasoning" if kind is Reasoning else "assistant_message"
            await self._extend(self._current or "", "text", piece, item_type)

    async def _extend_reasoning(self, event: ReasoningDelta) -> None:
        await self._extend_text(Reasoning, event.text)
        item = self._items[self._current or ""]
        if event.opaque and isinstance(item, Reasoning):
            self._items[item.id] = structs.replace(item, opaque=event.opaque)

    async def _start_call(self, event: ToolCallStarted) -> None:
        call = ToolCall(
            ItemId(self._ports.new_id()),
            CallId(event.call_id),
            event.name,
            "",
            "pending",
            ordinal=self._ordinal,
        )
        self._call_ids[event.index] = call.id
        await self._start(call)

    async def _start(self, item: StreamedItem) -> None:
        self._items[item.id] = item
        self._pieces[item.id] = []
        self._current = item.id
        await self._ports.emit(ItemStarted(item))

    async def _extend(
        self, item_id: str, channel: Channel, piece: str, item_type: StreamedItemType
    ) -> None:
        self._pieces[item_id].append(piece)
        await self._ports.emit(ItemDelta(item_id, channel, piece, item_type))

    def _assembled(self, item_id: str) -> StreamedItem:
        """Return an item with all its pieces joined."""
        if call := self._hosted.call(item_id):
            return call
        item, text = self._items[item_id], "".join(self._pieces[item_id])
        if isinstance(item, ToolCall):
            return structs.replace(item, arguments=text)
        if isinstance(item, AssistantMessage) and item_id in self._citations:
            item = structs.replace(item, citations=tuple(self._citations[item_id]))
        return structs.replace(item, text=text)


def _is_hosted(item: StreamedItem) -> bool:
    return isinstance(item, ToolCall) and item.by_provider


def _is_said(item: StreamedItem) -> bool:
    """Whether the item is more than reasoning or blanks."""
    return isinstance(item, ToolCall) or (
        isinstance(item, AssistantMessage) and bool(item.text.strip())
    )


def _discarded(item: StreamedItem, *, begun: bool) -> tuple[AnyBody, ...]:
    """Return events that end an item of a failed attempt, which may be a call that has `begun`."""
    if not isinstance(item, ToolCall):
        return (ItemCompleted(structs.replace(item, state="discarded")),)
    kind = "aborted" if begun else "skipped"
    dropped = structs.replace(item, state="error", error_kind=kind, discarded=True)
    return (ToolCallUpdated(item.id, "error", kind), ItemCompleted(dropped))
