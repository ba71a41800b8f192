"""Decides which names are always left out, and which no pattern of an ignore file can match.

About all others git is asked.

The test errs on one side only: a pattern whose literal parts are all in a path may match it, and
then git decides.
"""

import os
import re
from collections.abc import Iterable
from typing import Final

from tiller_daemon.files.whole_files import TEMPORARY

Patterns = tuple[tuple[str, ...], ...]
"""The literal parts of each pattern: a path that lacks one of them does not match."""

_WILDCARD: Final = re.compile(r"[*?/]+")

# Begins a set or an escape, or ends the pattern; what follows is not taken apart.
_COMPLEX: Final = re.compile(r"[\[\\\0]")


def is_left_out(name: str, kind: str) -> bool:
    """Return whether an entry is always left out: not a file, one of ours, or refused by git."""
    lower = name.lower()
    return (
        kind == "o"
        or (kind != "d" and name.startswith(TEMPORARY))
        or lower == ".git"
        or (kind == "l" and lower == ".gitmodules")
    )


def parse_patterns(data: bytes) -> Patterns:
    """Return the literal parts of each pattern of an ignore file."""
    lines = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).split("\n")
    # `!` takes files out again, which matters only to a file that another pattern matches.
    patterns = (line.rstrip() for line in lines if line[:1] not in ("#", "!"))
    return tuple({_literal_parts(pattern) for pattern in patterns if pattern})


def may_match(path: str, patterns: Iterable[Patterns]) -> bool:
    """Return whether a pattern may match the path or a directory above it."""
    return any(all(part in path for part in one) for some in patterns for one in some)


def _literal_parts(pattern: str) -> tuple[str, ...]:
    plain = _COMPLEX.split(pattern, maxsplit=1)[0]
    return tuple(part for part in _WILDCARD.split(plain) if part)
