"""The known directories and files of a workspace, with stamps that show which have changed.

Within one tick of the file system's clock, a file can change twice and have the same time. So a
stamp that was taken too soon after a change is not trusted. git calls such a file racy.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.files.restore import EXECUTABLE, LINK, PLAIN
from tiller_daemon.snapshots.ignore_files import Patterns
from tiller_daemon.snapshots.objects import EMPTY_TREE, TREE, tree_data

TICK_NS: Final = 50_000_000
"""Longer than a tick of any file system whose times have fractions of a second."""

LONG_TICK_NS: Final = 3_000_000_000
"""Longer than a tick of a file system whose times are whole or only even seconds (FAT)."""

SECOND_NS: Final = 1_000_000_000

Stamp = tuple[int, int, int, int, int]
"""Modification and change time in ns, size, inode and mode."""

Kind = str
"""What an entry of a directory is: `f` a file, `l` a link, `d` a directory, `o` anything else."""


class File(NamedTuple):
    """A file or link that no ignore file names."""

    stamp: Stamp | None
    """The stamp; None if it is not trusted, so that the file must be read again."""
    mode: int
    """The mode that git stores."""
    blob: bytes
    """The id of the file's content; empty if no snapshot may store the file."""


@dataclass(slots=True)
class Directory:
    """A directory whose files belong to snapshots."""

    path: str
    """The path in the workspace, with a slash at the end; empty for the workspace itself."""
    stamp: Stamp | None = None
    """The stamp from before the directory was listed; None if it must be listed again."""
    files: dict[str, File] = field(default_factory=dict[str, File])
    """The files and links in the directory, by name."""
    directories: "dict[str, Directory]" = field(default_factory=dict[str, "Directory"])
    """The subdirectories that may contain files of snapshots, by name."""
    others: dict[str, Kind] = field(default_factory=dict[str, Kind])
    """The entries that snapshots leave out, by name: ignored, not a file, or a repository."""
    ignore_stamp: Stamp | None = None
    """The stamp of the directory's ignore file."""
    patterns: Patterns = ()
    """The patterns in the directory's ignore file."""
    tree: bytes = b""
    """The id of the directory's git tree; empty if the tree must be made again."""
    inode: int = 0
    """The inode, which shows whether another directory has taken this one's place."""
    is_gone: bool = False
    """Whether the directory is no longer in the workspace."""
    watched: int = -1
    """The number of the directory's watch; negative without a watch."""

    def kind_of(self, name: str) -> Kind | None:
        """Return the kind of the known entry with this name; None if there is none."""
        if file := self.files.get(name):
            return "l" if file.mode == LINK else "f"
        return "d" if name in self.directories else self.others.get(name)

    def walk(self) -> "Iterator[Directory]":
        """Yield this directory and all directories below it."""
        yield self
        for child in self.directories.values():
            yield from child.walk()

    def way_to(self, path: str) -> "Iterator[Directory]":
        """Yield the known directories from this one down to `path`."""
        directory: Directory | None = self
        for name in path.split("/"):
            if directory is None:
                return
            yield directory
            directory = directory.directories.get(name)


Entry = tuple[Directory, str, Kind]
"""An entry of a directory: the directory, and the entry's name and kind."""


def stamp_of(state: os.stat_result) -> Stamp:
    """Return the stamp of a file from its `stat` result."""
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_mode


def stamp_at(path: str) -> Stamp | None:
    """Return the stamp of the file or directory at a path; None if it does not exist."""
    try:
        return stamp_of(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def trusted(stamp: Stamp, read_ns: int) -> Stamp | None:
    """Return the stamp if every change after `read_ns` shows in it, else None."""
    modified_ns, changed_ns, *_ = stamp
    tick_ns = TICK_NS if changed_ns % SECOND_NS else LONG_TICK_NS
    return stamp if max(modified_ns, changed_ns) < read_ns - tick_ns else None


def changed_names(path: str, files: Mapping[str, File]) -> list[str]:
    """Return the names of the files in the directory `path/` whose stamps have changed."""
    changed: list[str] = []
    lstat = os.lstat
    # This loop runs for each file of a workspace, so it calls no other function.
    for name, (stamp, _, _) in files.items():
        try:
            now = lstat(path + name)
        except (FileNotFoundError, NotADirectoryError):
            changed.append(name)
            continue
        if stamp is None or stamp != (
            now.st_mtime_ns,
            now.st_ctime_ns,
            now.st_size,
            now.st_ino,
            now.st_mode,
        ):
            changed.append(name)
    return changed


def mode_of(state: os.stat_result) -> int:
    """Return the mode of a file or link as git records it."""
    if stat.S_ISLNK(state.st_mode):
        return LINK
    return EXECUTABLE if state.st_mode & stat.S_IXUSR else PLAIN


def entries_of(path: Path | str) -> dict[str, tuple[Kind, int]]:
    """Return the kind and inode of each entry of a directory; raises `OSError`."""
    with os.scandir(path) as entries:
        return {entry.name: (_kind(entry), entry.inode()) for entry in entries}


def tree_of(directory: Directory, write: Callable[[bytes], bytes]) -> bytes:
    """Return the id of a directory's tree; `write` gets the content of each new tree."""
    if not directory.tree:
        entries = [
            (file.mode, os.fsencode(name), file.blob)
            for name, file in directory.files.items()
            if file.blob
        ]
        for name, child in directory.directories.items():
            tree = tree_of(child, write)
            # git knows no empty directories.
            if tree != EMPTY_TREE:
                entries.append((TREE, os.fsencode(name), tree))
        directory.tree = write(tree_data(entries)) if entries or not directory.path else EMPTY_TREE
    return directory.tree


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "l"
    if entry.is_file(follow_symlinks=False):
        return "f"
    return "d" if entry.is_dir(follow_symlinks=False) else "o"
