r"""The globs of permission rules. Pure.

`*` stands for any text, also none and also with slashes; `?` for one character; a backslash takes
the meaning from a `*`, `?` or backslash after it and is itself before anything else. A pattern that
ends in blank and `*` also matches without them: `git push *` matches `git push`. Case counts, and
there are no character classes.
"""

import functools
import re

CACHED_PATTERNS = 4_096
"""Compiled patterns kept; rules are few, the ones of `always` come on top."""

_PIECE: re.Pattern[str] = re.compile(r"\\[*?\\]|\*+|\?|[^*?\\]+|\\", re.DOTALL)


def matches(pattern: str, subject: str) -> bool:
    """Whether the whole `subject` matches; in time linear in both for a pattern with one `*`."""
    return _compiled(pattern).match(subject) is not None


def escape(text: str) -> str:
    """The pattern that matches `text` and nothing else."""
    return re.sub(r"([*?\\])", r"\\\1", text)


def longest_name(pattern: str) -> str:
    """The longest text without a slash that is in every subject that matches; may be empty."""
    chunks = [""]
    for piece in _PIECE.findall(pattern.removesuffix(" *")):
        if piece[0] in "*?":
            chunks.append("")
        else:
            chunks[-1] += _literal(piece)
    return max((name for chunk in chunks for name in chunk.split("/")), key=len)


@functools.lru_cache(CACHED_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    optional = pattern.endswith(" *")
    body = pattern[:-2] if optional else pattern
    expression = _expression(body) + ("(?: .*)?" if optional else "")
    return re.compile(expression + r"\Z", re.DOTALL)


def _expression(pattern: str) -> str:
    r"""As a regular expression; `(?>.*?x)` keeps each `*` from being tried again, so no blow-up."""
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
    """A piece that is no wildcard, without the backslash that took the meaning from one."""
    return piece[1:] if len(piece) == 2 and piece[0] == "\\" else piece
