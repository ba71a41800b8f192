"""A workspace whose files are known, so that a snapshot reads only changed files.

`learning` fills a known workspace from a snapshot by git. From then on `check` compares the stamps
of all files, or only in directories where the watch saw changes. If it can't tell what has changed,
it raises `Unclear`, and git takes the next snapshot.

The watch alone is enough only while one turn works, because it misses a write through an open
memory mapping, or through another name of the file elsewhere. So the first and last snapshots of a
turn compare all stamps.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.files.paths import Location, PathProblem, opened_parent
from tiller_daemon.files.restore import FILE_BYTES_MAX, LINK, PLAIN, GitEntry
from tiller_daemon.files.whole_files import read_whole_in
from tiller_daemon.snapshots.directories import (
    Directory,
    Entry,
    File,
    Kind,
    changed_names,
    entries_of,
    mode_of,
    stamp_at,
    stamp_of,
    tree_of,
    trusted,
)
from tiller_daemon.snapshots.ignore_files import Patterns, is_left_out, may_match
from tiller_daemon.snapshots.objects import count_lines, write_object
from tiller_daemon.snapshots.surroundings import IGNORE_FILE, REPOSITORY, Surroundings
from tiller_daemon.snapshots.watch import Watch

CHANGED_FILES_MAX: Final = 500
"""If more files have changed, git is quicker, as it writes all files into one pack."""

CHANGED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes that one check reads without git."""

LEVELS_MAX: Final = 100
"""How deep directories may be nested; each level takes up to four of Python's 1,000 frames."""


class Unclear(Exception):
    """Only git can tell what the workspace looks like now; the message says why."""


class FoundChange(NamedTuple):
    """A change of a file between two snapshots."""

    before: GitEntry | None
    after: GitEntry | None
    lines: int | None
    """The file's number of lines now; None if the file is gone or not text."""


@dataclass
class Findings:
    """What a check of the workspace has found so far."""

    unsure: list[Entry] = field(default_factory=list[Entry])
    """New entries that an ignore file may name."""
    to_read: dict[str, tuple[Directory, str]] = field(
        default_factory=dict[str, tuple[Directory, str]]
    )
    """The directory and name of each file that is new or has another stamp, by path."""
    bytes_to_read: int = 0
    changes: dict[str, FoundChange] = field(default_factory=dict[str, FoundChange])
    """The changes by path."""


class Rules(NamedTuple):
    """What a snapshot must not store."""

    is_secret: Callable[[Path, str], bool]
    """Whether the file with this workspace and path must not be stored."""
    secrets: tuple[bytes, ...]
    """Values that no stored file may contain."""


