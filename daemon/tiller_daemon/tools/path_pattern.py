"""Patterns for paths as models write them: `*.py`, `src/**/*.{ts,tsx}`, `[a-c]?.txt`.

Pure. A pattern without a slash is for the name alone, at any depth, as in a `.gitignore`; `**`
stands for any number of directories, also none; a star does not cross a slash.
"""

import fnmatch
import re
from itertools import pairwise
from typing import Final

from tiller_daemon.tools.base import ToolFailure

ALTERNATIVES_MAX: Final = 64
"""How many patterns the braces of one may stand for."""

PARTS_MAX: Final = 32
"""How many slashes a pattern may have."""

_BRACES = re.compile(r"\{([^{}]*)\}")

Part = re.Pattern[str] | None
"""What one name of a path must match; None for `**`."""


class PathPattern:
    """A pattern, ready to be compared with many paths."""

    def __init__(self, pattern: str) -> None:
        """Raise `ToolFailure` for a pattern that can't match any path below a directory."""
        plain = pattern.removeprefix("./")
        if not plain or plain.startswith(("/", "../")) or "\0" in plain:
            raise ToolFailure(
                f"The pattern {pattern!r} must be relative; name the directory with `path`."
            )
        alternatives = _alternatives(plain)
        self.names: Final = tuple(one.rpartition("/")[2] for one in alternatives)
        """What the last name of a path must be like, one for each alternative."""
        self._patterns: Final = [_compile(one) for one in alternatives]

    def matches(self, path: str) -> bool:
        """Whether `path`, relative and with slashes, is meant by the pattern."""
        names = path.split("/")
        return any(_match(parts, names) for parts in self._patterns)


def _alternatives(pattern: str) -> list[str]:
    """Return what the braces stand for; a pair without a comma stands for itself."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        one = waiting.pop()
        braces = next((found for found in _BRACES.finditer(one) if "," in found[1]), None)
        if braces is None:
            done.append(one)
        else:
            before, after = one[: braces.start()], one[braces.end() :]
            waiting.extend(f"{before}{choice}{after}" for choice in braces[1].split(","))
        if len(done) + len(waiting) > ALTERNATIVES_MAX:
            raise ToolFailure(f"The pattern stands for more than {ALTERNATIVES_MAX} others.")
    return done


def _compile(pattern: str) -> list[Part]:
    names = pattern.split("/")
    if len(names) == 1:
        names = ["**", *names]
    if len(names) > PARTS_MAX:
        raise ToolFailure(f"The pattern has more than {PARTS_MAX} parts.")
    # Two `**` in a row mean the same as one.
    kept = [
        names[0],
        *(after for before, after in pairwise(names) if before != "**" or after != "**"),
    ]
    # The standard library's translation never tries a star twice, so no pattern takes for ever.
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in kept]


def _match(parts: list[Part], names: list[str]) -> bool:
    """Compare part by part; `reached` holds the numbers of parts that may come next."""
    reached = _after_stars({0}, parts)
    for name in names:
        passed: set[int] = set()
        for number in reached:
            if number == len(parts):
                continue
            part = parts[number]
            if part is None:
                passed.add(number)
            elif part.match(name):
                passed.add(number + 1)
        reached = _after_stars(passed, parts)
    return len(parts) in reached


def _after_stars(numbers: set[int], parts: list[Part]) -> set[int]:
    """Add the parts that come next when a `**` stands for no directory at all."""
    reached = set(numbers)
    for number in sorted(numbers):
        after = number
        while after < len(parts) and parts[after] is None:
            after += 1
            reached.add(after)
    return reached
