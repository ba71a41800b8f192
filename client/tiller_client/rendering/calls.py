"""Renders tool calls: a line about the call, and then the end of its output, or its diff."""

import re
from collections.abc import Iterator

from tiller_client.rendering.facts import Facts
from tiller_client.rendering.labels import QUESTION, call_label, call_title, more_lines
from tiller_client.rendering.layout import folded, indented, row_cells, safe_span
from tiller_client.rendering.style import TAB_COLUMNS, Row, Span, Theme, safe
from tiller_client.rendering.text import UNCUT, count, counted, cut, dollars, one_line, seconds
from tiller_protocol.items import (
    AssistantMessage,
    BackgroundCommand,
    Item,
    Reasoning,
    SubAgent,
    ToolCall,
)

INDENT = 4

DIFF_LINES_SHOWN = 24
OUTPUT_LINES_SHOWN = 10
"""Lines to show of failed calls, the user's own commands, hosted calls, and answers to the model.

The answer is there also if the session is opened later, without the request.
"""

COMMAND_LINES_SHOWN = 5
"""Lines of output to show of other commands, both while they run and afterwards."""

BAR_COLUMNS = 16
"""Width of the bar that shows when a call ran in relation to parallel calls."""

BAR_END = 100
"""The last column of all bars, so that they are aligned."""

BAR_WIDTH_MIN = 70
"""Narrowest terminal with bars; narrower ones show only the number of parallel calls."""

CHILD_ITEMS_SHOWN = 5
"""Number of a working sub-agent's latest items to show."""

AGENT_WIDTH_MIN = 20
"""Minimum width in which to show a sub-agent's calls: nested sub-agents have less and less."""

LINE_CHARS_MAX = 4_000
"""Number of characters to lay out of a line that will be cut: more than any terminal is wide."""

_LINE_END = re.compile(r"\r*\n")


def call_lines(
    call: ToolCall, facts: Facts, width: int, theme: Theme, *, opened: bool = False
) -> list[str]:
    """The lines of a call; with all of its output if `opened`."""
    rows: list[Row] = [_head(call, facts, width)]
    if call.rewritten_arguments:
        changed = f"a hook changed the arguments to {one_line(call.rewritten_arguments)}"
        rows += _below(changed, width, opened=opened)
    lines = [theme.line(row) for row in rows]
    for image in call.images:
        from tiller_client.rendering.images import image_lines  # a thin start has no images

        lines += indented(image_lines(image, width - INDENT, theme), INDENT)
    output = call.output
    if call.diff:
        from tiller_client.rendering.diff import diff_lines  # nor a diff

        lines_max = UNCUT if opened else DIFF_LINES_SHOWN
        shown = diff_lines(
            call.diff, width - INDENT, theme, lines_max=lines_max, see_all=facts.see_all
        )
        lines += indented(shown, INDENT)
        # After the first blank line, the output lists problems that the edit caused.
        output = output.partition("\n\n")[2]
    if call.sub_agent:
        has_ended = call.state in ("completed", "error")
        agent_lines = _agent_lines(
            *(call.sub_agent, facts, width - INDENT, theme), has_ended=has_ended, opened=opened
        )
        lines += indented(agent_lines, INDENT)
        if call.sub_agent.session_id in facts.children and not has_ended:
            output = ""  # the output only names the same calls
    rows = _output_rows(call, output, facts, width, opened=opened)
    return lines + [theme.line(row) for row in rows]


def call_line(call: ToolCall, facts: Facts, width: int, theme: Theme) -> str:
    """One line about a call: its state, tool and subject, and when it ran."""
    return theme.line(_head(call, facts, width))


def output_lines(call: ToolCall, width: int, theme: Theme) -> list[str]:
    """The last lines of the output of a running call."""
    rows = _output_rows(call, call.output, Facts(), width, opened=False)
    return [theme.line(row) for row in rows]


