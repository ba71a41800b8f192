"""Repositories and ignore files that decide which of a workspace's files git sees.

A repository inside a workspace is left out, and a repository around it may ignore files. A few
entries of a directory make it a repository; their stamps are kept here.
"""

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tiller_daemon.snapshots.directories import Stamp, stamp_at, trusted
from tiller_daemon.snapshots.ignore_files import Patterns, parse_patterns
from tiller_daemon.snapshots.shadow_repository import ShadowRepository
from tiller_daemon.workspace.repository import git_directory

IGNORE_FILE: Final = ".gitignore"
REPOSITORY: Final = ".git"

IGNORE_BYTES_MAX: Final = 1024 * 1024
"""The largest ignore file that is read here; a larger file is assumed to match every path."""

NEVER: Final[Stamp] = (0, 0, 0, 0, 0)
"""A stamp that no file has; it replaces a stamp that is not trusted."""

ANYTHING: Final[Patterns] = ((),)
"""The patterns of an ignore file that may match every path."""


Identity = tuple[int, ...]
"""The inode, mode and owner of a directory, and those of its target if it is a link. Times are left
out, because every git command changes them."""


@dataclass
class Surroundings:
    """Files and directories whose change may make git see other files in the same workspace."""

    prefix: str
    """The workspace's path in its project, with a slash at the end; empty if they are the same."""
    stamps: dict[str, Stamp | None] = field(default_factory=dict[str, Stamp | None])
    """The stamps of files, by path."""
    identities: dict[str, Identity | None] = field(default_factory=dict[str, Identity | None])
    """The identities of git directories, by path."""
    patterns: tuple[Patterns, ...] = ()
    """The patterns of the ignore files above the workspace."""

    def are_the_same(self) -> bool:
        """Return whether no stamp and no identity has changed."""
        return all(stamp_at(path) == stamp for path, stamp in self.stamps.items()) and all(
            _identity_at(path) == identity for path, identity in self.identities.items()
        )

    def add_repository(self, mark: str, since_ns: int) -> None:
        """Add the entries that decide whether the directory with this `.git` is a repository.

        git decided that after `since_ns`, so entries that have changed since then count as changed.
        """
        self.add_mark(mark, since_ns)
        directory = git_directory(Path(mark))
        self.stamps[f"{directory}/HEAD"] = firm_stamp_at(f"{directory}/HEAD")
        for name in ("objects", "refs"):
            self.add_mark(f"{directory}/{name}", since_ns)
        if str(directory) != mark:
            self.stamps[f"{directory}/commondir"] = firm_stamp_at(f"{directory}/commondir")

    def add_mark(self, path: str, since_ns: int | None = None) -> None:
        """Add the entry at `path`; a `.git` may be a file that names another directory."""
        identity = self.identities[path] = _identity_at(path)
        stamp = stamp_at(path)
        if stamp and since_ns is not None and not trusted(stamp, since_ns):
            self.identities[path] = ()
        if identity and stat.S_ISREG(identity[1]):
            self.stamps[path] = firm_stamp_at(path)


def surroundings_of(shadow: ShadowRepository) -> Surroundings:
    """Return the surroundings of a workspace, from it and the directories above it."""
    around = Surroundings(shadow.prefix)
    for directory in (shadow.workspace, *shadow.workspace.parents):
        around.add_mark(f"{directory}/{REPOSITORY}")
    exclude = str(shadow.project_excludes)
    # The stamp would be the link's, not the target's.
    is_link = os.path.islink(exclude)  # noqa: PTH114
    around.stamps[exclude] = NEVER if is_link else firm_stamp_at(exclude)
    patterns = [patterns_at(f"{shadow.store}/info/exclude")]
    above = shadow.workspace
    while above != shadow.work_tree:
        above = above.parent
        path = f"{above}/{IGNORE_FILE}"
        around.stamps[path] = firm_stamp_at(path)
        patterns.append(patterns_at(path))
    around.patterns = tuple(patterns)
    return around


def firm_stamp_at(path: str) -> Stamp | None:
    """Return the stamp of a file that is about to be read; `NEVER` if it can't be trusted."""
    now_ns = time.time_ns()
    stamp = stamp_at(path)
    return stamp and (trusted(stamp, now_ns) or NEVER)


def patterns_at(path: str) -> Patterns:
    """Return the patterns of an ignore file."""
    try:
        with open(path, "rb", opener=_open_plain) as stream:
            data = stream.read(IGNORE_BYTES_MAX + 1)
    except FileNotFoundError:
        return ()
    except OSError:
        return ANYTHING
    return parse_patterns(data) if len(data) <= IGNORE_BYTES_MAX else ANYTHING


def _open_plain(path: str, flags: int) -> int:
    # A FIFO would block.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _identity_at(path: str) -> Identity | None:
    try:
        state = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    identity = (state.st_ino, state.st_mode, state.st_uid)
    if not stat.S_ISLNK(state.st_mode):
        return identity
    try:
        state = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return identity
    return *identity, state.st_ino, state.st_mode, state.st_uid
