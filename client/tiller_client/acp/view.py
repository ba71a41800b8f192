"""Converts a session's events to updates for a client. Pure; works on the session's snapshot."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import assert_never

from msgspec import structs

from tiller_client.acp.calls import (
    fields_of,
    is_command,
    locations_of,
    picture_block,
    raw_input,
    title_of,
)
from tiller_client.acp.schema import ClientCapabilities, TextBlock
from tiller_client.acp.updates import (
    AgentChunk,
    AnyUpdate,
    CallChanged,
    CallStarted,
    CompactionShown,
    Cost,
    InfoShown,
    NoticeShown,
    PlanLine,
    PlanShown,
    ThoughtChunk,
    UsageShown,
    UserChunk,
)
from tiller_protocol.events import (
    ErrorRaised,
    Event,
    HistoryReverted,
    ItemCompleted,
    ItemDelta,
    ItemStarted,
    PlanUpdated,
    SessionTitled,
    StatusChanged,
    StepEnded,
    ToolCallUpdated,
    WarningRaised,
)
from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Item,
    Notice,
    Patch,
    PlanEntry,
    Reasoning,
    ToolCall,
    UserMessage,
)
from tiller_protocol.snapshot import Snapshot

REVERTED = "History and files were taken back to an earlier state. All later work was undone."
COMPACTED = "The history was summarised to fit into the context window."


class SessionView:
    """The parts of one session that the client has been shown."""

    def __init__(self, client: ClientCapabilities) -> None:
        self._client = client
        self._said: dict[str, str] = {}
        """For each open message, the text shown so far."""
        self._growing: set[str] = set()
        """Calls with output that has not been shown yet."""
        self._streamed: set[str] = set()
        """Calls whose output was streamed to one of the client's terminals."""

    @property
    def has_output(self) -> bool:
        """Whether output waits for `take_output`."""
        return bool(self._growing)

    def history(self, snapshot: Snapshot) -> list[AnyUpdate]:
        """The updates that show the whole conversation so far."""
        updates: list[AnyUpdate] = []
        for item in snapshot.items:
            if getattr(item, "state", "") == "discarded" or getattr(item, "discarded", False):
                continue
            updates += self._started(item, snapshot.workspace)
            if item.id not in snapshot.open_items:
                done = self._completed(item, snapshot.workspace)
                # A call that begins with its result needs no update, unless a terminal shows it.
                updates += done if self._in_terminal(item) or not isinstance(item, ToolCall) else []
        if snapshot.plan:
            updates.append(_plan(snapshot.plan))
        return updates

    def updates(self, event: Event, snapshot: Snapshot, *, own: bool) -> list[AnyUpdate]:
        """The updates for an event, which `snapshot` includes.

        `own`: the client has sent this message itself, and shows it already.
        """
        match event.body:
            case ItemStarted(item):
                return [] if own else self._started(item, snapshot.workspace)
            case ItemDelta():
                return self._delta(event.body, snapshot)
            case ItemCompleted(item):
                return self._completed(item, snapshot.workspace)
            case ToolCallUpdated(item_id, ("pending" | "running")):
                call = find_call(snapshot, item_id)
                return [_call_moves(call, snapshot.workspace)] if call else []
            case PlanUpdated(plan):
                return [_plan(plan)]
            case SessionTitled(title):
                return [InfoShown(title, iso_time(event.time))]
            case StepEnded() if snapshot.turn:
                return usage(snapshot, snapshot.turn.context.context_window)
            case StatusChanged("retry", attempt, delay_s=delay_s, cause=cause):
                text = f"{cause} Attempt {attempt} follows in {delay_s or 0:.0f} s."
                return [self.notice("warning", text)]
            case WarningRaised(_, message):
                return [self.notice("warning", message)]
            case ErrorRaised(_, message):
                # The answer to the prompt reports the error too; a thought would repeat it.
                return [self.notice("error", message)] if self._client.notices else []
            case HistoryReverted(undone=False):
                return [self.notice("info", REVERTED)]
            case _:
                return []

    def take_output(self, snapshot: Snapshot) -> list[AnyUpdate]:
        """The updates with the output that calls have produced since the last time."""
        growing, self._growing = self._growing, set()
        calls = [find_call(snapshot, item_id) for item_id in growing]
        return [self._changed(call, snapshot.workspace) for call in calls if call]

    def notice(self, severity: str, text: str) -> AnyUpdate:
        """A notice for the user; a client without notices gets it as a thought."""
        if self._client.notices:
            return structs.replace(NoticeShown("info", text), severity=severity)
        return ThoughtChunk(TextBlock(f"{text}\n\n"))

    def _started(self, item: Item, workspace: str) -> list[AnyUpdate]:
        match item:
            case UserMessage():
                return _user_chunks(item)
            case AssistantMessage() | Reasoning():
                self._said[item.id] = item.text
                return _chunks(item, item.text)
            case ToolCall():
                fields = fields_of(item, workspace, terminal=self._client.terminal_output)
                started = CallStarted(**structs.asdict(fields))
                if self._in_terminal(item):
                    info = {"terminal_info": {"terminal_id": item.id, "cwd": workspace}}
                    started = structs.replace(started, meta=info)
                return [started]
            case Compaction() | Notice() | Patch():
                return []
            case _:
                assert_never(item)

    def _delta(self, body: ItemDelta, snapshot: Snapshot) -> list[AnyUpdate]:
        match body.channel:
            case "text":
                self._said[body.item_id] = self._said.get(body.item_id, "") + body.delta
                kind = ThoughtChunk if body.item_type == "reasoning" else AgentChunk
                return [kind(TextBlock(body.delta), body.item_id)]
            case "output":
                call = find_call(snapshot, body.item_id)
                if call and self._in_terminal(call):
                    self._streamed.add(call.id)
                    return [_terminal_output(call.id, body.delta)]
                self._growing.add(body.item_id)
                return []
            case "arguments":
                return []
            case _:
                assert_never(body.channel)

    def _completed(self, item: Item, workspace: str) -> list[AnyUpdate]:
        match item:
            case AssistantMessage() | Reasoning():
                said = self._said.pop(item.id, "")
                # Deltas may be missing from a replay.
                return _chunks(item, item.text[len(said) :] if item.text.startswith(said) else "")
            case ToolCall():
                return self._call_completed(item, workspace)
            case Compaction():
                return [self._compacted(item)]
            case UserMessage() | Notice() | Patch():
                return []
            case _:
                assert_never(item)

    def _call_completed(self, call: ToolCall, workspace: str) -> list[AnyUpdate]:
        self._growing.discard(call.id)
        changed = self._changed(call, workspace)
        if not self._in_terminal(call):
            return [changed]
        exited = {"terminal_id": call.id, "exit_code": call.exit_status, "signal": None}
        output = [] if call.id in self._streamed else [_terminal_output(call.id, call.output)]
        self._streamed.discard(call.id)
        return [*output, structs.replace(changed, meta={"terminal_exit": exited})]

    def _in_terminal(self, item: Item) -> bool:
        """Whether the item is a command whose output the client shows as a terminal."""
        return self._client.terminal_output and isinstance(item, ToolCall) and is_command(item)

    def _changed(self, call: ToolCall, workspace: str) -> CallChanged:
        fields = fields_of(call, workspace, terminal=self._client.terminal_output)
        return CallChanged(**structs.asdict(fields))

    def _compacted(self, item: Compaction) -> AnyUpdate:
        if self._client.compaction:
            return CompactionShown(item.id, "completed", (TextBlock(item.summary),))
        return self.notice("info", COMPACTED)


