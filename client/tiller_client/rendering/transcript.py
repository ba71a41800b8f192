"""Renders a session in its present state, for reading; pure."""

from collections import deque
from collections.abc import Callable, Iterator

from tiller_client.program_name import program
from tiller_client.rendering.facts import Facts
from tiller_client.rendering.items import answer_notes, verb_lines
from tiller_client.rendering.labels import (
    as_shown,
    background_line,
    input_line,
    is_shown,
    waiting_line,
)
from tiller_client.rendering.lines import (
    branch_line,
    context_line,
    fork_line,
    tokens_line,
    turn_end,
)
from tiller_client.rendering.requests import request_block
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import (
    UNCUT,
    counted,
    dollars,
    local_time,
    one_line,
    sanitized,
    seconds,
)
from tiller_client.rendering.wrap import hanging, sentence, wrapped
from tiller_protocol.items import AssistantMessage, Item
from tiller_protocol.snapshot import Mark, Snapshot


def transcript(
    snapshot: Snapshot,
    theme: Theme,
    width: int,
    columns: int = UNCUT,
    *,
    whole: bool = False,
    tail: int | None = None,
) -> str:
    """Render a session, with open requests and queued input at the end.

    Single lines are cut at `width`, and text is broken at `columns`. With `whole`, the output of
    calls is shown completely; with `tail`, only that many of the last items are shown.
    """
    details = [snapshot.workspace, snapshot.settings.model or "", fork_line(snapshot)]
    place = one_line(" · ".join(detail for detail in details if detail))
    lines = [
        theme.bold(one_line(snapshot.title) or "(no title)"),
        theme.dim(hanging(f"{snapshot.session_id} · {place}", columns)),
    ]

    def show(item: Item) -> str:
        if not isinstance(item, AssistantMessage):
            return "\n".join(verb_lines(item, Facts(), width, columns, theme, whole=whole))
        text = wrapped(sanitized(item.text).rstrip("\n"), columns)
        return "\n".join([text, *answer_notes(item, width - 1, theme)])

    lines += _history(snapshot, theme, columns, show, tail)
    lines.extend(request_block(request, theme, width) for request in snapshot.requests)
    running = [one for one in snapshot.background if one.state == "running"]
    lines.extend(theme.dim(background_line(one)) for one in running)
    lines.extend(theme.dim(f"queued: {input_line(queued)}") for queued in snapshot.queue)
    if snapshot.queue and snapshot.turn is None:
        goes_on = f"{program()} resume {snapshot.session_id}"
        waiting = sentence("! ", waiting_line(len(snapshot.queue), goes_on), columns)
        lines.append(theme.asking(waiting))
    figures = (
        snapshot.status,
        counted(snapshot.turns, "turn"),
        tokens_line(snapshot.usage),
        _cost(snapshot),
        context_line(snapshot),
        branch_line(snapshot),
    )
    lines.append(theme.dim(f"\n{hanging(' · '.join(filter(None, figures)), columns)}"))
    return "\n".join(lines)


def _history(
    snapshot: Snapshot,
    theme: Theme,
    columns: int,
    show: Callable[[Item], str],
    tail: int | None,
) -> Iterator[str]:
    """The items, with a line about each turn above its items."""
    turns = deque(enumerate((mark for mark in snapshot.marks if mark.step == 0), 1))
    shown = [at for at, item in enumerate(snapshot.items) if is_shown(item)]
    left_out = 0 if tail is None else max(0, len(shown) - tail)
    if left_out:
        yield theme.dim(f"… {counted(left_out, 'earlier item')}")
        while len(turns) > 1 and turns[1][1].items <= shown[left_out]:
            turns.popleft()
    turn: Mark | None = None
    for at in (*shown[left_out:], len(snapshot.items)):
        while turns and turns[0][1].items <= at:
            yield from turn_end(turn, theme, columns)
            number, turn = turns.popleft()
            yield f"\n{theme.dim(_turn_line(number, turn))}"
        if at < len(snapshot.items):
            yield show(as_shown(snapshot.items[at], snapshot))
    yield from turn_end(turn, theme, columns)


def _turn_line(number: int, mark: Mark) -> str:
    """A line with a turn's start and duration."""
    took = "" if mark.duration_s is None else f" · {seconds(mark.duration_s)}"
    return f"turn {number} · {local_time(mark.at)}{took}"


def _cost(snapshot: Snapshot) -> str:
    """The cost of a session, and how many of its requests have an unknown price."""
    if snapshot.cost is None:
        return "cost unknown" if snapshot.unpriced else ""
    if not snapshot.unpriced:
        return dollars(snapshot.cost)
    return f"{dollars(snapshot.cost)} and {counted(snapshot.unpriced, 'request')} of unknown price"
