"""Replaces a piece of text in the bytes of a file; all other bytes stay as they are. Pure.

A line end in the model's text stands for the file's line end, LF or CRLF.
"""

import re
from typing import NamedTuple

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.editing.diff import unified_diff
from tiller_daemon.tools.editing.lines import listed_numbers
from tiller_daemon.tools.encoding import (
    decode_text,
    encode_text,
    printable_text,
    require_characters,
)
from tiller_daemon.tools.suggestions import show_lines, similar_lines
from tiller_daemon.tools.truncation import truncate

_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)


class MissingText(ToolFailure):
    """`old` is not in the file; `explain_missing` finds similar lines."""


class Substituted(NamedTuple):
    """The new bytes, and the numbers of the old lines where replacements begin."""

    data: bytes
    lines: tuple[int, ...]


def substitute(data: bytes, old: str, new: str, *, every: bool) -> Substituted:
    """Replace the only occurrence of `old` with `new`, or `every` occurrence.

    Raises `MissingText` if there is no occurrence, `ToolFailure` if there are several and `every`
    is False or if nothing would change, and `EncodingProblem`.
    """
    if not old:
        raise ToolFailure("`old` is empty. Give the text to replace, or use `write`.")
    for text, argument in ((old, "`old`"), (new, "`new`")):
        require_characters(text, argument)
    wanted, given = _plain(old), _plain(new)
    if wanted == given:
        raise ToolFailure("`old` and `new` are the same text: nothing would change.")
    text, encoding = decode_text(data)
    pattern = re.compile(r"\r?\n".join(re.escape(part) for part in wanted.split("\n")))
    matches = list(pattern.finditer(text))
    if not matches:
        raise MissingText("`old` was not found in the file.")
    lines = tuple(text.count("\n", 0, match.start()) + 1 for match in matches)
    # Unlike `finditer`, this finds a second occurrence that overlaps the first.
    second = pattern.search(text, matches[0].start() + 1)
    if second and not every:
        raise ToolFailure(_ambiguous(lines))
    in_crlf = given.replace("\n", "\r\n")
    replaced = pattern.sub(lambda match: in_crlf if _has_crlf(match) else given, text)
    return Substituted(encode_text(replaced, encoding), lines)


def explain_missing(data: bytes, old: str) -> str:
    """Return a message for the model if `old` is not in `data`: the most similar lines.

    Takes up to 0.2 s.
    """
    not_found = "`old` was not found in the file."
    if _NUMBERED.match(old):
        return f"{not_found} Leave out the line numbers that `read` puts before each line."
    plain = _plain(old).removesuffix("\n")
    near = similar_lines(plain, _plain(printable_text(decode_text(data).text)))
    if not near:
        return f"{not_found} Nothing in it is similar; read the file again."
    first = "\n".join(near[0][1])
    change = unified_diff(f"{plain}\n", f"{first}\n", "").split("\n", 2)[2]
    return (
        f"{not_found} The most similar lines are:\n{show_lines(near)}\n"
        "How `old` differs from the first of them (`-` is only in `old`, `+` only in the file):\n"
        f"{truncate(change)}"
    )


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _has_crlf(match: re.Match[str]) -> bool:
    """Whether the lines of the file around the match end in CRLF."""
    text = match.string
    inside = text.find("\n", match.start(), match.end())
    after = text.find("\n", match.end())
    end = next((place for place in (inside, after) if place >= 0), text.rfind("\n"))
    return end > 0 and text[end - 1 : end] == "\r"


def _ambiguous(lines: tuple[int, ...]) -> str:
    if len(lines) == 1:
        return f"`old` overlaps itself at line {lines[0]}. Add surrounding lines to make it unique."
    return (
        f"`old` occurs {len(lines)} times, at lines {listed_numbers(lines)}. Add surrounding lines "
        "to make it unique, or set `all` to replace every occurrence."
    )
