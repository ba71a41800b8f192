"""Splits the bytes of a text file into lines, and joins them; unchanged lines keep their bytes.

Pure. The encoding, the line ends, and a missing line end at the end of the file stay as they are.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tiller_daemon.tools.encoding import Encoding, decode_text, encode_text

NUMBERS_SHOWN_MAX: Final = 10


class Line(NamedTuple):
    """A line and its line end; a last line without one gets the line end of the line before."""

    text: str
    end: str


class Text(NamedTuple):
    """The lines of a file, its encoding, and whether the file ends with a line end."""

    encoding: Encoding
    lines: list[Line]
    is_ended: bool


def split_lines(data: bytes) -> Text:
    """Return the lines of a file. Raises `EncodingProblem`."""
    text, encoding = decode_text(data)
    parts = text.split("\n")
    last = parts.pop()
    lines = [
        Line(part.removesuffix("\r"), "\r\n" if part.endswith("\r") else "\n") for part in parts
    ]
    if last:
        lines.append(Line(last, lines[-1].end if lines else "\n"))
    return Text(encoding, lines, not last)


def join_lines(text: Text, lines: Sequence[Line]) -> bytes:
    """Return the bytes of the file `text` with `lines` in place of its own.

    Raises `EncodingProblem` for a character that the encoding of the file lacks.
    """
    joined = "".join(line + end for line, end in lines)
    if lines and not text.is_ended:
        joined = joined.removesuffix(lines[-1].end)
    return encode_text(joined, text.encoding)


def line_end_at(lines: Sequence[Line], place: int) -> str:
    """Return the line end of the line at `place`, or of the last line if `place` is after it."""
    return lines[min(place, len(lines) - 1)].end if lines else "\n"


def listed_numbers(numbers: Sequence[int]) -> str:
    """Return the first line numbers, for a message."""
    more = ", ..." if len(numbers) > NUMBERS_SHOWN_MAX else ""
    return f"{', '.join(map(str, numbers[:NUMBERS_SHOWN_MAX]))}{more}"
