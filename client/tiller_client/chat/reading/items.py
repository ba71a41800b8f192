"""Renders the plan and items as lines: messages, reasoning, notices.

The words are the same as in other verbs (`rendering.items`); `calls` renders tool calls.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from tiller_client.chat.reading.calls import call_lines
from tiller_client.chat.reading.facts import Facts
from tiller_client.chat.reading.images import image_lines
from tiller_client.chat.reading.layout import row_cells, safe_span, wrapped
from tiller_client.chat.reading.markdown import markdown_lines
from tiller_client.chat.reading.style import Row, Span, Theme
from tiller_client.rendering.items import change_line, citation_lines, more_lines, patch_title
from tiller_client.rendering.text import Paint, cut, one_line, seconds
from tiller_protocol.items import (
    AssistantMessage,
    Compaction,
    Image,
    Item,
    Notice,
    Patch,
    PlanEntry,
    Reasoning,
    ToolCall,
    UserMessage,
)

PROMPT_ROWS_SHOWN = 20
"""Maximum number of rows to show of the user's own input, which may be a pasted file."""

_NO_COLOURS = Paint(colour=False)
_HEADING = re.compile(r"\s*\*\*([^*\n]+)\*\*\s*(?:\n|$)")
"""Matches the heading with which providers begin a summary of reasoning."""

_DELIVERY = {"start": "", "steer": " (steering)", "queue": " (queued)"}
_NOTES = {"discarded": "(discarded)", "interrupted": "(interrupted)"}
_PLAN = {
    "pending": ("☐ ", ()),
    "in_progress": ("◐ ", ("bold",)),
    "completed": ("☑ ", ("muted",)),
}


def item_lines(
    item: Item,
    facts: Facts,
    width: int,
    theme: Theme,
    *,
    opened: bool = False,
) -> list[str]:
    """The lines of an item, at most `width` columns wide; the whole item if `opened`.

    Images are drawn only in final lines (`facts.now` is `None`), as other lines are drawn often.
    """
    if facts.now is not None:
        theme = replace(theme, pictures="none")
    match item:
        case UserMessage():
            return _user_lines(item, width, theme, opened=opened)
        case AssistantMessage():
            return _assistant_lines(item, width, theme)
        case Reasoning():
            return _reasoning_lines(item, facts, width, theme, opened=opened)
        case ToolCall():
            return call_lines(item, facts, width, theme, opened=opened)
        case Compaction():
            head = "≡ history up to here was summarised"
            summary = _indented(markdown_lines(item.summary, width - 4, theme), 4)
            return [*_muted(head, width, theme), *(summary if opened else ())]
        case Notice():
            text = item.text if opened else cut(one_line(item.text), width - 2)
            return _muted(f"▪ {text}", width, theme)
        case Patch():
            title = patch_title(item)
            text = title if opened else cut(title, width - 9)
            changes = [change_line(change, _NO_COLOURS) for change in item.changes]
            shown = (line for one in changes for line in _muted(f"    {one}", width, theme))
            head = _muted(f"± {text}", width, theme)
            return [*head, *(shown if opened else ())]
        case _:
            assert_never(item)


def plan_lines(plan: Iterable[PlanEntry], width: int, theme: Theme) -> list[str]:
    """The plan as a checklist."""
    lines: list[str] = []
    for entry in plan:
        glyph, roles = _PLAN[entry.state]
        mark: Row = [Span(glyph, roles)]
        lines += _hanging(mark, [Span(one_line(entry.text), roles)], width - 2, theme)
    return _indented(lines, 2)


def _user_lines(item: UserMessage, width: int, theme: Theme, *, opened: bool) -> list[str]:
    roles = ("bold", "user")
    mark: Row = [Span("» ", roles)]
    files = "".join(f" [{one_line(file)}]" for file in item.files)
    about = files + _DELIVERY[item.delivery]
    text: Row = [Span(item.text.replace("\r\n", "\n").strip("\n"), roles), Span(about, ("muted",))]
    lines = _hanging(mark, text, width, theme)
    if not opened and len(lines) > PROMPT_ROWS_SHOWN:
        more = f"  … {more_lines(len(lines) - PROMPT_ROWS_SHOWN)}"
        lines = [*lines[:PROMPT_ROWS_SHOWN], *_muted(more, width, theme)]
    return [*lines, *_images(item.images, width, theme)]


def _images(images: Iterable[Image], width: int, theme: Theme) -> Iterator[str]:
    for image in images:
        yield from _indented(image_lines(image, width - 2, theme), 2)


def _assistant_lines(item: AssistantMessage, width: int, theme: Theme) -> list[str]:
    lines = markdown_lines(item.text, width, theme)
    if note := _NOTES.get(item.state):
        lines += _muted(note, width, theme)
    for line in citation_lines(item.citations, _NO_COLOURS, width):
        lines += _muted(line, width, theme)
    return lines


def _reasoning_lines(
    item: Reasoning, facts: Facts, width: int, theme: Theme, *, opened: bool
) -> list[str]:
    """A line with the duration and, if the provider gives one, a heading; the text if `opened`."""
    took_s = facts.took_s(item.id)
    verb = "Thinking" if item.state == "streaming" else "Thought"
    took = "" if took_s is None else f" for {seconds(took_s)}"
    heading = _HEADING.match(item.text)
    about = f": {one_line(heading[1])}" if heading else ""
    note = f" {_NOTES[item.state]}" if item.state in _NOTES else ""
    head = cut(f"∴ {verb}{took}{note}{about}", width)
    lines = _muted(head, width, theme)
    text = item.text[heading.end() :] if heading else item.text
    return lines + _indented(markdown_lines(text, width - 2, theme), 2) if opened else lines


def _muted(text: str, width: int, theme: Theme) -> list[str]:
    return [theme.line(row) for row in wrapped([Span(text, ("muted",))], width)]


def _hanging(mark: Row, text: Row, width: int, theme: Theme) -> list[str]:
    """Render a text after a mark; further rows are indented to the text."""
    columns = row_cells(map(safe_span, mark))
    rows = wrapped(text, width - columns)
    return [
        theme.line([*(mark if at == 0 else [Span(" " * columns)]), *row])
        for at, row in enumerate(rows)
    ]


def _indented(lines: Iterable[str], columns: int) -> list[str]:
    return [" " * columns + line if line else "" for line in lines]
