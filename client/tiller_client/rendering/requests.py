"""Renders requests as text; pure.

Commands, paths and diffs are shown completely and verbatim. Each row has a margin, so that no text
can pretend to be a line of tiller's own.
"""

from collections.abc import Callable
from functools import partial

from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import rows, sanitized, verbatim
from tiller_client.rendering.wrap import wrapped
from tiller_protocol.items import DetailKind, Request
from tiller_protocol.snapshot import plain

MARGIN = "    "
MARGIN_GOES_ON = "  ↳ "
"""Marks a row that continues the line above, unlike a new line, which may be another command."""

MARGIN_SUBJECT = "  · "

TEXT_COLUMNS_MIN = 8
"""Minimum columns of a row after the margin, however narrow the terminal is."""

TITLE_CHARS_MIN = 20
"""Fewer characters at the end of a title, which also begin a text, may do so by chance."""

ROWS_AT_ONCE = 20
"""Rows of a request that a terminal of 24 lines shows above the prompt."""


def title_line(request: Request) -> str:
    """The title of a request, without the marks of Markdown in a question of the model."""
    return plain(request.title) if request.kind == "question" else request.title


def request_block(request: Request, theme: Theme, width: int) -> str:
    """Render a whole request for a terminal that scrolls."""
    text = request_text(request, theme, width)
    count = text.count("\n") + 1
    if count > ROWS_AT_ONCE:
        text += "\n" + theme.asking(f"  ↑ {count} lines: scroll up to see all of them")
    return text


def request_text(request: Request, theme: Theme, width: int) -> str:
    """Render a whole request. Nothing is cut, so that the user can't allow something unseen."""
    shown = partial(_prose, width=width) if request.kind == "question" else verbatim
    whole = _whole_text(request)
    if whole or request.kind == "question":
        title = shown(whole or request.title)
    else:
        title = row(verbatim(_heading(request))) or request.kind
    parts = [theme.asking(_marked("? ", title, width))]
    if request.also:
        names = ", ".join(row(verbatim(one)) for one in (request.permission, *request.also))
        parts.append(theme.asking(_marked("! ", f"needs several permissions: {names}", width)))
    parts += [_marked(MARGIN_SUBJECT, shown(text), width) for text in other_subjects(request)]
    if request.detail and not whole and not _is_in_title(request, request.detail):
        parts.append(_detail(request.detail, request.detail_kind, shown, theme, width))
    if request.always:
        patterns = ", ".join(row(verbatim(one)) for one in request.always)
        grants = [f"“always” allows {row(verbatim(request.permission))}: {patterns}"]
        if request.always_here:
            place = row(verbatim(request.always_here))
            about = f"“always here” allows it in every session of {place}"
            grants.append(wrapped(about, _text_columns(width)))
        parts += [theme.dim(block(grant, width)) for grant in grants]
    parts += [
        block(shown(f"{number}. {row(verbatim(choice))}"), width)
        for number, choice in enumerate(request.choices, 1)
    ]
    return "\n".join(parts)


def _whole_text(request: Request) -> str:
    """The title with the rest of the text whose beginning it is; empty if there is none."""
    title = request.title.removesuffix("…")
    flat = " ".join(request.detail.split())
    if flat and request.detail_kind == "text":
        for at in range(max(1, len(title) - TITLE_CHARS_MIN)):
            if flat.startswith(title[at:]) and f" {title}"[at] == " ":
                return title[:at] + request.detail
    return ""


def _heading(request: Request) -> str:
    """The title, without a command that is not as it is there: it is shown whole below."""
    title = request.title.removesuffix("...")
    if request.detail_kind != "command" or _is_in_title(request, request.detail):
        return request.title
    command = " ".join(request.detail.split())
    is_cut = title != request.title
    starts = (
        at
        for at in range(len(title))
        if f" {title}"[at] == " "
        and (command.startswith(title[at:]) if is_cut else command == title[at:])
    )
    about = title[: next(starts, 0)].rstrip(" :")
    return f"{about} a command" if about == "Run" else about or request.title


def block(text: str, width: int) -> str:
    """Break a sanitized text into rows of at most `width` columns, each with a margin."""
    shown: list[str] = []
    for line in text.split("\n"):
        first, *rest = rows(line, _text_columns(width))
        shown += [MARGIN + first, *(MARGIN_GOES_ON + row for row in rest)]
    return "\n".join(shown)


def other_subjects(request: Request) -> list[str]:
    """The subjects that are shown neither in the title nor in the detail."""
    return [
        subject
        for subject in request.subjects
        if subject not in ("", request.detail) and not _is_in_title(request, subject)
    ]


def _is_in_title(request: Request, text: str) -> bool:
    """Whether the title ends with exactly this text, so that it need not be shown again."""
    return f" {request.title}".endswith(f" {text}")


def _detail(
    detail: str, kind: DetailKind, shown: Callable[[str], str], theme: Theme, width: int
) -> str:
    match kind:
        case "text" | "command":
            return block(shown(detail), width)
        case "diff":
            lines = detail.removesuffix("\n").split("\n")
            return "\n".join(_diff_line(line, shown, theme, width) for line in lines)


def _diff_line(line: str, shown: Callable[[str], str], theme: Theme, width: int) -> str:
    # The mark is not part of the file's line, so a blank mark is not a trailing space.
    marks = 1 if line[:1] in ("+", "-", " ") else 0
    text = block(line[:marks] + shown(line[marks:]), width)
    return theme.painted(text, {"+": "good", "-": "bad"}.get(line[:1], "muted"))


def _marked(mark: str, text: str, width: int) -> str:
    """Make a block, with `mark` in place of the first margin."""
    return mark + block(text, width).removeprefix(MARGIN)


def _text_columns(width: int) -> int:
    return max(width - 1 - len(MARGIN), TEXT_COLUMNS_MIN)


def _prose(text: str, width: int) -> str:
    """Wrap the model's question between words."""
    return wrapped(sanitized(plain(text)).expandtabs(4), _text_columns(width))


def row(text: str) -> str:
    """Join the lines of a verbatim text to one line."""
    return text.replace("\n", "␊")
