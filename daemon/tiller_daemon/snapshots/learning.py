"""Learns the files of a workspace from git's index and a walk through all directories."""

import os
from typing import Final

from tiller_daemon.snapshots.directories import (
    Directory,
    Entry,
    File,
    Kind,
    entries_of,
    mode_of,
    stamp_of,
    tree_of,
    trusted,
)
from tiller_daemon.snapshots.git_index import IndexEntry
from tiller_daemon.snapshots.ignore_files import is_left_out, may_match
from tiller_daemon.snapshots.known_workspace import LEVELS_MAX, KnownWorkspace, Unclear
from tiller_daemon.snapshots.objects import object_of
from tiller_daemon.snapshots.surroundings import (
    IGNORE_FILE,
    REPOSITORY,
    firm_stamp_at,
    patterns_at,
)

DIRECTORIES_MAX: Final = 5_000
"""The most directories that a known workspace may have; each takes one of the system's watches."""

FILES_MAX: Final = 20_000
"""The most files that a known workspace may have; each takes some 500 bytes of memory."""


class Learner:
    """Fills a `KnownWorkspace` right after git took a snapshot.

    `index` is git's index of the project. `listed` are the names in the workspace that git listed
    before it updated the index: new and changed files, files that must not be stored, and
    repositories with a slash at the end. `began_ns` is a time before git listed them. All methods
    block, and raise `Unclear` and `OSError`.
    """

    def __init__(
        self,
        known: KnownWorkspace,
        index: dict[bytes, IndexEntry],
        listed: set[str],
        began_ns: int,
    ) -> None:
        self._known: Final = known
        prefix = os.fsencode(known.around.prefix)
        self._index: Final = {
            os.fsdecode(path.removeprefix(prefix)): entry
            for path, entry in index.items()
            if path.startswith(prefix)
        }
        self._listed: Final = listed
        self._began_ns: Final = began_ns
        self._tracked: Final = {
            path[:at] for path in self._index for at, one in enumerate(path) if one == "/"
        }
        self._count = 0
        self.unsure: list[Entry] = []
        """Entries that are not in git's index and that an ignore file may name."""

    def begin(self) -> None:
        """Walk all directories that are not ignored for sure; entries may remain unsure."""
        if len(self._index) > FILES_MAX:
            raise Unclear("there are many files")
        self._visit(self._known.top)

    def decide(self, ignored: set[str]) -> None:
        """Continue with the unsure entries, except for the paths that git says are `ignored`."""
        unsure, self.unsure = self.unsure, []
        for directory, name, kind in unsure:
            if directory.path + name in ignored:
                directory.others[name] = kind
            else:
                self._admit(directory, name, kind)

    def finish(self, tree: str) -> None:
        """Compare the result with the tree that git wrote; raise `Unclear` if they differ."""
        if tree_of(self._known.top, lambda data: object_of("tree", data)[0]).hex() != tree:
            raise Unclear("the workspace changed while it was being read")

    def _visit(self, directory: Directory) -> None:
        self._count += 1
        if self._count > DIRECTORIES_MAX:
            raise Unclear("there are many directories")
        path = self._known.base + directory.path
        if self._known.watch:
            self._known.watch.add(self._known.root, directory)
        state = os.lstat(path.rstrip("/"))
        # Numbers of files are unique only within a file system.
        if state.st_dev != self._known.device:
            raise Unclear("another file system is mounted in the workspace")
        directory.inode = state.st_ino
        directory.stamp = trusted(stamp_of(state), self._began_ns)
        directory.ignore_stamp = firm_stamp_at(path + IGNORE_FILE)
        directory.patterns = patterns_at(path + IGNORE_FILE)
        for name, (kind, _) in entries_of(path).items():
            self._place(directory, name, kind)

    def _place(self, directory: Directory, name: str, kind: Kind) -> None:
        path = directory.path + name
        if name == REPOSITORY:
            directory.others[name] = kind
            if directory.path:
                self._add_repository(path)
        elif is_left_out(name, kind):
            directory.others[name] = kind
        elif f"{path}/" in self._listed:
            directory.others[name] = kind
            self._add_repository(f"{path}/{REPOSITORY}")
        elif path in self._tracked or path in self._index or path in self._listed:
            self._admit(directory, name, kind)
        elif may_match(self._known.around.prefix + path, self._known.patterns(path)):
            self.unsure.append((directory, name, kind))
        else:
            self._admit(directory, name, kind)

    def _admit(self, directory: Directory, name: str, kind: Kind) -> None:
        path = directory.path + name
        if kind == "d":
            if path.count("/") >= LEVELS_MAX:
                raise Unclear(f"{path} is very deep")
            child = directory.directories[name] = Directory(f"{path}/")
            self._visit(child)
        elif path in self._index or path in self._listed:
            directory.files[name] = self._file(path)
        else:
            # The file was created after git listed the names; the next snapshot finds it.
            directory.stamp = None

    def _add_repository(self, mark: str) -> None:
        self._known.around.add_repository(self._known.base + mark, self._began_ns)

    def _file(self, path: str) -> File:
        state = os.lstat(self._known.base + path)
        self._known.has_links = self._known.has_links or state.st_nlink > 1
        # A change after git began to read must show in the stamp.
        stamp = trusted(stamp_of(state), self._began_ns)
        entry = self._index.get(path)
        if entry is None:
            return File(stamp, mode_of(state), b"")
        same = stamp is not None and entry.is_of(stamp)
        return File(stamp if same else None, entry.mode, entry.blob)
