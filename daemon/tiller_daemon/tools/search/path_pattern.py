"""Patterns for paths as models write them: `*.py`, `src/**/*.{ts,tsx}`, `[a-c]?.txt`.

Pure. A pattern without a slash is for the name alone, at any depth, as in a `.gitignore`; `**`
stands for any number of directories, also none; a star does not cross a slash.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Final

from tiller_daemon.tools.base import ToolFailure

ALTERNATIVES_MAX: Final = 64
"""How many patterns the braces of one may stand for."""

PARTS_MAX: Final = 32
"""How many slashes a pattern may have."""

DIRECTORIES_KNOWN_MAX: Final = 4096
"""For how many directories is kept what a file in them must be called: some 1 MiB."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_NOT_PLAIN = re.compile(r"(\[.*\]|[^A-Za-z0-9._-])+", re.DOTALL)
"""What has, or may have, a meaning in an ignore file."""

Part = re.Pattern[str] | None
"""What one name of a path must match; None for `**`."""

Name = re.Pattern[str] | None
"""What a file's name must match; None for any."""


class PathPattern:
    """A pattern, ready to be compared with many paths."""

    def __init__(self, pattern: str) -> None:
        """Raise `ToolFailure` for a pattern that can't match any path below a directory."""
        plain = pattern.removeprefix("./")
        if not plain or plain.startswith(("/", "../")) or "\0" in plain:
            raise ToolFailure(
                f"The pattern {pattern!r} must be relative; name the directory with `path`."
            )
        alternatives = [_parts(one) for one in _alternatives(plain)]
        # The standard library's translation never tries a star twice: no pattern takes for ever.
        self._patterns: Final = [
            [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]
            for parts in alternatives
        ]
        self._known: Final[dict[str, list[Name]]] = {}
        lines = chain.from_iterable(map(_ignore_lines, alternatives))
        self.ignore_lines: Final = tuple(dict.fromkeys(lines))
        """Lines of an ignore file that leaves out most of what the pattern can't match, and
        nothing else."""

    def matches(self, path: str) -> bool:
        """Whether `path`, relative and with slashes, is meant by the pattern."""
        directory, _, name = path.rpartition("/")
        wanted = self._known.get(directory)
        if wanted is None:
            if len(self._known) >= DIRECTORIES_KNOWN_MAX:
                self._known.clear()
            wanted = self._known[directory] = self._wanted_in(directory)
        return any(one is None or one.match(name) for one in wanted)

    def _wanted_in(self, directory: str) -> list[Name]:
        names = directory.split("/") if directory else []
        return [one for parts in self._patterns for one in _last_names(parts, names)]


def ignore_lines_without(fragments: Iterable[str]) -> tuple[str, ...]:
    """Lines of an ignore file that leaves out most of what has none of these texts in its path.

    And nothing else. No text holds a slash.
    """
    plain = {_NOT_PLAIN.sub("*", fragment) for fragment in fragments}
    return (
        "*",
        "!*/",
        *(line for one in sorted(plain) for line in (f"!*{one}*", f"!**/*{one}*/**")),
    )


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


def _parts(pattern: str) -> list[str]:
    names = pattern.split("/")
    if len(names) == 1:
        names = ["**", *names]
    if len(names) > PARTS_MAX:
        raise ToolFailure(f"The pattern has more than {PARTS_MAX} parts.")
    # Two `**` in a row mean the same as one.
    return [
        names[0],
        *(after for before, after in pairwise(names) if before != "**" or after != "**"),
    ]


def _ignore_lines(parts: list[str]) -> Iterator[str]:
    """Lines that let files like this be found, and the directories on the way to them.

    What is more than a plain name becomes a star: that finds more, but never less.
    """
    yield "*"
    plain = [part if part == "**" else _NOT_PLAIN.sub("*", part) for part in parts]
    for depth, part in enumerate(plain[:-1]):
        yield f"!/{'/'.join(plain[: depth + 1])}/"
        if part == "**":
            break
    yield f"!/{'/'.join(plain)}"
    if plain[-1] == "**":
        yield f"!/{'/'.join(plain[:-1])}"


def _last_names(parts: list[Part], directory: list[str]) -> Iterator[Name]:
    """What the name of a file in `directory` must match one of; any name will do for None."""
    # The numbers of parts that may come next.
    reached = _after_stars({0}, parts)
    for name in directory:
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
    for number in reached:
        if number < len(parts) and all(part is None for part in parts[number + 1 :]):
            yield parts[number]


def _after_stars(numbers: set[int], parts: list[Part]) -> set[int]:
    """Add the parts that come next when a `**` stands for no directory at all."""
    reached = set(numbers)
    for number in sorted(numbers):
        after = number
        while after < len(parts) and parts[after] is None:
            after += 1
            reached.add(after)
    return reached
