"""How things look in one terminal: width, colours, and how much is shown of a thing."""

from collections.abc import Iterable
from dataclasses import dataclass

from tiller_client.chat.reading.style import Theme
from tiller_client.render_item import COMMAND_LINES_SHOWN, call_label, item_block, output_row
from tiller_client.text import Paint, cut, on_screen, one_line, seconds
from tiller_protocol.items import Item, PlanEntry, ToolCall

_PLAN_MARKS = {"pending": "☐", "in_progress": "▸", "completed": "☑"}


@dataclass
class Look:
    """What decides about the form of lines; `width` and `opened` may change at any time."""

    width: int
    """Columns that a line may have."""
    theme: Theme
    opened: bool = False
    """Whether reasoning and the output of calls are shown whole."""

    @property
    def paint(self) -> Paint:
        """For lines of the words that other verbs use."""
        return Paint(colour=self.theme.kind != "none")

    def item(self, item: Item) -> list[str]:
        """The lines of an item."""
        return on_screen(item_block(item, self.paint, self.width, whole=self.opened)).split("\n")

    def running(self, call: ToolCall, now: float) -> list[str]:
        """A call that has not ended, at `now` (Unix seconds), with the end of its output."""
        paint = self.paint
        since = "" if call.started_at is None else f" {seconds(max(0.0, now - call.started_at))}"
        label = cut(call_label(call), self.width - 4 - len(call.state) - len(since))
        rows = [f"{paint.asking('○')} {label} {paint.dim(call.state + since)}"]
        shown = call.output.rstrip("\n").split("\n")[-COMMAND_LINES_SHOWN:] if call.output else []
        rows += [paint.dim(output_row(line, self.width)) for line in shown]
        return [on_screen(row) for row in rows]

    def plan(self, plan: Iterable[PlanEntry]) -> list[str]:
        """The plan as a checklist."""
        return [f"  {_PLAN_MARKS[entry.state]} {one_line(entry.text)}" for entry in plan]
