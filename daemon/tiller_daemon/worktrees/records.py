"""The records of worktrees: one file each, which is replaced at every step."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec
import structlog
from msgspec import Struct

from tiller_daemon.private import make_directory, replace_private

log = structlog.get_logger()

WORKTREES_FOLDER: Final = "worktrees"
"""The folder for records of worktrees in the state directory."""

State = Literal["making", "ready", "removing", "removed"]


def exists(path: str | Path) -> bool:
    """Whether there is anything at a path, be it a link that leads nowhere."""
    return os.path.lexists(path)


def real(path: str | Path) -> Path:
    """Return a path without links."""
    return Path(os.path.realpath(path))


class Origin(Struct, frozen=True, omit_defaults=True):
    """What a worktree was made from. All paths are absolute and without links."""

    repository: str
    """The git directory (git's "common directory") that the worktree borrows from."""
    checkout: str
    """The top of the checkout from which the worktree was made."""
    base: str
    """The commit that the worktree began with."""
    base_branch: str = ""
    """The branch that the worktree is to land on; empty if no branch was checked out."""
    is_new: bool = True
    """Whether the worktree's branch did not exist before."""
    copied: dict[str, str] = {}
    """The files that were copied from the checkout, with a digest of their content."""
    borrowed: tuple[str, ...] = ()
    """What commands must see of the original repository: objects, configuration and hooks."""


class Record(Struct, frozen=True, omit_defaults=True):
    """A worktree."""

    id: str
    """A ULID, which also names the record's file."""
    name: str
    """The name of the worktree and of its branch."""
    path: str
    """The absolute path of its top, without links."""
    origin: Origin
    """What it was made from."""
    state: State = "making"
    """What it is, or what is being done to it."""
    published: str = ""
    """The commit of the branch in the original repository, as the daemon has left it."""
    landed: str = ""
    """The commit of the worktree that was last landed, perhaps as another commit."""
    is_rebasing: bool = False
    """Whether a rebase that lands the worktree is running."""
    by_check: tuple[str, ...] = ()
    """Files that git does not track and that the last `check` has left: nobody misses them."""
    trash: str = ""
    """Where the worktree is once it was removed."""
    removed_at: float = 0.0
    """When the worktree was removed, in Unix seconds."""


class Records:
    """The records in a directory, which are read once; only the daemon writes them.

    Threads may read at any time, while one task puts and drops records.
    """

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._known = {one.id: one for one in self._read()}

    def put(self, record: Record) -> None:
        """Store a record durably."""
        make_directory(self._directory)
        replace_private(self._directory / f"{record.id}.json", msgspec.json.encode(record))
        self._known = {**self._known, record.id: record}

    def drop(self, record: Record) -> None:
        """Forget a record."""
        (self._directory / f"{record.id}.json").unlink(missing_ok=True)
        self._known = {name: one for name, one in self._known.items() if name != record.id}

    def all(self) -> tuple[Record, ...]:
        """Return all records, the oldest first."""
        return tuple(self._known.values())

    def around(self, path: str | Path) -> Record | None:
        """Return the worktree that contains a path (absolute, without links), unless removed."""
        place = Path(path)
        present = (one for one in self.all() if one.state == "ready")
        return next((one for one in present if place.is_relative_to(one.path)), None)

    def checkout_of(self, path: str) -> str:
        """Return a place in a worktree as it is in its checkout; any other path as it is."""
        record = self.around(path)
        if record is None:
            return path
        return str(Path(record.origin.checkout) / Path(path).relative_to(record.path))

    def beside(self, path: str | Path) -> tuple[str, ...]:
        """Return the places in worktrees that are like a path (absolute, without links)."""
        place = Path(path)
        return tuple(
            str(Path(one.path) / place.relative_to(one.origin.checkout))
            for one in self.all()
            if place.is_relative_to(one.origin.checkout)
        )

    def borrowed(self, path: Path) -> tuple[Path, ...]:
        """Return what commands in a workspace must see of the repository that it borrows from."""
        record = self.around(path)
        return tuple(map(Path, record.origin.borrowed)) if record else ()

    def off_limits(self, path: Path) -> tuple[Path, ...]:
        """Return where nothing in a worktree may write: the other checkouts of its repository."""
        record = self.around(path)
        if record is None:
            return ()
        origin = record.origin
        others = (one.path for one in self.all() if one.origin.repository == origin.repository)
        places = (origin.repository, origin.checkout, *others)
        return tuple(Path(one) for one in dict.fromkeys(places) if one != record.path)

    def _read(self) -> Iterator[Record]:
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(self._directory))  # noqa: PTH208 - only names are needed
        for name in names:
            if not name.endswith(".json") or name.startswith("."):
                continue
            try:
                text = (self._directory / name).read_bytes()
                yield msgspec.json.decode(text, type=Record)
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("worktree_record_unreadable", file=name, reason=str(error))
