"""Decides which names are always left out, and which names no ignore file can match.

git decides about all other names.

The test errs on one side only: if a path contains all literal parts of a pattern, it may match, so
git decides.
"""

import os
import re
from collections.abc import Iterable
from typing import Final

from tiller_daemon.files.whole_files import TEMPORARY

Patterns = tuple[tuple[str, ...], ...]
"""The literal parts of each pattern. A path that lacks one of a pattern's parts does not match."""

_WILDCARD: Final = re.compile(r"[*?/]+")

# Begins a set or an escape, or ends the pattern; the text after it is not examined.
_COMPLEX: Final = re.compile(r"[\[\\\0]")


def is_left_out(name: str, kind: str) -> bool:
    """Return whether an entry is always left out.

    This holds for anything but files, links and directories, for tiller's temporary files, and for
    names that git refuses.
    """
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
    # `!` excepts files from other patterns, so it matters only to a file that another one matches.
    patterns = (line.rstrip() for line in lines if line[:1] not in ("#", "!"))
    return tuple({_literal_parts(pattern) for pattern in patterns if pattern})


def may_match(path: str, patterns: Iterable[Patterns]) -> bool:
    """Return whether a pattern may match the path or a directory above it."""
    return any(all(part in path for part in one) for some in patterns for one in some)


def _literal_parts(pattern: str) -> tuple[str, ...]:
    plain = _COMPLEX.split(pattern, maxsplit=1)[0]
    return tuple(part for part in _WILDCARD.split(plain) if part)
