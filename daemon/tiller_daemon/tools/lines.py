"""The bytes of a text file as lines, and back: what is not changed stays to the byte.

Pure. A byte order mark, bytes that are no UTF-8, line ends and a missing last one are kept.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

_BYTE_ORDER_MARK: Final = "\ufeff"


class Line(NamedTuple):
    """A line and how it ends. The last one of a file, too, has an end: that of the one before."""

    text: str
    end: str


class Text(NamedTuple):
    """A file's lines, the mark before them, and whether the last one has its end in the file."""

    mark: str
    lines: list[Line]
    is_ended: bool


def split_text(data: bytes) -> Text:
    """Return the lines of a file; bytes that are no UTF-8 become surrogates."""
    text = data.decode(errors="surrogateescape")
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    parts = text[len(mark) :].split("\n")
    last = parts.pop()
    lines = [
        Line(part.removesuffix("\r"), "\r\n" if part.endswith("\r") else "\n") for part in parts
    ]
    if last:
        lines.append(Line(last, lines[-1].end if lines else "\n"))
    return Text(mark, lines, not last)


def join_text(text: Text, lines: Sequence[Line]) -> bytes:
    """Return the bytes of a file that has `lines` now and was `text`.

    Raises `UnicodeEncodeError` for surrogates that no file has.
    """
    joined = "".join(line + end for line, end in lines)
    if lines and not text.is_ended:
        joined = joined.removesuffix(lines[-1].end)
    return (text.mark + joined).encode(errors="surrogateescape")


def end_at(lines: Sequence[Line], place: int) -> str:
    """How lines end at this place: like the one there, else like the last."""
    return lines[min(place, len(lines) - 1)].end if lines else "\n"
