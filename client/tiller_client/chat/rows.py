"""Renders the parts around the conversation as rows: heading, queue, answers, editor; pure.

All text in them is safe, and no row is wider than the terminal.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tiller_client.chat.asking import Asking, choices
from tiller_client.rendering.labels import input_line
from tiller_client.rendering.layout import text_rows
from tiller_client.rendering.lines import fork_line
from tiller_client.rendering.requests import title_line
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells, cut, one_line, pad, sanitized
from tiller_protocol.items import Request
from tiller_protocol.snapshot import QueuedInput, Snapshot, is_working, plain

if TYPE_CHECKING:
    from prompt_toolkit.buffer import CompletionState

    from tiller_client.chat.attaching import Named

PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
GOES_ON = "  "
EDITOR_ROWS_MAX = 12
"""Maximum number of rows to show of the editor's text, around the cursor."""

COMPLETIONS_SHOWN = 8
CHIPS_SHOWN = 5
QUEUED_SHOWN = 5

NAME_COLUMNS = 24
"""Width of the column with keys or commands in explanations."""

CHOSEN = "▸"
"""Marks the chosen row."""

PLANNER = "plan"
"""The agent that ends its turns with a plan."""

ENTER = "  (Enter)"
"""The mark after the answer that Enter gives."""

HELP_HINT = "/help for keys · Enter sends · Ctrl-D leaves"


class EditorRows(NamedTuple):
    """The rows of the editor, without colours, and the cursor's position in them."""

    rows: list[str]
    cursor: tuple[int, int]


def heading_rows(snapshot: Snapshot, width: int, theme: Theme) -> list[str]:
    """The heading, which names the session."""
    title = one_line(snapshot.title) or "new session"
    parts = ["tiller", title, fork_line(snapshot), one_line(snapshot.workspace)]
    line = " · ".join(filter(None, parts))
    return [theme.bold(cut(line, width)), theme.dim(cut(HELP_HINT, width))]


def queue_rows(queue: Sequence[QueuedInput], width: int, theme: Theme) -> list[str]:
    """The queued inputs."""
    rows = [
        cut(f"  ◷ {'steers' if one.delivery == 'steer' else 'queued'}: {input_line(one)}", width)
        for one in queue
    ]
    more = [f"  … {len(rows) - QUEUED_SHOWN} more"] if len(rows) > QUEUED_SHOWN else []
    return [theme.dim(row) for row in [*rows[:QUEUED_SHOWN], *more]]


def answer_rows(
    asking: Asking, request: Request, others: int, how_to: str, width: int, theme: Theme
) -> list[str]:
    """The answers to a request; `others` is the number of other open requests."""
    head = f"? {one_line(title_line(request))}" + (f"  (and {others} more)" if others else "")
    rows = [theme.asking(cut(head, width))]
    for choice in choices(request):
        chosen = choice in (asking.chosen, asking.typing)
        row = cut(
            f"{CHOSEN if chosen else ' '} {choice.key}  {one_line(plain(choice.label))}", width
        )
        rows.append(theme.bold(cut(row, width - len(ENTER)) + ENTER) if chosen else row)
    rows.append(theme.dim(cut(f"  {how_to}", width)))
    return rows


