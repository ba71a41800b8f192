"""Cutting text to what a model can use: its beginning, its end, and a sentence between them.

Pure. Where the whole of a command's output is kept is up to `processes.capture`.
"""

from typing import Final

LINES_MAX: Final = 2000
BYTES_MAX: Final = 50 * 1024
"""What one result may take of a model's window, in lines and in bytes of UTF-8: some 12,000
tokens, as the agents of the field have it."""

CHARACTER_BYTES_MAX: Final = 4


def truncate(text: str, *, where: str = "") -> str:
    """Return `text`, or its beginning and end within `LINES_MAX` and `BYTES_MAX`.

    `where` says in half a sentence where the whole is.
    """
    size_bytes = len(text.encode())
    return truncate_parts(text, "", lines=text.count("\n"), size_bytes=size_bytes, where=where)


def truncate_parts(head: str, tail: str, *, lines: int, size_bytes: int, where: str = "") -> str:
    """Cut what is known by its beginning and its end; `head` is all of it if `tail` is empty.

    `lines` and `size_bytes` count the whole, of which the parts may be only the ends.
    """
    if not tail and fits(head):
        return head
    room_bytes = (BYTES_MAX - len(_note(lines, size_bytes, where).encode())) // 2
    room_lines = (LINES_MAX - 3) // 2
    first = _beginning(head, room_lines, room_bytes)
    last = _end(tail or head, room_lines, room_bytes)
    lines_out = lines - first.count("\n") - last.count("\n")
    bytes_out = size_bytes - len(first.encode()) - len(last.encode())
    return first + _note(max(lines_out, 0), max(bytes_out, 0), where) + last


def fits(text: str) -> bool:
    """Whether `text` can be given to a model as it is."""
    return text.count("\n") <= LINES_MAX and len(text.encode()) <= BYTES_MAX


def _note(lines: int, size_bytes: int, where: str) -> str:
    told = f"; {where}" if where else ""
    return f"\n[... {lines} lines, {size_bytes} bytes left out here{told} ...]\n"


def _beginning(text: str, lines: int, size_bytes: int) -> str:
    by_lines = text[: _after_line(text, lines)]
    if len(by_lines) * CHARACTER_BYTES_MAX <= size_bytes:
        return by_lines
    # Only whole characters are kept: the bytes of one that was cut in two are dropped.
    return by_lines.encode()[:size_bytes].decode(errors="ignore")


def _end(text: str, lines: int, size_bytes: int) -> str:
    by_lines = text[_before_line(text, lines) :]
    if len(by_lines) * CHARACTER_BYTES_MAX <= size_bytes:
        return by_lines
    return by_lines.encode()[-size_bytes:].decode(errors="ignore")


def _after_line(text: str, lines: int) -> int:
    """Return the place behind line number `lines`, or the end."""
    place = 0
    for _ in range(lines):
        place = text.find("\n", place) + 1
        if not place:
            return len(text)
    return place


def _before_line(text: str, lines: int) -> int:
    """Return the place before the last `lines` line ends and what follows them, or 0."""
    place = len(text)
    for _ in range(lines):
        place = text.rfind("\n", 0, place)
        if place < 0:
            return 0
    return place + 1
