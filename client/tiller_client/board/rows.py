"""Renders a board's sessions as rows; pure. All text in them is safe, and no row is too wide."""

from collections.abc import Mapping
from typing import NamedTuple

from tiller_client.board.sessions import (
    GROUP_TITLES,
    Group,
    Row,
    activity,
    branch,
    changes,
    context,
    cost,
    has_failed,
)
from tiller_client.board.state import BoardState, Longest
from tiller_client.chat.rows import CHOSEN
from tiller_client.rendering.lines import fork_line
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import age, cut, one_line, pad

MARKS: dict[Group, str] = {
    "needs_you": "?", "working": "●", "waiting": "◷", "done": "✓", "idle": " ",
}  # fmt: skip
FAILED_MARK, INTERRUPTED_MARK = "✗", "■"

GAP = "  "
AGE_COLUMNS = 6
PLACE_COLUMNS_MAX, BRANCH_COLUMNS_MAX, COST_COLUMNS_MAX = 24, 30, 9

PLACE_FROM, FIGURES_FROM, BRANCH_FROM = 59, 79, 119
"""The columns of a row from which on it has places, figures, and branches."""

TITLE_SHARE = 0.4
"""The part of the columns that titles share with activities which titles may take."""

TITLE_COLUMNS_MAX = 50

KEPT_SHARE = 4
"""One row in so many keeps showing sessions that need the user while others are chosen."""


class Columns(NamedTuple):
    """The widths of the columns in which there is a choice; 0 for one that is left out."""

    title: int
    activity: int
    rest: Longest


