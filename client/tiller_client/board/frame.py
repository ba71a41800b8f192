"""Composes the whole window of a board; pure."""

from collections.abc import Sequence
from typing import NamedTuple

from tiller_client.board.rows import detail_rows, listed_rows, top_rows
from tiller_client.board.state import BoardState, Typing, View
from tiller_client.chat.rows import answer_rows, editor_rows, how_to_answer
from tiller_client.chat.terminal.painter import Frame
from tiller_client.program_name import program
from tiller_client.rendering.layout import text_rows
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells, cut, one_line

HINTS = (
    "Enter opens", "a answers", "s writes", "i interrupts", "o goes on", "d diff", "m seen",
    "x archives", "c new", "n next", "/ filter", "? keys", "q leaves",
)  # fmt: skip
"""The keys that the last row names, as many as fit; `KEYS_FIRST` are always there."""

KEYS_FIRST = ("? keys", "q leaves")

TEXT_FROM, DETAILS_FROM = 14, 30
"""The heights from which on a window shows a line, and all lines, about the chosen session."""

NOTE_ROWS_MAX = 4


class Drawn(NamedTuple):
    """A window, and which request it has shown whole."""

    frame: Frame
    asked: str = ""
    """The id of the request whose whole text was in the window, in this frame or earlier ones."""


def compose(
    state: BoardState, size: tuple[int, int], now: float, steady: float, theme: Theme
) -> Drawn:
    """Compose the window for a terminal of `size` (columns, rows).

    `now` is in Unix seconds, `steady` is a time of the clock used for `Asking.seen`.
    """
    width, height = size[0] - 1, size[1]
    if state.view is not None:
        return _reading(state, state.view, width, height, steady, theme)
    top = top_rows(state, now, width, theme)
    bottom, cursor = _bottom(state, width, height, now, theme)
    room = max(1, height - len(top) - len(bottom))
    listed, chosen = listed_rows(state, now, width, room, theme)
    if not listed:
        listed = [theme.dim(row) for row in text_rows(_empty(state), width)][:room]
    blank = [""] * (room - len(listed))
    rows = [*top, *listed, *blank, *bottom][:height]
    place = len(top) + chosen
    if cursor is not None:
        return Drawn(Frame(rows, (height - len(bottom) + cursor[0], cursor[1])))
    return Drawn(Frame(rows, (min(place, height - 1), 0)))


def _empty(state: BoardState) -> str:
    if state.filter.words:
        return "no session matches the filter; Esc shows all"
    if all(host.heard_at for host in state.hosts.values()):
        here = "c starts one here, or: " if state.here else "start one with: "
        return f"there are no sessions; {here}{program()} exec PROMPT"
    return ""


def _bottom(
    state: BoardState, width: int, height: int, now: float, theme: Theme
) -> tuple[list[str], tuple[int, int] | None]:
    """The rows below the list, and the cursor's place in them if the user types."""
    rows = [""]
    if state.row is not None and height >= TEXT_FROM and state.typing is None:
        details = detail_rows(state.row, now, width, theme)
        rows += details[: None if height >= DETAILS_FROM else 1]
        rows += [""] if height >= DETAILS_FROM else []
    said = text_rows(state.said, width)[:NOTE_ROWS_MAX] if state.said else []
    if state.typing is not None:
        typed, cursor = _typed(state.typing, state.here, width, theme)
        return [*rows, *said, *typed], (cursor[0] + 1 + len(said), cursor[1])
    if said:
        return [*rows, *said], None
    return [*rows, theme.dim(_hints(width))], None


def _hints(width: int) -> str:
    left = width - cells(" · ".join(("", *KEYS_FIRST)))
    fitting: list[str] = []
    for hint in HINTS:
        if hint in KEYS_FIRST:
            continue
        if cells(" · ".join((*fitting, hint))) > left:
            break
        fitting.append(hint)
    return cut(" · ".join((*fitting, *KEYS_FIRST)), width)


def _typed(
    typing: Typing, here: str, width: int, theme: Theme
) -> tuple[list[str], tuple[int, int]]:
    """The rows of the text that the user types, below a title, and the cursor's place in them."""
    name = typing.row.name if typing.row else ""
    match typing.purpose:
        case "filter":
            title = "filter: Enter keeps it, Esc ends it · words, repo:NAME, host:NAME, group:NAME"
        case "new" | "worktree":
            where = one_line(typing.place(here))
            what = "new session" if typing.purpose == "new" else "new session in a worktree"
            title = f"{what}: Enter starts it, or opens a chat without a text · {where}"
        case "answer":
            title = f"your answer, then Enter; Esc: back · {name}"
        case "reason":
            title = f"the reason, then Enter; Esc: back · {name}"
        case "message":
            working = typing.row is not None and typing.row.session.status != "idle"
            how = "Enter steers, Tab queues" if working else "Enter starts a turn"
            title = f"message: {how}; Esc: back · {name}"
    shown = editor_rows(typing.line.text, typing.line.at, width)
    cursor = (shown.cursor[0] + 1, shown.cursor[1])
    return [theme.asking(cut(title, width)), *shown.rows], cursor


def _reading(
    state: BoardState, view: View, width: int, height: int, steady: float, theme: Theme
) -> Drawn:
    """The window with a text in place of the list."""
    lines = view.lines(width, theme)
    bottom: Sequence[str] = [theme.dim(cut("↑↓ PgUp PgDn scroll · Esc: back", width))]
    typed: list[str] = []
    cursor = 0, 0
    request = state.asking.request if view.request_id else None
    if request is not None:
        how = _how(state, view, steady)
        others = max(0, len(state.requests_of(view)) - 1)
        bottom = answer_rows(state.asking, request, others, how, width, theme)
    if state.typing is not None:
        typed, cursor = _typed(state.typing, state.here, width, theme)
        bottom = [*bottom, *typed]
    bottom = ["", *bottom][-(height - 2) :]
    room = max(1, height - 1 - len(bottom))
    shown = view.window(lines, width, room)
    more = len(lines) - view.top - len(shown)
    title = view.title + (f" · {more} more lines below" if more else "")
    rows = [theme.bold(cut(title, width)), *shown, *bottom]
    if typed:
        cursor = len(rows) - len(typed) + cursor[0], cursor[1]
    rows += [""] * (height - len(rows))
    asked = view.request_id if view.is_read else ""
    return Drawn(Frame(rows[:height], cursor), asked)


def _how(state: BoardState, view: View, steady: float) -> str:
    """How to answer, or that there is more to read first."""
    if state.typing is not None:
        return ""
    if not view.is_read:
        return "to answer, first read all of it: PgDn"
    return how_to_answer(state.asking, steady, editor_is_empty=True)
