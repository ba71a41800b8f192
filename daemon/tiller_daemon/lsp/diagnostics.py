"""What is wrong in a file as text: all of it, or only what was not there before a change. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tiller_daemon.lsp.messages import ERROR, Diagnostic

SHOWN_MAX: Final = 20
"""How many diagnostics of a file are told: a change that breaks more is understood from those."""

MESSAGE_CHARS_MAX: Final = 300
"""How long one may be; type checkers print whole types."""

_NAMES: Final = {1: "error", 2: "warning", 3: "note", 4: "hint"}


def new_errors(
    before: Iterable[Diagnostic], text_before: str, after: Iterable[Diagnostic], text: str
) -> list[Diagnostic]:
    """The errors that were not there before, wherever their lines have moved.

    One is the same if its message and its line are; on a line that was changed it is new.
    """
    lines_before, lines = text_before.splitlines(), text.splitlines()
    known = Counter(_mark(one, lines_before) for one in before if one.severity == ERROR)
    new: list[Diagnostic] = []
    for one in after:
        if one.severity != ERROR:
            continue
        mark = _mark(one, lines)
        if known[mark]:
            known[mark] -= 1
        else:
            new.append(one)
    return new


def format_diagnostics(diagnostics: Sequence[Diagnostic]) -> str:
    """One line for each, by place, up to `SHOWN_MAX`; errors come before the rest."""
    worst = sorted(diagnostics, key=lambda one: one.severity)[:SHOWN_MAX]
    by_position = sorted(worst, key=lambda one: (one.range.start.line, one.range.start.character))
    lines = [_line(one) for one in by_position]
    if len(diagnostics) > SHOWN_MAX:
        lines.append(f"  … {len(diagnostics) - SHOWN_MAX} more")
    return "\n".join(lines)


def _mark(one: Diagnostic, lines: Sequence[str]) -> tuple[str, str]:
    number = one.range.start.line
    return one.message, lines[number].strip() if 0 <= number < len(lines) else ""


def _line(one: Diagnostic) -> str:
    place = f"{one.range.start.line + 1}:{one.range.start.character + 1}"
    said = " ".join(one.message.split())
    if len(said) > MESSAGE_CHARS_MAX:
        said = said[: MESSAGE_CHARS_MAX - 1] + "…"
    code = f" ({one.code})" if one.code else ""
    return f"  {place} {_NAMES.get(one.severity, 'error')}: {said}{code}"