def _head(call: ToolCall, facts: Facts, width: int) -> Row:
    """The first row of a call: state, tool, subject, and when it ran."""
    state, role = _state(call, facts)
    beside = _beside(call, facts, width)
    end: Row = [Span(f" {state}"), *beside]
    mark = "○ " if call.state in ("pending", "running") else "● "
    begin: Row = [Span(mark, (role,)), Span(cut(one_line(call.name), width // 3), ("bold",))]
    title = _title(call_title(call), [*begin, *end], width)
    row = [*begin, title, Span(f" {state}", (role,))]
    if width >= BAR_WIDTH_MIN and beside:
        used = row_cells(map(safe_span, [*row, *beside]))
        row.append(Span(" " * (min(width, BAR_END) - used)))
    return [*row, *beside]


def _title(text: str, around: Row, width: int) -> Span:
    """As much of a title as there is room for beside the other spans of its row."""
    free = width - row_cells(map(safe_span, around)) - 1
    title = cut(text, free) if free > 0 else ""
    return Span(f" {title}" if title else "")


def _state(call: ToolCall, facts: Facts) -> tuple[str, str]:
    """The state and duration of a call, such as `exit 1 80 ms`, and the role of that text."""
    took_s, role = call.duration_s, "good"
    if call.state in ("pending", "running"):
        word, role = call.state, "asking"
        if call.started_at is not None and facts.now is not None:
            took_s = max(0.0, facts.now - call.started_at)
    elif call.exit_status:
        word, role = f"exit {call.exit_status}", "bad"
    elif call.state == "error":
        word, role = call.error_kind or "failed", "bad"
    else:
        word = "ok"
    return word if took_s is None else f"{word} {seconds(took_s)}", role


def _beside(call: ToolCall, facts: Facts, width: int) -> Row:
    """When a call ran, if other calls of its response ran at the same time."""
    own = facts.span(call)
    if own is None:
        return []
    spans = [
        span for one in facts.response(call) if one.id != call.id and (span := facts.span(one))
    ]
    together = [span for span in spans if span[0] < own[1] and own[0] < span[1]]
    if not together:
        return []
    if width < BAR_WIDTH_MIN:
        return [Span(f" ∥{len(together) + 1}", ("muted",))]
    begin, end = min(own[0], *(s[0] for s in together)), max(own[1], *(s[1] for s in together))
    return [Span(" "), *time_bar(own, begin, end, BAR_COLUMNS)]


def time_bar(own: tuple[float, float], begin: float, end: float, columns: int) -> Row:
    """When something ran, between the times `begin` and `end`."""
    unit_s = (end - begin) / columns or 1.0
    first = min(columns - 1, int((own[0] - begin) / unit_s))
    last = max(first + 1, min(columns, round((own[1] - begin) / unit_s)))
    ran = Span("━" * (last - first), ("name",))
    return [Span("┄" * first, ("muted",)), ran, Span("┄" * (columns - last), ("muted",))]


def background_lines(
    command: BackgroundCommand, facts: Facts, width: int, theme: Theme, *, opened: bool = False
) -> list[str]:
    """The lines of a sub-agent that is working in the background."""
    took_s = max(0.0, (facts.now or command.started_at) - command.started_at)
    end: Row = [Span(f" in the background {seconds(took_s)}", ("asking",))]
    begin: Row = [Span("⚙ ", ("asking",)), Span(one_line(command.id), ("bold",))]
    title = _title(one_line(command.command), [*begin, *end], width)
    lines = [theme.line([*begin, title, *end])]
    if command.sub_agent is not None:
        below = _agent_lines(command.sub_agent, facts, width - INDENT, theme, opened=opened)
        lines += indented(below, INDENT)
    return lines


def _agent_lines(
    agent: SubAgent,
    facts: Facts,
    width: int,
    theme: Theme,
    *,
    has_ended: bool = False,
    opened: bool = False,
) -> Iterator[str]:
    """A sub-agent's figures; its latest items while it works, or all its items if `opened`."""
    steps = counted(agent.steps, "step")
    tokens = f" · {count(agent.usage.tokens)} tokens" if agent.usage.tokens else ""
    cost = "" if agent.cost is None else f" · {dollars(agent.cost)}"
    about = cut(f"{one_line(agent.agent)} · {steps}{tokens}{cost}", width)
    yield theme.line([Span(about, ("agent",))])
    if width < AGENT_WIDTH_MIN or (has_ended and not opened):
        return
    items = [item for item in facts.children.get(agent.session_id, ()) if _is_work(item)]
    # No sub-agent works for itself: a history that says so would be nested in itself endlessly.
    others = {known: of for known, of in facts.children.items() if known != agent.session_id}
    child = Facts(items, facts.now, children=others, see_all=facts.see_all)
    for item in items if opened else items[-CHILD_ITEMS_SHOWN:]:
        if isinstance(item, ToolCall) and has_ended and item.state in ("pending", "running"):
            # The sub-agent's session is followed separately, so the end may not be known yet.
            label = cut(f"● {call_label(item)}", width)
            yield theme.line([Span(label, ("muted",))])
        elif isinstance(item, ToolCall):
            yield from _child_call_lines(item, child, width, theme, opened=opened)
        elif isinstance(item, AssistantMessage):
            yield theme.line([Span(cut(one_line(item.text[:LINE_CHARS_MAX]), width))])
        elif not has_ended:
            yield theme.line([Span(cut("∴ Thinking", width), ("muted",))])


def _child_call_lines(
    call: ToolCall, facts: Facts, width: int, theme: Theme, *, opened: bool
) -> Iterator[str]:
    """A sub-agent's call: its state, and the work of a sub-agent that it runs."""
    if opened:
        yield from call_lines(call, facts, width, theme)
        return
    yield call_line(call, facts, width, theme)
    if call.sub_agent and call.state not in ("completed", "error"):
        below = _agent_lines(call.sub_agent, facts, width - INDENT, theme)
        yield from indented(below, INDENT)


def _is_work(item: Item) -> bool:
    match item:
        case ToolCall():
            return not item.discarded
        case AssistantMessage():
            return item.state != "discarded" and bool(item.text.strip())
        case Reasoning():
            return item.state == "streaming"
        case _:
            return False


def _output_rows(
    call: ToolCall, output: str, facts: Facts, width: int, *, opened: bool
) -> list[Row]:
    """The last lines of a call's output, or the first lines if the best results come first."""
    ended = call.state in ("completed", "error")
    failed = call.state == "error" or bool(call.exit_status)
    lines_max = _lines_shown(call, failed=failed) if ended else COMMAND_LINES_SHOWN
    if not output.strip() or not (lines_max or opened):
        return []
    output = output.rstrip("\n")
    if opened:
        whole = (*([_whole_output(call)] if call.spill_path else []), *_lines(output))
        return [row for line in whole for row in _below(line, width, opened=True)]
    # While the call runs, much output may arrive many times a second: look only at its end.
    is_head = call.by_provider and not failed
    chars = lines_max * LINE_CHARS_MAX
    lines = _lines(output[:chars])[:lines_max] if is_head else _lines(output[-chars:])[-lines_max:]
    left_out = output.count("\n") + 1 - len(lines)
    # An output that was cut before does not tell how many lines there were.
    about = _whole_output(call) if call.spill_path else more_lines(left_out) + facts.see_all
    more = _below(about, width, opened=True) if left_out else []
    shown = [row for line in lines for row in _below(line, width, opened=False)]
    return [*shown, *more] if is_head else [*more, *shown]


def _lines_shown(call: ToolCall, *, failed: bool) -> int:
    """How many lines of a call's output to show to people."""
    if failed or call.diff or call.by_user or call.by_provider or call.name == QUESTION:
        return OUTPUT_LINES_SHOWN
    return 0 if call.exit_status is None else COMMAND_LINES_SHOWN


def _whole_output(call: ToolCall) -> str:
    return f"… whole output: {one_line(call.spill_path)}"


def _lines(output: str) -> list[str]:
    """The lines of output; if carriage returns overwrite a line, only its latest text."""
    lines = _LINE_END.split(output)
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def _below(line: str, width: int, *, opened: bool) -> list[Row]:
    """The rows of a line below a call: the whole line if `opened`, else as much as fits one row."""
    if opened:
        rows = folded([Span(line.expandtabs(TAB_COLUMNS).rstrip(), ("muted",))], width - INDENT)
    else:
        text = safe(line[:LINE_CHARS_MAX].expandtabs(TAB_COLUMNS).rstrip())
        rows = [[Span(cut(text, width - INDENT), ("muted",))]]
    return [[Span(" " * INDENT), *row] for row in rows]