def find_call(snapshot: Snapshot, item_id: str) -> ToolCall | None:
    """Find a tool call in the session; searches from the end, where open items are."""
    for item in reversed(snapshot.items):
        if item.id == item_id:
            return item if isinstance(item, ToolCall) else None
    return None


def usage(snapshot: Snapshot, context_window: int) -> list[AnyUpdate]:
    """An update with the use of the context window and the cost; empty if the use is unknown."""
    if not (context_window and snapshot.context_tokens):
        return []
    cost = None if snapshot.cost is None else Cost(snapshot.cost, "USD")
    return [UsageShown(snapshot.context_tokens, context_window, cost)]


def iso_time(seconds: float) -> str:
    """Format Unix seconds as ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _user_chunks(item: UserMessage) -> list[AnyUpdate]:
    text = [UserChunk(TextBlock(item.text), item.id)] if item.text else []
    images = [UserChunk(picture_block(one), item.id) for one in item.images]
    return [*text, *images]


def _chunks(item: AssistantMessage | Reasoning, text: str) -> list[AnyUpdate]:
    if not text:
        return []
    kind = ThoughtChunk if isinstance(item, Reasoning) else AgentChunk
    return [kind(TextBlock(text), item.id)]


def _call_moves(call: ToolCall, workspace: str) -> CallChanged:
    """The update for a call that begins to run, or whose title has become known."""
    return CallChanged(
        tool_call_id=call.id,
        title=title_of(call),
        status="in_progress" if call.state == "running" else "pending",
        locations=locations_of(call, workspace) or None,
        raw_input=raw_input(call),
    )


def _terminal_output(item_id: str, data: str) -> CallChanged:
    output = {"terminal_output": {"terminal_id": item_id, "data": data}}
    return CallChanged(tool_call_id=item_id, meta=output)


def _plan(plan: Iterable[PlanEntry]) -> PlanShown:
    return PlanShown(tuple(PlanLine(one.text, one.state, "medium") for one in plan))