def columns_for(width: int, longest: Longest) -> Columns:
    """Divide a row's columns."""
    rest = Longest(
        min(longest.place, PLACE_COLUMNS_MAX, width // 6) if width >= PLACE_FROM else 0,
        min(longest.branch, BRANCH_COLUMNS_MAX, width // 6) if width >= BRANCH_FROM else 0,
        longest.context if width >= FIGURES_FROM else 0,
        min(longest.cost, COST_COLUMNS_MAX) if width >= FIGURES_FROM else 0,
    )
    used = sum(one + len(GAP) for one in (AGE_COLUMNS, *rest) if one)
    left = width - len(f"{CHOSEN}? ") - used - len(GAP)
    title = min(TITLE_COLUMNS_MAX, int(left * TITLE_SHARE))
    return Columns(title, left - title, rest)


def session_row(
    row: Row, columns: Columns, now: float, theme: Theme, *, chosen: bool, stale: bool
) -> str:
    """The row of a session; a stale one is grey, as nobody knows what its host does."""
    session, rest = row.session, columns.rest
    name = pad(row.name, columns.title)
    what = pad(activity(row), columns.activity)
    # Sessions of one repository often differ only in their worktrees.
    place = row.place if rest.branch else row.narrow_place
    places = [pad(place, rest.place), pad(branch(session), rest.branch)]
    figures = [
        f"{age(row.elapsed_s(now)):>{AGE_COLUMNS}}",
        f"{cut(context(session), rest.context):>{rest.context}}",
        f"{cut(cost(session), rest.cost):>{rest.cost}}",
    ]
    places, figures = [*filter(None, places)], [*filter(None, figures)]
    mark = _mark(row)
    at = CHOSEN if chosen else " "
    if stale:
        return theme.dim(f"{at}{mark} {GAP.join([name, *places, what, *figures])}".rstrip())
    parts = [
        theme.bold(name) if chosen else name,
        *map(theme.dim, places),
        theme.asking(what) if row.group == "needs_you" else what,
        *map(theme.dim, figures),
    ]
    return f"{theme.asking(at) if chosen else at}{_painted(mark, row, theme)} {GAP.join(parts)}"


def _mark(row: Row) -> str:
    if row.group == "done" and has_failed(row.session):
        return FAILED_MARK
    is_interrupted = row.group == "done" and row.session.last_outcome == "interrupted"
    return INTERRUPTED_MARK if is_interrupted else MARKS[row.group]


def _painted(mark: str, row: Row, theme: Theme) -> str:
    match row.group:
        case "needs_you":
            return theme.asking(mark)
        case "working":
            return theme.painted(mark, "user")
        case "done":
            if mark == INTERRUPTED_MARK:
                return theme.dim(mark)
            return theme.bad(mark) if mark == FAILED_MARK else theme.good(mark)
        case "waiting" | "idle":
            return theme.dim(mark)


def heading_row(group: Group, count: int, width: int, theme: Theme) -> str:
    """The heading of a group."""
    return theme.dim(cut(f"{GROUP_TITLES[group]} · {count}", width))


def top_rows(state: BoardState, now: float, width: int, theme: Theme) -> list[str]:
    """The rows above the list: how many sessions there are, and which hosts say nothing."""
    shown, total = len(state.rows), state.total
    waits = any(not host.heard_at and not host.problem for host in state.hosts.values())
    count = f"{total} session{'' if total == 1 else 's'}"
    asking = state.counts().get("needs_you", 0)
    parts = ["tiller", f"{shown} of {count}" if state.filter.words else count]
    parts += [f"filter: {one_line(state.filter.text)}"] if state.filter.words else []
    parts += [f"{asking} need{'s' if asking == 1 else ''} you"] if asking else []
    parts += ["asking for the sessions …"] if waits else []
    rows = [theme.bold(cut(" · ".join(parts), width))]
    for label, host in state.hosts.items():
        if host.is_stale(now) and (host.heard_at or host.problem):
            silence = f"has said nothing for {age(now - host.heard_at)}"
            since = silence if host.heard_at else "can't be reached"
            name = label or "this machine"
            why = f": {host.problem}" if host.problem else ""
            rows.append(theme.asking(cut(f"! {name} {since}{why}", width)))
    return rows


def detail_rows(row: Row, now: float, width: int, theme: Theme) -> list[str]:
    """The rows with what else there is to know about the chosen session."""
    session = row.session
    plan = f"plan {session.plan_done}/{session.plan_size}" if session.plan_size else ""
    used = context(session)
    facts = (
        row.key.short,
        changes(session),
        plan,
        f"context {used}" if used else "",
        cost(session),
        f"{session.queued} queued" if session.queued else "",
        f"last event {age(now - session.updated_at)} ago",
        fork_line(session),
    )
    where = " · ".join(filter(None, (one_line(session.workspace), branch(session))))
    # The title is here in full, and what the row may have no room for: worktree and activity.
    worktree = one_line(session.worktree) if width < BRANCH_FROM else ""
    about = " · ".join(filter(None, (one_line(session.title), worktree, activity(row))))
    return [
        cut(about, width),
        theme.dim(cut(where, width)),
        theme.dim(cut(" · ".join(filter(None, facts)), width)),
    ]


def listed_rows(
    state: BoardState, now: float, width: int, height: int, theme: Theme
) -> tuple[list[str], int]:
    """As much of the list as there is room for, and the position of the chosen row in it.

    The sessions that have needed the user for longest stay in sight. Only rows that are shown are
    rendered, so the number of sessions hardly matters.
    """
    counts = state.counts()
    if state.row is None:
        return [], 0
    asking = counts.get("needs_you", 0)
    kept = min(asking, height // KEPT_SHARE)
    if not kept or state.row.group == "needs_you" or _lines_of(counts) <= height:
        return _part(state, counts, 0, state.at, now, (width, height), theme)
    first: dict[Group, int] = {"needs_you": counts.pop("needs_you")}
    above, _ = _part(state, first, 0, 0, now, (width, kept + 1), theme)
    room = height - len(above) - 1
    below, line = _part(state, counts, asking, state.at, now, (width, room), theme)
    return [*above, "", *below], len(above) + 1 + line


def _lines_of(counts: Mapping[Group, int]) -> int:
    """The rows of groups: each has a heading, and a blank row before it unless it is the first."""
    return sum(counts.values()) + 2 * len(counts) - 1


def _part(
    state: BoardState,
    counts: Mapping[Group, int],
    begun: int,
    chosen: int,
    now: float,
    size: tuple[int, int],
    theme: Theme,
) -> tuple[list[str], int]:
    """As much of consecutive groups as there is room for, and the chosen row's position in it.

    The groups have the rows from `begun` on; `chosen` is one of them.
    """
    rows, (width, height) = state.rows, size
    columns = columns_for(width, state.longest)
    before: dict[Group, int] = {}
    for number, group in enumerate(counts):
        before[group] = 2 * number + 1 - begun
    line = chosen + before[rows[chosen].group]
    total = _lines_of(counts)
    top = max(0, min(line - height // 2, total - height))
    shown: list[str] = []
    for group, count in counts.items():
        heading = begun + before[group] - 1
        if heading > top and top <= heading - 1 < top + height:
            shown.append("")
        if top <= heading < top + height:
            shown.append(heading_row(group, count, width, theme))
        first = max(begun, top - before[group])
        for at in range(first, min(begun + count, top + height - before[group])):
            stale = state.hosts[rows[at].key.host].is_stale(now)
            shown.append(
                session_row(rows[at], columns, now, theme, chosen=at == state.at, stale=stale)
            )
        if heading < top < heading + count and height > 1:
            shown[0] = heading_row(group, count, width, theme)  # it stays in sight
        begun += count
    return shown, line - top
