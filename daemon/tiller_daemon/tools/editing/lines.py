"""The bytes of a text file as lines, and back: what is not changed stays to the byte.

Pure. The encoding (`encoding`), line ends and a missing last one are kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tiller_daemon.tools.encoding import Encoding, decode_text, encode_text


class Line(NamedTuple):
    """A line and how it ends. The last one of a file, too, has an end: that of the one before."""

    text: str
    end: str


class Text(NamedTuple):
    """A file's lines, how it is written, and whether the last one has its end in the file."""

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
    """Return the bytes of a file that has `lines` now and was `text`.

    Raises `EncodingProblem` for a character that its encoding has not.
    """
    joined = "".join(line + end for line, end in lines)
    if lines and not text.is_ended:
        joined = joined.removesuffix(lines[-1].end)
    return encode_text(joined, text.encoding)


def line_end_at(lines: Sequence[Line], place: int) -> str:
    """How lines end at this place: like the one there, else like the last."""
    return lines[min(place, len(lines) - 1)].end if lines else "\n"
