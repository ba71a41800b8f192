"""What git would run because the repository around a directory says so (B60).

`git status` only reads, but the configuration in `.git` can name programs that run meanwhile: a
monitor of the file system, filters, converters for `diff`. Nobody gets such a configuration by
cloning; a repository that was unpacked brings it along. Files are read, no git process is started.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.workspace.documents import read_document
from tiller_daemon.workspace.repository import git_directory

CONFIG_BYTES_MAX: Final = 256 * 1024
INDEX_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger file is not looked through; an index has some 100 bytes for each file."""

SUBMODULES_MAX: Final = 200
"""Repositories within the repository that are looked at."""

NOT_UNDERSTOOD: Final = "(more than can be looked through)"

HOOK: Final = "post-index-change"
"""The only hook that reading runs: `status` and `diff` refresh the index."""

# A key begins a line, or follows the name of its section; it is never quoted, in either case.
_KEY: Final = re.compile(
    r"(?:^|\])[ \t\r]*(fsmonitor|hooksPath|external|textconv|command|clean|smudge|process|program"
    r"|promisor|partialClone|path|worktree)[ \t]*(?:=(.*)|\r?$)",
    re.IGNORECASE | re.MULTILINE,
)
"""Keys that name a program, make git fetch, or lead to another configuration or work tree."""

_NO_PROGRAM: Final = re.compile(r"\"?(true|false|yes|no|on|off|0|1|)\"?\s*([#;].*)?", re.IGNORECASE)
"""Values of `fsmonitor` for git's own monitor, or none."""

_SUBMODULE: Final = re.compile(re.escape(b"\x00\x00\xe0\x00"))
"""The mode of a submodule in an index."""

_MODE_TO_PATH_BYTES: Final = (38, 40, 50, 52)
"""How far behind the mode the path begins: by the length of a hash and that of the flags."""


class _Place(NamedTuple):
    """A work tree and its git directory; the same one when the repository is bare."""

    root: Path
    git: Path


def programs_named(directory: Path) -> tuple[str, ...]:
    """The keys that make git, run in `directory`, run something; none when there is none.

    Blocks for as long as the disk takes.
    """
    found: dict[str, None] = {}
    around = _around(directory)
    waiting = [around] if around else []
    seen: set[Path] = set()
    while waiting:
        place = waiting.pop()
        if place.git in seen:
            continue
        seen.add(place.git)
        found.update(dict.fromkeys(_named_in(place)))
        submodules = _submodules(place)
        if submodules is None or len(seen) > SUBMODULES_MAX:
            return (*found, NOT_UNDERSTOOD)
        waiting += submodules
    return tuple(found)


def _around(directory: Path) -> _Place | None:
    for root in (directory, *directory.parents):
        if (root / ".git").exists():
            return _Place(root, git_directory(root / ".git"))
        if all((root / name).exists() for name in ("HEAD", "objects", "refs")):
            return _Place(root, root)
    return None


def _named_in(place: _Place) -> Iterator[str]:
    pointer = read_document(place.git / "commondir", None, CONFIG_BYTES_MAX)
    common = place.git / pointer.text.strip() if pointer else place.git
    for config in (common / "config", place.git / "config.worktree"):
        document = read_document(config, None, CONFIG_BYTES_MAX)
        if document is None:
            continue
        if document.cut:
            yield NOT_UNDERSTOOD
        for match in _KEY.finditer(document.text):
            if not _is_harmless(match[1].casefold(), (match[2] or "").strip(), place):
                yield match[1]
    if os.access(common / "hooks" / HOOK, os.X_OK):
        yield HOOK


def _is_harmless(key: str, value: str, place: _Place) -> bool:
    path = Path(value.strip('"'))
    match key:
        case "fsmonitor":
            return _NO_PROGRAM.fullmatch(value) is not None
        case "hookspath":
            known = not value.startswith(("~", "%", '"~', '"%'))
            return known and not os.access(place.root / path / HOOK, os.X_OK)
        case "worktree":
            return os.path.normpath(place.git / path) == os.path.normpath(place.root)
        case _:
            return False


def _submodules(place: _Place) -> list[_Place] | None:
    """The submodules that are there; None when the index can't be looked through."""
    try:
        with (place.git / "index").open("rb") as stream:
            data = stream.read(INDEX_BYTES_MAX + 1)
    except OSError:
        return []
    found = list(_SUBMODULE.finditer(data))
    if len(data) > INDEX_BYTES_MAX or (found and data[4:8] not in (b"\0\0\0\2", b"\0\0\0\3")):
        return None
    candidates = (
        data[match.start() + behind :].partition(b"\0")[0]
        for match in found
        for behind in _MODE_TO_PATH_BYTES
    )
    roots = [place.root / os.fsdecode(path) for path in candidates if path]
    return [_Place(root, git_directory(root / ".git")) for root in roots if _has_mark(root)]


def _has_mark(root: Path) -> bool:
    try:
        return (root / ".git").exists()
    except (OSError, ValueError):
        return False