class KnownWorkspace:
    """The known files of a workspace; call `close` at the end.

    `store` is the git directory for objects. Each file that changes is added to `not_in_index` by
    its path. After any exception the object must not be used. All methods block for as long as the
    disk takes.
    """

    def __init__(
        self,
        root: Path,
        store: Path,
        around: Surroundings,
        rules: Rules,
        not_in_index: dict[str, GitEntry | None],
    ) -> None:
        self.root: Final = root
        self.top: Final = Directory("")
        self.around: Final = around
        self.rules: Final = rules
        self.watch: Watch | None = None
        self._not_in_index: Final = not_in_index
        self._store: Final = store
        self.base: Final = f"{root}/"
        self._seen: dict[str, Directory] = {}
        # While the workspace was learned, files may have changed before they were watched.
        self._all_seen = True
        self.device: Final = os.lstat(root).st_dev
        self.has_links = False
        """Whether any file has several names; the watch sees writes only under the name used."""

    def close(self) -> None:
        """Stop watching."""
        if self.watch:
            self.watch.close()
            self.watch = None

    def directories_seen(self) -> list[Directory] | None:
        """Return the directories where the watch saw changes; None if any may have changed."""
        changed = self.watch.changed() if self.watch else None
        self._all_seen = self._all_seen or changed is None or self.has_links
        self._seen.update((directory.path, directory) for directory in changed or ())
        # A directory comes before its subdirectories.
        return None if self._all_seen else [self._seen[path] for path in sorted(self._seen)]

    def check(self, directories: Iterable[Directory] | None) -> Findings:
        """Compare stamps in these directories, or in all if None. Raises `Unclear`, `OSError`."""
        if not self.around.are_the_same():
            raise Unclear("a repository or an ignore file above the workspace has changed")
        here = os.lstat(self.root)
        if (here.st_ino, here.st_dev) != (self.top.inode, self.device):
            # No watch reports that a directory above the workspace was replaced.
            raise Unclear("the workspace was replaced by another directory")
        found = Findings()
        everything = directories is None
        for directory in [*self.top.walk()] if everything else directories:
            self._check(directory, found)
            self._seen.pop(directory.path, None)
            if everything:
                # A rule may now allow a file that was left out before.
                for name, file in directory.files.items():
                    if not file.blob:
                        self._must_read(directory, name, found)
        self._all_seen = self._all_seen and not everything
        return found

    def check_unseen(self) -> Findings:
        """Compare stamps where the watch saw no changes. Raises `Unclear` and `OSError`."""
        seen = self.directories_seen()
        if seen is None:
            return Findings()
        left = {directory.path for directory in seen}
        return self.check([one for one in self.top.walk() if one.path not in left])

    def decide(self, found: Findings, ignored: set[str]) -> None:
        """Add the unsure entries, except for the paths that git says are `ignored`."""
        unsure, found.unsure = found.unsure, []
        for directory, name, kind in unsure:
            if directory.path + name in ignored:
                directory.others[name] = kind
            else:
                self._admit(directory, name, kind, found)

    def read(self, found: Findings) -> None:
        """Read and store all files that are new or changed. Raises `Unclear` and `OSError`."""
        for path, (directory, name) in found.to_read.items():
            file, lines = self._read(path)
            before = directory.files.pop(name, None)
            if file:
                directory.files[name] = file
            self._note(path, before, file, lines, found)

    def write_tree(self) -> str:
        """Store the trees that have changed, and return the id of the workspace's tree."""
        return tree_of(self.top, lambda data: write_object(self._store, "tree", data)).hex()

    def _check(self, directory: Directory, found: Findings) -> None:
        if directory.is_gone:
            # A directory above it is gone, and `_forget` has recorded that.
            return
        read_ns = time.time_ns()
        path = self.base + directory.path
        try:
            state = os.lstat(path.rstrip("/"))
        except (FileNotFoundError, NotADirectoryError):
            state = None
        if state is None or not stat.S_ISDIR(state.st_mode) or state.st_dev != self.device:
            raise Unclear(f"{directory.path} changed while the workspace was being read")
        stamp = stamp_of(state)
        if self.watch and (directory.inode != state.st_ino or not self.watch.has(directory)):
            self.watch.remove(directory)
            self.watch.add(self.root, directory)
            # The known stamp is the old directory's; the new directory may have any stamp.
            directory.stamp = None
        directory.inode = state.st_ino
        if stamp != directory.stamp:
            directory.stamp = trusted(stamp, read_ns)
            self._list(directory, path, found)
        if stamp_at(path + IGNORE_FILE) != directory.ignore_stamp:
            raise Unclear(f"{directory.path}{IGNORE_FILE} has changed")
        for name in changed_names(path, directory.files):
            self._must_read(directory, name, found)

    def _list(self, directory: Directory, path: str, found: Findings) -> None:
        """Find names that are new, gone, or of another kind."""
        entries = entries_of(path)
        for name in [*directory.files, *directory.directories, *directory.others]:
            if name not in entries or not _is_same(directory, name, entries[name][0]):
                self._forget(directory, name, found)
        for name, (kind, inode) in entries.items():
            child = directory.directories.get(name)
            # Another directory has taken the place of this one.
            if child and child.inode != inode:
                self._check(child, found)
            elif directory.kind_of(name) is None:
                self._classify(directory, name, kind, found)

    def _forget(self, directory: Directory, name: str, found: Findings) -> None:
        if name == REPOSITORY:
            raise Unclear("a repository has gone")
        directory.others.pop(name, None)
        if file := directory.files.pop(name, None):
            self._note(directory.path + name, file, None, None, found)
        if child := directory.directories.pop(name, None):
            for gone in child.walk():
                for file_name, file in gone.files.items():
                    self._note(gone.path + file_name, file, None, None, found)
                gone.is_gone = True
                if self.watch:
                    self.watch.remove(gone)

    def _classify(self, directory: Directory, name: str, kind: Kind, found: Findings) -> None:
        if name in (REPOSITORY, IGNORE_FILE):
            raise Unclear(f"{directory.path}{name} is new")
        path = directory.path + name
        if is_left_out(name, kind):
            directory.others[name] = kind
        elif may_match(self.around.prefix + path, self.patterns(path)):
            found.unsure.append((directory, name, kind))
        else:
            self._admit(directory, name, kind, found)

    def _admit(self, directory: Directory, name: str, kind: Kind, found: Findings) -> None:
        """Add an entry that no ignore file names."""
        if kind != "d":
            self._must_read(directory, name, found)
            return
        child = Directory(f"{directory.path}{name}/")
        if child.path.count("/") > LEVELS_MAX:
            raise Unclear(f"{child.path} is very deep")
        directory.directories[name] = child
        self._check(child, found)

    def _must_read(self, directory: Directory, name: str, found: Findings) -> None:
        path = directory.path + name
        stamp = stamp_at(self.base + path)
        size_bytes = stamp[2] if stamp else 0
        found.to_read[path] = (directory, name)
        found.bytes_to_read += size_bytes if size_bytes <= FILE_BYTES_MAX else 0
        if len(found.to_read) > CHANGED_FILES_MAX or found.bytes_to_read > CHANGED_BYTES_MAX:
            raise Unclear("there are many changes")

    def patterns(self, path: str) -> Iterator[Patterns]:
        """Yield the patterns of each ignore file that may apply to a path."""
        yield from self.around.patterns
        for directory in self.top.way_to(path):
            yield directory.patterns

    def _read(self, path: str) -> tuple[File | None, int | None]:
        """Return a file's current state and number of lines; None if the file is gone."""
        read_ns = time.time_ns()
        location = Location(self.root / path, inside=True, text=path)
        try:
            with opened_parent(location) as (parent, name):
                # A change after this `stat` shows in the next stamp.
                state = os.stat(name, dir_fd=parent, follow_symlinks=False)
                stamp, mode = trusted(stamp_of(state), read_ns), mode_of(state)
                self.has_links = self.has_links or state.st_nlink > 1
                if state.st_size > FILE_BYTES_MAX or self.rules.is_secret(self.root, path):
                    return File(stamp, mode, b""), None
                if mode == LINK and name.lower() == ".gitmodules":
                    raise Unclear("git stores no link with this name")
                if mode == LINK:
                    data = os.fsencode(os.readlink(name, dir_fd=parent))
                else:
                    data = read_whole_in(parent, name, location)
        except PathProblem as problem:
            match problem.__cause__:
                case FileNotFoundError() | NotADirectoryError():
                    return None, None
                case PermissionError():
                    return File(None, PLAIN, b""), None
                case _:
                    raise Unclear(str(problem)) from problem
        if any(secret in data for secret in self.rules.secrets):
            return File(stamp, mode, b""), None
        return File(stamp, mode, write_object(self._store, "blob", data)), count_lines(data)

    def _note(
        self, path: str, before: File | None, after: File | None, lines: int | None, found: Findings
    ) -> None:
        """Record a change of a file, unless the snapshot stays the same."""
        old, new = _entry(before), _entry(after)
        if old == new:
            return
        self._not_in_index[path] = new
        for directory in self.top.way_to(path):
            directory.tree = b""
        if path in found.changes:
            # The file was recorded as gone, and has come back as something else.
            old = found.changes.pop(path).before
        if old != new:
            found.changes[path] = FoundChange(old, new, lines)


def _is_same(directory: Directory, name: str, kind: Kind) -> bool:
    """Whether an entry has its known kind; a file that became a link counts as the same kind."""
    return directory.kind_of(name) == kind or (name in directory.files and kind in "fl")


def _entry(file: File | None) -> GitEntry | None:
    return GitEntry(file.mode, file.blob.hex()) if file and file.blob else None
