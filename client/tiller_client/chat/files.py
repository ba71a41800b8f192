"""Lists the files of a workspace, to complete `@` and a few letters of a path."""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tiller_client.connecting.runtime import chosen_remote

FILES_MAX = 200_000
"""Maximum number of files in the list; they take some 50 MB."""

LIST_S_MAX = 10.0
"""How long git may take to list the files; after that, the previous list stays."""

GIT_LIST = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")

SKIPPED = frozenset({"node_modules", "__pycache__", "target", "venv"})
"""Directories to skip where git does not say what to ignore."""

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[^A-Za-z0-9])(?=[A-Za-z0-9])")


class _Entry(NamedTuple):
    """A file or directory; all fields but `path` are in lower case, for comparison."""

    path: str
    lower: str
    name: str
    letters: frozenset[str]


class WorkspaceFiles:
    """The files and directories of a workspace; a directory ends with `/`.

    `scored` counts the paths that `matches` has ranked, its most expensive step.
    """

    def __init__(self, directory: Path) -> None:
        self.scored = 0
        self._directory = directory
        self._entries: list[_Entry] = []
        self._refreshing = False

    async def refresh(self) -> None:
        """List the files anew in a thread, for asyncio; the old list is used meanwhile.

        If the workspace is on another machine, the list stays empty.
        """
        if self._refreshing or chosen_remote():
            return
        self._refreshing = True
        try:
            paths = await asyncio.to_thread(list_files, self._directory)
            if paths is not None:
                await asyncio.to_thread(self.take, paths)
        finally:
            self._refreshing = False

    def take(self, paths: Iterable[str]) -> None:
        """Replace the list by these files and the directories above them."""
        self._entries = _entries(paths)

    def matches(self, query: str, limit: int) -> list[str]:
        """Return the best paths for what was typed, the best first.

        Case is ignored. The best names are or begin with the query; names with a word that begins
        with the query follow, then names that contain it, then paths that contain it. If these are
        fewer than `limit`, paths follow that have the query's letters in the same order.
        """
        wanted = query.lower()
        if not wanted:
            return [entry.path for entry in sorted(self._entries, key=_shallow)[:limit]]
        found: list[str] = []
        for tier in self._tiers(wanted):
            ranked = sorted((*_rank(entry, wanted), entry.path) for entry in tier)
            self.scored += len(ranked)
            found += [path for *_, path in ranked[: limit - len(found)]]
            if len(found) == limit:
                break
        return found

    def _tiers(self, wanted: str) -> Iterator[list[_Entry]]:
        """Yield lists of matching entries, the best list first; each is made only if needed."""
        contain = [entry for entry in self._entries if wanted in entry.lower]
        yield [entry for entry in contain if entry.name.startswith(wanted)]
        yield [
            entry for entry in contain if wanted in entry.name and not entry.name.startswith(wanted)
        ]
        yield [entry for entry in contain if wanted not in entry.name]
        letters = frozenset(wanted)
        yield [
            entry
            for entry in self._entries
            if letters <= entry.letters and wanted not in entry.lower and _has(entry.lower, wanted)
        ]


def list_files(directory: Path) -> list[str] | None:
    """The files below a directory that git does not ignore, relative to it; `None` if git failed.

    Outside a repository, all files except in hidden directories and build products.
    """
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            GIT_LIST,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIST_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError:  # no git
        return list(islice(_walk(directory), FILES_MAX))
    if done.returncode:
        return list(islice(_walk(directory), FILES_MAX))
    names = done.stdout.decode(errors="replace").split("\0")
    return list(dict.fromkeys(filter(None, names)))[:FILES_MAX]


def _walk(directory: Path) -> Iterator[str]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [
            name for name in sorted(directories) if name not in SKIPPED and not name.startswith(".")
        ]
        for name in sorted(files):
            yield os.path.relpath(os.path.join(parent, name), directory)  # noqa: PTH118 - quicker


def _entries(paths: Iterable[str]) -> list[_Entry]:
    names: dict[str, None] = {}
    for path in paths:
        end = path.find("/")
        while end >= 0:
            names[path[: end + 1]] = None
            end = path.find("/", end + 1)
        names[path] = None
    return [_entry(name) for name in names]


def _entry(path: str) -> _Entry:
    lower = path.lower()
    if len(lower) != len(path):  # as with İ: positions in both must be the same
        lower = path
    name = lower[lower.rstrip("/").rfind("/") + 1 :]
    return _Entry(path, lower, name, frozenset(lower))


def _shallow(entry: _Entry) -> tuple[int, str]:
    return entry.path.rstrip("/").count("/"), entry.path


def _has(text: str, letters: str) -> bool:
    """Whether the text has the letters in this order."""
    place = 0
    for letter in letters:
        place = text.find(letter, place) + 1
        if not place:
            return False
    return True


def _rank(entry: _Entry, wanted: str) -> tuple[int, int]:
    """Rank of a matching entry within its list from `_tiers`; smaller is better."""
    length = len(entry.path)
    if wanted in (entry.name, entry.name.rstrip("/"), entry.lower):
        return 0, length
    if wanted not in entry.lower:
        return -_fit(entry, wanted), length
    starts_word = any(
        entry.lower.startswith(wanted, found.start()) for found in _WORD_START.finditer(entry.path)
    )
    return (1 if starts_word or entry.lower.startswith(wanted) else 2), length


def _fit(entry: _Entry, wanted: str) -> int:
    """Score of a path with the letters in this order: in the name, at word starts, adjacent."""
    path, lower = entry.path, entry.lower
    in_name = _has(entry.name, wanted)
    before = (len(lower) - len(entry.name) if in_name else 0) - 1
    score = 4 * in_name
    for letter in wanted:
        place = lower.index(letter, before + 1)
        score -= min(place - before - 1, 3)
        if place == before + 1:
            score += 2
        elif not path[place - 1].isalnum() or (path[place].isupper() and path[place - 1].islower()):
            score += 3
        before = place
    return score
