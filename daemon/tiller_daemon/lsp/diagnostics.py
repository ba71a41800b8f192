"""Formats diagnostics as text, and finds the errors that a change has caused. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tiller_daemon.lsp.messages import ERROR, Diagnostic

SHOWN_MAX: Final = 20
"""Maximum number of diagnostics reported per file: enough to see what a change broke."""

MESSAGE_CHARS_MAX: Final = 300
"""Longer messages are cut, because type checkers print complete types."""

_NAMES: Final = {1: "error", 2: "warning", 3: "note", 4: "hint"}


def new_errors(
    before: Iterable[Diagnostic], text_before: str, after: Iterable[Diagnostic], text: str
) -> list[Diagnostic]:
    """Return the errors that were not there before. An error whose line has only moved is not new.

    Two errors are the same if both their messages and the texts of their lines are equal.
    Therefore an error on a changed line counts as new.
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
    """Return one line per diagnostic, by position. Beyond `SHOWN_MAX`, drop the least severe."""
    worst = sorted(diagnostics, key=lambda one: one.severity)[:SHOWN_MAX]
    by_position = sorted(worst, key=lambda one: (one.range.start.line, one.range.start.character))
    lines = [_line(one) for one in by_position]
    if len(diagnostics) > SHOWN_MAX:
        lines.append(f"  … {len(diagnostics) - SHOWN_MAX} more")
    return "\n".join(lines)


def _mark(one: Diagnostic, lines: Sequence[str]) -> tuple[str, str]:
    number = one.range.start.line
    # Stripped, so that a change of indentation alone does not make an error new.
    return one.message, lines[number].strip() if 0 <= number < len(lines) else ""


def _line(one: Diagnostic) -> str:
    place = f"{one.range.start.line + 1}:{one.range.start.character + 1}"
    message = " ".join(one.message.split())
    if len(message) > MESSAGE_CHARS_MAX:
        message = message[: MESSAGE_CHARS_MAX - 1] + "…"
    code = f" ({one.code})" if one.code else ""
    return f"  {place} {_NAMES.get(one.severity, 'error')}: {message}{code}"
