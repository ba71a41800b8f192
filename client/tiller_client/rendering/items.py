"""Renders the plan and items as lines: messages, reasoning, notices.

`labels` names things in one line; `calls` renders tool calls.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from tiller_client.program_name import program
from tiller_client.rendering.calls import call_lines
from tiller_client.rendering.facts import Facts
from tiller_client.rendering.labels import (
    DELIVERY_NOTES,
    STATE_NOTES,
    change_line,
    more_lines,
    notice_line,
    patch_title,
)
from tiller_client.rendering.layout import hanging, indented, wrapped
from tiller_client.rendering.style import Row, Span, Theme
from tiller_client.rendering.text import cut, one_line, seconds
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

REPORT_CLIENT = "task"
"""The `client` of messages that no user wrote: a sub-agent's prompt, and its report."""

PROMPT_ROWS_SHOWN = 20
"""Maximum number of rows to show of the user's own input, which may be a pasted file."""

CITATIONS_SHOWN = 10

_HEADING = re.compile(r"\s*\*\*([^*\n]+)\*\*\s*(?:\n|$)")
"""Matches the heading with which providers begin a summary of reasoning."""

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
            return _markdown(item.text, width, theme) + answer_notes(item, width, theme)
        case Reasoning():
            return _reasoning_lines(item, facts, width, theme, opened=opened)
        case ToolCall():
            return call_lines(item, facts, width, theme, opened=opened)
        case Compaction():
            head = "≡ history up to here was summarised"
            summary = _markdown(item.summary, width, theme, 4) if opened else []
            return [*_muted(head, width, theme), *summary]
        case Notice():
            text = f"Told the model: {item.text}" if opened else cut(notice_line(item), width - 2)
            return _muted(f"▪ {text}", width, theme)
        case Patch():
            title = patch_title(item)
            text = title if opened else cut(title, width - 9)
            changes = [change_line(change) for change in item.changes]
            shown = (line for one in changes for line in _muted(f"    {one}", width, theme))
            head = _muted(f"± {text}", width, theme)
            return [*head, *(shown if opened else ())]
        case _:
            assert_never(item)


def verb_lines(
    item: Item, facts: Facts, width: int, columns: int, theme: Theme, *, whole: bool = False
) -> list[str]:
    """The lines of an item as a verb prints it once: only calls and notices are folded.

    A line that is cut ends before `width`. Text is broken at `columns`, and so is the output of
    calls if all of it is shown (`whole`).
    """
    is_folded = isinstance(item, ToolCall | Notice | Patch) and not whole
    facts = replace(facts, see_all=f": {program()} show --full")
    return item_lines(item, facts, width - 1 if is_folded else columns, theme, opened=not is_folded)


def answer_notes(item: AssistantMessage, width: int, theme: Theme) -> list[str]:
    """The lines below an answer: whether it is incomplete, and each source that it cites, once."""
    note = STATE_NOTES.get(item.state, "").lstrip()
    sources = dict.fromkeys((one.title, one.url) for one in item.citations)
    shown = [one_line(" · ".join(filter(None, source))) for source in sources]
    more = [f"… {len(shown) - CITATIONS_SHOWN} more"] if len(shown) > CITATIONS_SHOWN else []
    cited = [f"    ↗ {line}" for line in [*shown[:CITATIONS_SHOWN], *more]]
    return [theme.dim(cut(line, width)) for line in [*([note] if note else []), *cited]]


def plan_lines(plan: Iterable[PlanEntry], width: int, theme: Theme) -> list[str]:
    """The plan as a checklist."""
    rows: list[Row] = []
    for entry in plan:
        glyph, roles = _PLAN[entry.state]
        rows += hanging([Span(glyph, roles)], [Span(one_line(entry.text), roles)], width - 2)
    return indented(map(theme.line, rows), 2)


def _user_lines(item: UserMessage, width: int, theme: Theme, *, opened: bool) -> list[str]:
    is_report = item.client == REPORT_CLIENT
    roles, mark = (("muted",), "· ") if is_report else (("bold", "user"), "» ")
    files = "".join(f" [{one_line(file)}]" for file in item.files)
    about = files + DELIVERY_NOTES[item.delivery]
    text: Row = [Span(item.text.replace("\r\n", "\n").strip("\n"), roles), Span(about, ("muted",))]
    lines = [theme.line(row) for row in hanging([Span(mark, roles)], text, width)]
    if not opened and len(lines) > PROMPT_ROWS_SHOWN:
        more = f"  {more_lines(len(lines) - PROMPT_ROWS_SHOWN)}"
        lines = [*lines[:PROMPT_ROWS_SHOWN], *_muted(more, width, theme)]
    return [*lines, *_images(item.images, width, theme)]


def _images(images: Iterable[Image], width: int, theme: Theme) -> Iterator[str]:
    for image in images:
        from tiller_client.rendering.images import image_lines  # nor an image

        yield from indented(image_lines(image, width - 2, theme), 2)


def _reasoning_lines(
    item: Reasoning, facts: Facts, width: int, theme: Theme, *, opened: bool
) -> list[str]:
    """A line with the duration and, if the provider gives one, a heading; the text if `opened`."""
    took_s = facts.took_s(item.id)
    verb = "Thinking" if item.state == "streaming" else "Thought"
    took = "" if took_s is None else f" for {seconds(took_s)}"
    heading = _HEADING.match(item.text)
    about = f": {one_line(heading[1])}" if heading else ""
    note = STATE_NOTES.get(item.state, "")
    head = cut(f"∴ {verb}{took}{note}{about}", width)
    lines = _muted(head, width, theme)
    text = item.text[heading.end() :] if heading else item.text
    return lines + _markdown(text, width, theme, 2) if opened else lines


def _markdown(text: str, width: int, theme: Theme, columns: int = 0) -> list[str]:
    from tiller_client.rendering.markdown import markdown_lines  # a thin start has no Markdown

    return indented(markdown_lines(text, width - columns, theme), columns)


def _muted(text: str, width: int, theme: Theme) -> list[str]:
    return [theme.line(row) for row in wrapped([Span(text, ("muted",))], width)]
