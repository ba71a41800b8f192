r"""The globs of permission rules. Pure.

`*` matches any text, including slashes and the empty text, and `?` matches one character. A
backslash escapes a `*`, `?` or backslash; before any other character it is literal. If a pattern
ends with a blank and `*`, both are optional: `git push *` matches `git push`. Patterns are
case-sensitive and have no character classes.
"""

import functools
import re
from collections.abc import Callable
from operator import methodcaller

CACHED_PATTERNS = 4_096
"""How many compiled patterns are cached. There are few rules, even with the user's grants."""

_PIECE: re.Pattern[str] = re.compile(r"\\[*?\\]|\*+|\?|[^*?\\]+|\\", re.DOTALL)


def matches(pattern: str, subject: str) -> bool:
    """Whether the whole `subject` matches; takes linear time for a pattern with one `*`."""
    return bool(matcher(pattern)(subject))


def escape(text: str) -> str:
    """Return the pattern that matches only `text`."""
    return re.sub(r"([*?\\])", r"\\\1", text)


@functools.lru_cache(CACHED_PATTERNS)
def longest_name(pattern: str) -> str:
    """Return the longest text without a slash that all matching subjects contain; may be empty."""
    chunks = [""]
    for piece in _PIECE.findall(pattern.removesuffix(" *")):
        if piece[0] in "*?":
            chunks.append("")
        else:
            chunks[-1] += _literal(piece)
    return max((name for chunk in chunks for name in chunk.split("/")), key=len)


@functools.lru_cache(CACHED_PATTERNS)
def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function whose result is true for the subjects that match; quicker than `matches`.

    Every file of a workspace is matched with all rules.
    """
    text = pattern.strip("*")
    if pattern.startswith("*") and not set(text) & set("*?\\ "):
        inside = pattern.endswith("*")
        return methodcaller("__contains__" if inside else "endswith", text)
    optional = pattern.endswith(" *")
    body = pattern[:-2] if optional else pattern
    expression = _expression(body) + ("(?: .*)?" if optional else "")
    return re.compile(expression + r"\Z", re.DOTALL).match


def _expression(pattern: str) -> str:
    r"""Return the regular expression; `(?>.*?x)` prevents exponential backtracking."""
    chunks: list[str] = [""]
    for piece in _PIECE.findall(pattern):
        if piece.startswith("*"):
            chunks.append("")
        elif piece == "?":
            chunks[-1] += "."
        else:
            chunks[-1] += re.escape(_literal(piece))
    first, *middle = chunks
    if not middle:
        return first
    *middle, last = middle
    return first + "".join(f"(?>.*?{chunk})" for chunk in middle) + ".*" + last


def _literal(piece: str) -> str:
    """Return the text of a piece that is not a wildcard, without an escaping backslash."""
    return piece[1:] if len(piece) == 2 and piece[0] == "\\" else piece
