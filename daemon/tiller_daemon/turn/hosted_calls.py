"""Makes items and events for calls that the provider runs itself, within a response.

A call completes as soon as it has a result, so that people see it before the text about it. These
items are only shown. Data that the provider needs back is in reasoning.
"""

from msgspec import structs

from tiller_daemon.models.base import HostedCall
from tiller_daemon.turn.ports import Ports
from tiller_protocol.events import (
    AnyBody,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    ToolCallUpdated,
)
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import ToolCall

NO_RESULT = "The response ended before the provider reported a result."


class HostedCalls:
    """The hosted calls of one response."""

    def __init__(self, ports: Ports, ordinal: int) -> None:
        self._ports = ports
        self._ordinal = ordinal
        self._calls: dict[str, ToolCall] = {}
        """The calls by the ids of their items, in order."""
        self._open: dict[str, str] = {}
        """The item ids of calls without a result, by the provider's ids."""

    def call(self, item_id: str) -> ToolCall | None:
        """Return the hosted call with this item id in its current state; None if there is none."""
        return self._calls.get(item_id)

    async def feed(self, event: HostedCall) -> ToolCall | None:
        """Process an event; return the call if the event begins one."""
        new = None
        if event.call_id not in self._open:
            new = await self._start(event)
        await self._update(self._calls[self._open[event.call_id]], event)
        return new

    async def end(self) -> None:
        """Complete the calls that have no result at the end of the response."""
        for item_id in self._open.values():
            await self._complete(structs.replace(self._calls[item_id], output=NO_RESULT))

    def discard(self) -> list[AnyBody]:
        """Return events that end the calls without a result, because the attempt failed.

        The items of calls with a result stay, because the provider did run these calls.
        """
        bodies: list[AnyBody] = []
        for item_id in self._open.values():
            call = structs.replace(
                self._calls[item_id], state="error", error_kind="skipped", discarded=True
            )
            bodies += [ToolCallUpdated(item_id, "error", "skipped"), ItemCompleted(call)]
        return bodies

    async def _start(self, event: HostedCall) -> ToolCall:
        call = ToolCall(
            ItemId(self._ports.new_id()),
            CallId(event.call_id),
            event.name,
            "",
            "pending",
            effect="read",
            ordinal=self._ordinal,
            by_provider=True,
        )
        await self._ports.emit(ItemStarted(call), ToolCallUpdated(call.id, "running"))
        running = structs.replace(call, state="running", started_at=self._ports.time())
        self._open[event.call_id] = call.id
        self._calls[call.id] = running
        return running

    async def _update(self, call: ToolCall, event: HostedCall) -> None:
        if event.arguments and not call.arguments:
            call = structs.replace(call, arguments=event.arguments)
            self._calls[call.id] = call
            await self._ports.emit(ItemDelta(call.id, "arguments", event.arguments, "tool_call"))
        if event.state == "running":
            return
        del self._open[event.call_id]
        failed = event.state == "failed"
        call = structs.replace(call, output=event.output, images=event.images)
        await self._complete(call, failed=failed)

    async def _complete(self, call: ToolCall, *, failed: bool = False) -> None:
        started = call.started_at or 0.0
        ended = structs.replace(
            call,
            state="error" if failed else "completed",
            error_kind="failed" if failed else None,
            duration_s=max(0.0, self._ports.time() - started),
        )
        self._calls[call.id] = ended
        await self._ports.emit(
            ToolCallUpdated(call.id, ended.state, ended.error_kind), ItemCompleted(ended)
        )
