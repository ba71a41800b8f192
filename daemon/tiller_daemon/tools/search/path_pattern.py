"""Patterns for paths as models write them: `*.py`, `src/**/*.{ts,tsx}`, `[a-c]?.txt`. Pure.

A pattern without a slash matches names at any depth, as in a `.gitignore`. `**` matches any number
of directories, including none; `*` does not match a slash. Brackets also match themselves.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Final

from tiller_daemon.tools.base import ToolFailure

ALTERNATIVES_MAX: Final = 64
"""How many patterns the braces of one pattern may expand to."""

PARTS_MAX: Final = 32
"""How many parts between slashes a pattern may have."""

DIRECTORIES_CACHED_MAX: Final = 4096
"""For how many directories the patterns of their files' names are cached, in some 1 MiB."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_NOT_PLAIN = re.compile(r"(\[.*\]|[^A-Za-z0-9._-])+", re.DOTALL)
"""Text that has, or may have, a special meaning in an ignore file."""

Part = re.Pattern[str] | None
"""What one part of a path must match; None for `**`."""

Name = re.Pattern[str] | None
"""What the name of a file must match; None for any name."""


class PathPattern:
    """A pattern, compiled to be matched with many paths."""

    def __init__(self, pattern: str) -> None:
        """Raise `ToolFailure` for a pattern that can match no path below a directory."""
        plain = pattern.removeprefix("./")
        if not plain or plain.startswith(("/", "../")) or "\0" in plain:
            raise ToolFailure(
                f"The pattern {pattern!r} must be relative; name the directory with `path`."
            )
        alternatives = [_parts(expanded) for expanded in _alternatives(plain)]
        # `fnmatch.translate` gives stars that don't backtrack, so no pattern takes for ever.
        self._patterns: Final = [
            [None if part == "**" else _compile(part) for part in parts] for parts in alternatives
        ]
        self._names_in: Final[dict[str, list[Name]]] = {}
        lines = chain.from_iterable(map(_ignore_lines, alternatives))
        self.ignore_lines: Final = tuple(dict.fromkeys(lines))
        """Lines of an ignore file that skips most files that the pattern can't match, and no
        others."""

    def matches(self, path: str) -> bool:
        """Whether the pattern matches `path`, which is relative and uses slashes."""
        directory, _, name = path.rpartition("/")
        wanted = self._names_in.get(directory)
        if wanted is None:
            if len(self._names_in) >= DIRECTORIES_CACHED_MAX:
                self._names_in.clear()
            wanted = self._names_in[directory] = self._find_names(directory)
        return any(pattern is None or pattern.match(name) for pattern in wanted)

    def _find_names(self, directory: str) -> list[Name]:
        names = directory.split("/") if directory else []
        return [name for parts in self._patterns for name in _last_names(parts, names)]


def _compile(part: str) -> re.Pattern[str]:
    expression = fnmatch.translate(part)
    if "[" in part:
        # Brackets may be part of a name, as in `app/[id]/page.tsx`.
        expression += "|" + fnmatch.translate(part.replace("[", "[[]"))
    return re.compile(expression)


def ignore_lines_without(fragments: Iterable[str]) -> tuple[str, ...]:
    """Return lines of an ignore file that skips most paths without any of `fragments`.

    It skips no others. A fragment contains no slash.
    """
    plain = {_NOT_PLAIN.sub("*", fragment) for fragment in fragments}
    return (
        "*",
        "!*/",
        *(line for text in sorted(plain) for line in (f"!*{text}*", f"!**/*{text}*/**")),
    )


def _alternatives(pattern: str) -> list[str]:
    """Expand braces; a pair without a comma is literal."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        braces = next((found for found in _BRACES.finditer(current) if "," in found[1]), None)
        if braces is None:
            done.append(current)
        else:
            before, after = current[: braces.start()], current[braces.end() :]
            waiting.extend(f"{before}{choice}{after}" for choice in braces[1].split(","))
        if len(done) + len(waiting) > ALTERNATIVES_MAX:
            raise ToolFailure(f"The pattern expands to more than {ALTERNATIVES_MAX} patterns.")
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
    """Yield lines of an ignore file that keep matching files, and the directories above them.

    Special characters become a star, which finds more files but never fewer.
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
    """Yield patterns; a file in `directory` matches if its name matches one of them."""
    # Simulate the pattern on the directory: `reached` are the indexes of parts that may come next.
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
    """Add the parts that come next if a `**` matches no directory."""
    reached = set(numbers)
    for number in sorted(numbers):
        after = number
        while after < len(parts) and parts[after] is None:
            after += 1
            reached.add(after)
    return reached
