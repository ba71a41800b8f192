"""What decides about the files of a workspace without being one of them, such as repositories.

A repository inside a workspace is left out, and one around it may ignore files. Whether a
directory is a repository follows from a few of its entries, whose stamps are kept here.
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
"""The largest ignore file that is read here; of a larger one every pattern may match."""

NEVER: Final[Stamp] = (0, 0, 0, 0, 0)
"""A stamp that no file has, in place of one that is not trusted."""

ANYTHING: Final[Patterns] = ((),)
"""The patterns of an ignore file that may match every path."""


@dataclass
class Surroundings:
    """What would make git see other files in the same workspace."""

    prefix: str
    """Path of the workspace in its project, with a slash at the end; empty if it is all of it."""
    stamps: dict[str, Stamp | None] = field(default_factory=dict[str, Stamp | None])
    """The stamps of files, by path."""
    identities: dict[str, tuple[int, ...] | None] = field(
        default_factory=dict[str, tuple[int, ...] | None]
    )
    """The identities of git directories, by path. Their times change with every command of git."""
    patterns: tuple[Patterns, ...] = ()
    """The patterns of the ignore files above the workspace."""

    def are_the_same(self) -> bool:
        """Return whether none of it has changed."""
        return all(stamp_at(path) == stamp for path, stamp in self.stamps.items()) and all(
            _identity_at(path) == identity for path, identity in self.identities.items()
        )

    def add_repository(self, mark: str, since_ns: int) -> None:
        """Add what makes the directory with this `.git` a repository, or not.

        git decided that after `since_ns`; what has changed since then counts as changed.
        """
        self.add_mark(mark, since_ns)
        directory = git_directory(Path(mark))
        self.stamps[f"{directory}/HEAD"] = firm_stamp_at(f"{directory}/HEAD")
        for name in ("objects", "refs"):
            self.add_mark(f"{directory}/{name}", since_ns)
        if str(directory) != mark:
            self.stamps[f"{directory}/commondir"] = firm_stamp_at(f"{directory}/commondir")

    def add_mark(self, path: str, since_ns: int | None = None) -> None:
        """Add an entry `.git`, which may be a file that names another directory."""
        identity = self.identities[path] = _identity_at(path)
        stamp = stamp_at(path)
        if stamp and since_ns is not None and not trusted(stamp, since_ns):
            self.identities[path] = ()
        if identity and stat.S_ISREG(identity[1]):
            self.stamps[path] = firm_stamp_at(path)


def surroundings_of(shadow: ShadowRepository) -> Surroundings:
    """Return the surroundings of a workspace, from the directories above it."""
    around = Surroundings(shadow.prefix)
    for directory in (shadow.workspace, *shadow.workspace.parents):
        around.add_mark(f"{directory}/{REPOSITORY}")
    exclude = str(shadow.project_excludes)
    # Only the link would have a stamp.
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
    """Return the stamp of a file that is about to be read; `NEVER` if that is not trusted."""
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


def _identity_at(path: str) -> tuple[int, ...] | None:
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