def explained_rows(
    title: str, explained: Iterable[tuple[str, str]], width: int, theme: Theme
) -> list[str]:
    """Names in a column, with their meanings beside them; a long name has a row of its own."""
    column = min(NAME_COLUMNS, width // 2)
    rows = [theme.bold(title)]
    for name, text in explained:
        name = GOES_ON + one_line(name)
        if cells(name) > column - len(GOES_ON):
            rows.append(cut(name, width))
            name = ""
        for row in text_rows(one_line(text), width - column):
            rows.append(pad(name, column) + row)
            name = ""
    return rows


def how_to_answer(asking: Asking, now: float, *, editor_is_empty: bool) -> str:
    """The hint on how to answer; `now` is a time of the clock used for `Asking.seen`."""
    if asking.typing is not None:
        return "type it, then Enter; Esc: back"
    if not editor_is_empty:
        return (
            "Enter answers with your text"
            if asking.takes_text
            else "to answer, first send what you are writing, or clear it with Ctrl-C"
        )
    if not asking.takes_keys(now, editor_is_empty=True):
        return "…"
    if asking.request is None or asking.request.kind != "question":
        return "a letter chooses, Enter answers"
    chooses = "a number chooses; or " if asking.request.choices else ""
    return f"{chooses}type your answer; Enter answers"


def completion_rows(state: "CompletionState | None", width: int, theme: Theme) -> list[str]:
    """The completions of the word before the cursor."""
    if state is None or not state.completions:
        return []
    at = state.complete_index or 0  # Enter takes the first one if none was chosen
    first = max(0, min(at - COMPLETIONS_SHOWN // 2, len(state.completions) - COMPLETIONS_SHOWN))
    shown = state.completions[first : first + COMPLETIONS_SHOWN]
    column = min(max(cells(one_line(one.display_text)) for one in shown), width // 2)
    rows: list[str] = []
    for number, one in enumerate(shown, first):
        name, detail = one_line(one.display_text), one_line(one.display_meta_text)
        row = cut(GOES_ON + (f"{pad(name, column)}  {detail}" if detail else name), width)
        rows.append(theme.bold(row) if number == at else theme.dim(row))
    if (left := len(state.completions) - first - len(shown)) > 0:
        rows.append(theme.dim(f"{GOES_ON}… {left} more"))
    return rows


def chip_rows(images: "Iterable[Named]", width: int, theme: Theme) -> list[str]:
    """The images that will be sent with the text, and those that do not exist."""
    chips = [
        (theme.dim if one.exists else theme.asking)(
            cut(f"  [{'image' if one.exists else 'no such file'}: {one_line(one.name)}]", width)
        )
        for one in images
    ]
    more = [theme.dim(f"  … {len(chips) - CHIPS_SHOWN} more")] if len(chips) > CHIPS_SHOWN else []
    return [*chips[:CHIPS_SHOWN], *more]


def hint(snapshot: Snapshot, asking: Asking) -> str:
    """The hint in an empty editor."""
    if asking.typing is not None:
        is_reason = asking.typing.decision == "reject"
        return "the reason, then Enter" if is_reason else "your answer, then Enter"
    if asking.request is not None:
        return ""
    if is_working(snapshot):
        return "steer with Enter, queue with Tab"
    if has_plan(snapshot):
        return "write a message, or carry out the plan with Alt-G"
    goes_on = snapshot.queue or snapshot.last_outcome not in (None, "completed")
    return "write a message" + (", or /continue" if goes_on else "")


def has_plan(snapshot: Snapshot) -> bool:
    """Whether the last turn has ended with a plan that can be carried out."""
    made = not is_working(snapshot) and snapshot.last_outcome == "completed"
    return made and snapshot.marks[-1:] != [] and snapshot.marks[-1].agent == PLANNER


def editor_rows(text: str, position: int, width: int) -> EditorRows:
    """Break a text into rows after the prompt; `position` is the cursor's place in characters."""
    found = places(text, width)
    rows = [""] * (found[-1][0] + 1)
    for character, (row, _) in zip(text, found, strict=False):
        rows[row] += "" if character == "\n" else _shown(character)
    cursor = found[position]
    first = min(max(0, cursor[0] - EDITOR_ROWS_MAX + 1), max(0, len(rows) - EDITOR_ROWS_MAX))
    seen = rows[first : first + EDITOR_ROWS_MAX]
    marked = [(PROMPT if first + n == 0 else GOES_ON) + row for n, row in enumerate(seen)]
    return EditorRows(marked, (cursor[0] - first, cursor[1] + cells(PROMPT)))


def places(text: str, width: int) -> list[tuple[int, int]]:
    """The row and column of each character in the editor, and of the place after the last one.

    Rows are broken between words; a word longer than a row is broken anywhere.
    """
    columns = max(1, width - cells(PROMPT) - 1)
    found: list[tuple[int, int]] = []
    row = used = word = 0
    for at, character in enumerate(text):
        size = cells(_shown(character))
        # A blank at the end of a row may stand in the column that is left free for the cursor.
        if character != "\n" and used + size > columns + (character == " "):
            begin = word if character != " " and found[word:at] and found[word][1] else at
            row, used = row + 1, 0
            for moved in range(begin, at):
                found[moved] = (row, used)
                used += cells(_shown(text[moved]))
        found.append((row, used))
        used += size
        if character == "\n":
            row, used = row + 1, 0
        if character in "\n " or size > 1:
            word = at + 1
    return [*found, (row, used)]


def _shown(character: str) -> str:
    return "    " if character == "\t" else sanitized(character)
