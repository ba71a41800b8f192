"""Renders a session as lines: final lines, in the order of history, and lines that still change.

Pure: events and the time go in, lines come out. Final lines go to the terminal's scrollback, where
nothing can be redrawn. So a line is final only when no event can change it any more. An item is
printed when it has completed and all items before it are printed. If the next item is a message of
the model, it is printed block by block while it streams.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from tiller_client.chat.terminal.look import Look
from tiller_client.program_name import program
from tiller_client.rendering.activity import model_wait
from tiller_client.rendering.calls import background_lines
from tiller_client.rendering.facts import Durations, Facts
from tiller_client.rendering.items import answer_notes, item_lines
from tiller_client.rendering.labels import as_shown, is_shown
from tiller_client.rendering.lines import (
    Reporter,
    completed_line,
    revert_line,
    turn_end,
    turn_end_line,
)
from tiller_client.rendering.markdown import MarkdownStream
from tiller_client.rendering.text import sanitized, seconds
from tiller_client.rendering.wrap import sentence
from tiller_protocol.events import (
    ErrorRaised,
    Event,
    HistoryCompacted,
    HistoryReverted,
    ItemDelta,
    RequestResolved,
    StatusChanged,
    TurnEnded,
)
from tiller_protocol.fold import fold_replayed
from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Item,
    Notice,
    Patch,
    Reasoning,
    ToolCall,
)
from tiller_protocol.snapshot import Mark, Snapshot, is_working
from tiller_protocol.turns import LAST_STEP

HISTORY_ITEMS_MAX = 200
"""Number of latest items to print when a session is opened; `tiller show` prints all items."""

TOLD_BY_END = {"interrupted": "interrupted", LAST_STEP: "limit_reached"}
"""For codes of notices, the outcome whose message at the end of a turn says the same."""


class Conversation:
    """One session, beginning with a snapshot, to which `take` applies events."""

    def __init__(self, snapshot: Snapshot, look: Look) -> None:
        """`look` may change at any time; final lines stay as they are."""
        self.snapshot = snapshot
        self.look = look
        self.children: Mapping[str, Sequence[Item]] = {}
        """The histories of the sub-agents that are followed, by session id."""
        self._printed = 0
        """The number of the snapshot's items whose lines are final."""
        self._stream: MarkdownStream | None = None
        """The streaming message that is next in order, once a part may have been printed."""
        self._streamed = 0
        """The number of characters of that message given to the stream."""
        self._is_compact = False
        """Whether the last final line belongs to a group, such as consecutive tool calls."""
        self._reporter = Reporter(snapshot.background, snapshot.requests)
        self._durations = Durations()
        self._retry_at: float | None = None
        """When the model will be asked again (Unix seconds), while a retry is due."""
        self._began = False
        """Whether a line of the streaming message is final."""
        self._is_live = False
        """Whether events are new, so that the end of a turn is shown, too."""
        self._held: list[Notice] = []
        """Notices held back, because the end of the turn may say the same."""

    def begin(self) -> list[str]:
        """The final lines of the session so far."""
        items = self.snapshot.items
        self._printed = max(0, len(items) - HISTORY_ITEMS_MAX)
        lines: list[str] = []
        if self._printed:
            hint = f"… {self._printed} earlier items: Ctrl-T, or {program()} show"
            lines.append(self._dim(hint))
        for end, turn in self._cut_short():
            if end > self._printed:
                lines += self._advance(end)
                lines += self._apart([*turn_end(turn, self.look.theme, self.look.width)])
        lines += self.advance()
        # Its calls say only how many entries are done, and later events only what has changed.
        plan = self._reporter.plan(self.snapshot.plan, self.look.theme, self.look.width)
        if any(entry.state != "completed" for entry in self.snapshot.plan):
            lines += self._apart(plan)
        latest = next((mark for mark in reversed(self.snapshot.marks) if mark.step == 0), None)
        if latest and latest.outcome == "completed" and not is_working(self.snapshot):
            lines += self._apart([completed_line(latest, self.snapshot, self.look.theme)])
        self._is_live = True
        return lines

    def _cut_short(self) -> Iterator[tuple[int, Mark]]:
        """Yield the turns that failed and the like, and the number of items before their ends.

        Of other ends, notices in history tell.
        """
        turns = [mark for mark in self.snapshot.marks if mark.step == 0]
        ends = [*(mark.items for mark in turns[1:]), len(self.snapshot.items)]
        for turn, end in zip(turns, ends, strict=False):  # Without turns, there is one end.
            if turn.outcome not in (None, "completed", *TOLD_BY_END.values()):
                yield end, turn

    def take(self, event: Event) -> list[str]:
        """Apply the next event; return the lines that have become final."""
        reverted = self._reverted(event.body) if isinstance(event.body, HistoryReverted) else ""
        fold_replayed(self.snapshot, event)
        self._durations.note(event)
        if isinstance(event.body, StatusChanged):
            delay_s = event.body.delay_s if event.body.status == "retry" else None
            self._retry_at = None if delay_s is None else event.time + delay_s
        if isinstance(event.body, ItemDelta):
            return []  # many deltas arrive between two frames: `advance` handles them together
        if isinstance(event.body, HistoryReverted):
            self._printed = len(self.snapshot.items)
            self._stream, self._began = None, False
        lines = self.advance()
        if isinstance(event.body, TurnEnded):
            lines += self._release(event.body.outcome)
        compact = isinstance(event.body, RequestResolved | HistoryCompacted)
        for line in self._said(event, reverted):
            lines += self._apart(line.split("\n"), compact=compact)
        return lines

    def live(self, now: float) -> list[str]:
        """The lines that still change, as of `now` (Unix seconds)."""
        lines: list[str] = []
        is_compact = self._is_compact
        for item in self.snapshot.items[self._printed :]:
            shown = self._live_item(as_shown(item, self.snapshot), now)
            compact = _is_grouped(item)
            goes_on = self._began and isinstance(item, AssistantMessage)
            if shown and not (goes_on or (compact and is_compact)):
                lines.append("")
            if shown:
                lines += shown
                is_compact = compact
        for command in self.snapshot.background:
            if command.state == "running" and command.sub_agent:
                facts = self._facts(now)
                look = self.look
                shown = background_lines(command, facts, look.width, look.theme, opened=look.opened)
                lines += ["", *shown]
        if waiting := self._waiting_line(now):
            lines += ["", self._dim(waiting)]
        return lines

    def opened(self, rows_max: int) -> list[str]:
        """The items that are folded in the last rows printed, whole.

        What is printed can't be changed, as most of it is in the terminal's scrollback.
        """
        blocks: list[list[str]] = []
        seen = 0
        for item in reversed(self.snapshot.items[: self._printed]):
            folded, whole = (
                item_lines(item, self._facts(None), self.look.width, self.look.theme, opened=opened)
                for opened in (False, True)
            )
            seen += len(folded) + 1
            if seen > rows_max:
                break
            if whole != folded and is_shown(item):
                blocks.append(["", *whole])
        return [line for block in reversed(blocks) for line in block]

    def set_apart(self) -> None:
        """Note that other lines were printed, which ends a group of lines."""
        self._is_compact = False

    def advance(self) -> list[str]:
        """The lines that have become final through the events so far, including deltas."""
        return list(self._advance())

    def _advance(self, end: int | None = None) -> Iterator[str]:
        """Yield the final lines of the items, at most up to the item number `end`."""
        while self._printed < (len(self.snapshot.items) if end is None else end):
            item = self.snapshot.items[self._printed]
            if item.id in self.snapshot.open_items:
                if isinstance(item, AssistantMessage):
                    yield from self._feed(item)
                if not isinstance(item, Reasoning) or item is self.snapshot.items[-1]:
                    return
                # It ended when the next item started, but is completed with the whole response.
                item = replace(item, state="completed")
            yield from self._finish(item)
            self._printed += 1

    def _feed(self, item: AssistantMessage) -> Iterator[str]:
        """Yield the lines of a streaming message's complete blocks."""
        if self._stream is None:
            self._stream = MarkdownStream(self.look.width, self.look.theme)
            self._streamed = 0
        self._stream.width = self.look.width
        self._stream.theme = self.look.theme
        piece = item.text[self._streamed :]
        self._streamed += len(piece)
        lines = self._stream.feed(piece)
        if lines:
            yield from lines if self._began else self._apart(lines)
            self._began = True

    def _release(self, outcome: str) -> Iterator[str]:
        """Yield the held notices, except those that this outcome of the turn replaces."""
        held, self._held = self._held, []
        for notice in held:
            if TOLD_BY_END[notice.code] != outcome:
                yield from self._apart(self._item(notice), compact=True)

    def _finish(self, item: Item) -> Iterator[str]:
        if not self.look.opened:
            if isinstance(item, Notice) and item.code in TOLD_BY_END and self._is_told(item):
                return
            if self._is_live and isinstance(item, AssistantMessage | Reasoning):
                # The end of the turn says that it was interrupted.
                item = replace(item, state="completed") if item.state == "interrupted" else item
        if isinstance(item, AssistantMessage) and self._stream is not None:
            if item.state == "discarded":
                yield self._dim("  (this answer was discarded; the model is asked again)")
            else:
                yield from self._feed(item)
                rest = self._stream.close()
                if rest:
                    yield from rest if self._began else self._apart(rest)
                yield from answer_notes(item, self.look.width, self.look.theme)
            self._stream, self._began = None, False
            self._is_compact = False
            return
        if not is_shown(item) or (isinstance(item, AssistantMessage) and not item.text.strip()):
            return
        yield from self._apart(self._item(item), compact=_is_grouped(item))

    def _is_told(self, notice: Notice) -> bool:
        """Whether not to show a notice, as other lines say the same; a new notice may be held."""
        if self._is_live:
            self._held.append(notice)
            return True
        before = self.snapshot.items[self._printed - 1] if self._printed else None
        return notice.code == getattr(before, "state", "")

    def _item(self, item: Item, now: float | None = None) -> list[str]:
        look = self.look
        if isinstance(item, ToolCall):
            item = self._reporter.call(item)
        return item_lines(item, self._facts(now), look.width, look.theme, opened=look.opened)

    def _facts(self, now: float | None) -> Facts:
        return Facts(self.snapshot.items, now, self._durations, self.children)

    def _live_item(self, item: Item, now: float) -> list[str]:
        if isinstance(item, AssistantMessage):
            return self._stream.tail() if self._stream is not None else []
        if not is_shown(item) or self._is_asked_about(item):
            return []
        return self._item(item, now)

    def _is_asked_about(self, item: Item) -> bool:
        """Whether the open request, which is shown, is about this call and says more."""
        return self.snapshot.requests[:1] != [] and self.snapshot.requests[0].item_id == item.id

    def _apart(self, lines: list[str], *, compact: bool = False) -> list[str]:
        """Put a blank line before these lines, unless they belong to a group."""
        apart = [] if compact and self._is_compact else [""]
        self._is_compact = compact
        return [*apart, *lines]

    def _said(self, event: Event, reverted: str) -> Iterator[str]:
        """Yield final lines about events other than items; `reverted` is a turn's prompt."""
        look = self.look
        match event.body:
            case TurnEnded() | ErrorRaised() as body:
                if isinstance(body, TurnEnded):
                    yield turn_end_line(body, look.theme, look.width)
                if message := self._reporter.error(body):
                    yield look.theme.bad(sentence("! ", message, look.width))
            case HistoryReverted() as body:
                yield revert_line(body, reverted)
            case body:
                if lines := [*self._reporter.lines(body, look.theme, look.width)]:
                    yield "\n".join(lines)

    def _reverted(self, body: HistoryReverted) -> str:
        """The prompt of the turn that is about to be reverted."""
        from tiller_client.chat.points import points  # the first frame does not need it

        found = (one.prompt for one in points(self.snapshot) if one.turn_id == body.before_turn)
        return next(found, "")

    def _waiting_line(self, now: float) -> str:
        """The line that says what the session waits for, while no other line changes."""
        snapshot = self.snapshot
        if not is_working(snapshot) or snapshot.open_items or snapshot.requests:
            return ""
        if self._retry_at is not None:
            return f"↻ trying again in {seconds(max(0.0, self._retry_at - now))}"
        return model_wait(now - snapshot.updated_at)

    def _dim(self, text: str) -> str:
        return self.look.theme.dim(sanitized(text))


def _is_grouped(item: Item) -> bool:
    """Whether items of this kind form groups without blank lines in between."""
    return isinstance(item, ToolCall | Reasoning | Patch | Notice | Compaction)
