"""Truncates text for a model to its beginning and end, with a note between them. Pure.

`processes.capture` keeps the complete output of a command.
"""

from typing import Final

LINES_MAX: Final = 2000
BYTES_MAX: Final = 50 * 1024
"""`LINES_MAX` and `BYTES_MAX` (of UTF-8) limit a result for a model to some 12,000 tokens, as much
as other coding agents allow."""

CHARACTER_BYTES_MAX: Final = 4


def truncate(text: str, *, where: str = "") -> str:
    """Return `text`, or its beginning and end within `LINES_MAX` and `BYTES_MAX`.

    `where` is a clause that names the place of the complete text.
    """
    size_bytes = len(text.encode())
    return truncate_parts(text, "", lines=text.count("\n"), size_bytes=size_bytes, where=where)


def truncate_parts(head: str, tail: str, *, lines: int, size_bytes: int, where: str = "") -> str:
    """Truncate a text of which only both ends are known; without a `tail`, `head` is all the text.

    `lines` and `size_bytes` count the complete text.
    """
    if not tail and fits(head):
        return head
    bytes_max = (BYTES_MAX - len(_note(lines, size_bytes, where).encode())) // 2
    lines_max = (LINES_MAX - 3) // 2
    first = _beginning(head, lines_max, bytes_max)
    last = _end(tail or head, lines_max, bytes_max)
    lines_out = lines - first.count("\n") - last.count("\n")
    bytes_out = size_bytes - len(first.encode()) - len(last.encode())
    return first + _note(max(lines_out, 0), max(bytes_out, 0), where) + last


def fits(text: str) -> bool:
    """Whether `text` needs no truncation."""
    return text.count("\n") <= LINES_MAX and len(text.encode()) <= BYTES_MAX


def _note(lines: int, size_bytes: int, where: str) -> str:
    place = f"; {where}" if where else ""
    return f"\n[... {lines} lines, {size_bytes} bytes left out here{place} ...]\n"


def _beginning(text: str, lines: int, size_bytes: int) -> str:
    parts = text.split("\n", lines)
    by_lines = text if len(parts) <= lines else text[: len(text) - len(parts[-1])]
    if len(by_lines) * CHARACTER_BYTES_MAX <= size_bytes:
        return by_lines
    # The cut may split a character; its bytes are dropped.
    return by_lines.encode()[:size_bytes].decode(errors="ignore")


def _end(text: str, lines: int, size_bytes: int) -> str:
    parts = text.rsplit("\n", lines)
    by_lines = text if len(parts) <= lines else text[len(parts[0]) + 1 :]
    if len(by_lines) * CHARACTER_BYTES_MAX <= size_bytes:
        return by_lines
    return by_lines.encode()[-size_bytes:].decode(errors="ignore")
