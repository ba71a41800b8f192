"""Changes several files: all of them or none, even if the daemon is killed in the middle.

A journal is written first. Then the new contents are staged beside the files, and each old file
gets a second name as a backup. Only then are the new files renamed into place. If anything fails
before the last rename, the files are restored from the backups, by the same call or when the daemon
starts again. A file that something else has changed in the meantime is left alone. The journal
stays until every temporary file is removed.
"""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

from msgspec import Struct

from tiller_daemon.files.journal import read_journal, sync_directory, write_journal
from tiller_daemon.files.paths import (
    Location,
    PathProblem,
    open_parent,
    os_errors_explained,
    printable,
)
from tiller_daemon.files.whole_files import (
    fingerprint,
    read_whole_in,
    state_of,
    temporary_name,
    writable_state,
    write_new,
)
from tiller_daemon.private import make_directory

UNFINISHED: Final = ".journal"
"""The suffix of a journal whose changes must be rolled back."""

UNTIDY: Final = ".untidy"
"""The suffix of a journal that only lists temporary files, which may still be there."""


class Change(Struct, frozen=True):
    """A change of one file; None stands for a missing file."""

    location: Location
    before: bytes | None
    """The content that the file must have now."""
    after: bytes | None
    """The content that the file will have."""
    like: Location | None = None
    """A new file gets the mode and owner of the file at this location, if there is one."""


class _Step(Struct, frozen=True):
    """A change as the journal records it."""

    path: bytes
    """The path, absolute and without links; in bytes, as it need not be text."""
    text: str
    """The path in messages."""
    staged: str
    """The name of a file with the new content, in the same directory."""
    backup: str
    """The second name of the old file, in the same directory."""
    before: str | None
    """The fingerprint of the old content; None for a missing file."""
    after: str | None
    """The fingerprint of the new content; None for a missing file."""


class _Journal(Struct, frozen=True):
    steps: tuple[_Step, ...]
    made: tuple[bytes, ...]
    """Directories that are made for new files, parents first."""


def change_all(changes: Sequence[Change], journals: Path) -> None:
    """Make all changes or none, and wait until they are on disk.

    `journals` is a directory of the daemon. Blocks for as long as the disk takes. Raises
    `PathProblem`, whose message names the files that could not be changed back, if any.
    """
    journal = _plan(changes)
    path = _write_journal(journal, journals)
    placed: list[_Step] = []
    with _Parents() as parents:
        try:
            _make_directories(journal, parents)
            for change, step in zip(changes, journal.steps, strict=True):
                _stage(change, step, parents)
            for change, step in zip(changes, journal.steps, strict=True):
                _back_up(change, step, parents)
            for step in journal.steps:
                # Recorded first, because a step may fail after it took effect.
                placed.append(step)
                _put_in_place(step, parents)
            parents.sync()
            untidy = path.with_suffix(UNTIDY)
            path.rename(untidy)
        except BaseException as failure:
            # In a directory that was never opened, nothing was done, so nothing must be undone.
            reached = tuple(step for step in journal.steps if parents.has_opened(_location(step)))
            is_tidy = _roll_back(_Journal(reached, journal.made), parents)
            changed = [step.text for step in placed if not _is_as_before(step, parents)]
            _close_journal(path, is_tidy=is_tidy)
            if isinstance(failure, OSError):
                failure = PathProblem(f"The change can't be completed: {failure.strerror}.")
            if isinstance(failure, PathProblem):
                raise PathProblem(f"{failure} {_outcome(changed)}") from failure
            raise
        # The change is committed. A later failure only leaves something to remove at the next
        # start of the daemon.
        if not _is_atomic(journal):
            with suppress(OSError):
                sync_directory(journals)
        _close_journal(untidy, is_tidy=_clean_up(journal, parents))


def recover_changes(journals: Path) -> list[str]:
    """Roll back changes that were unfinished when the daemon died, and remove temporary files.

    Returns the paths of the restored files. Blocks. If a file can't be reached, its journal is
    tried again at the next start.
    """
    restored: list[str] = []
    for path in sorted(journals.glob("*")):
        journal = read_journal(path, _Journal)
        if journal is None:
            # Usually the daemon died while it wrote the journal, before it changed any file.
            path.unlink(missing_ok=True)
            continue
        with _Parents() as parents:
            if path.suffix == UNFINISHED:
                changed = [step for step in journal.steps if not _is_as_before(step, parents)]
                is_tidy = _roll_back(journal, parents)
                back = (step for step in changed if _is_as_before(step, parents))
                restored += [os.fsdecode(step.path) for step in back]
            else:
                is_tidy = _clean_up(journal, parents)
        if is_tidy:
            path.unlink(missing_ok=True)
    return restored


class _Parents(ExitStack):
    """The directories of the changed files, each opened once and kept open.

    If such a directory is renamed or replaced by a link, all steps, including a rollback, still
    happen in the directory that was opened.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened: dict[str, int] = {}

    @contextmanager
    def of(self, location: Location) -> Generator[tuple[int, str]]:
        """Yield the directory of a location and the name in it, like `opened_parent`."""
        directory, name = os.path.split(location.path)
        with os_errors_explained(location):
            if directory not in self._opened:
                self._opened[directory] = open_parent(location)
                self.callback(os.close, self._opened[directory])
            yield self._opened[directory], name or "."

    def has_opened(self, location: Location) -> bool:
        """Whether a location's directory has been opened."""
        return os.path.split(location.path)[0] in self._opened

    def sync(self) -> None:
        """Sync the names in all opened directories to disk."""
        for opened in self._opened.values():
            sync_directory(".", opened)


def _plan(changes: Iterable[Change]) -> _Journal:
    steps: list[_Step] = []
    made: dict[bytes, None] = {}
    for change in changes:
        path = change.location.path
        if change.after is not None:
            # Parents first, so that they can be created in this order and removed in reverse.
            missing = takewhile(lambda above: not os.path.lexists(above), path.parents)
            made.update(dict.fromkeys(os.fsencode(above) for above in reversed([*missing])))
        steps.append(
            _Step(
                path=os.fsencode(path),
                text=change.location.text,
                staged=temporary_name(),
                backup=temporary_name(),
                before=None if change.before is None else fingerprint(change.before),
                after=None if change.after is None else fingerprint(change.after),
            )
        )
    return _Journal(tuple(steps), tuple(made))


def _is_atomic(journal: _Journal) -> bool:
    """Whether a single system call makes the change, so that there is nothing to roll back."""
    return len(journal.steps) == 1


def _write_journal(journal: _Journal, journals: Path) -> Path:
    is_atomic = _is_atomic(journal)
    path = journals / f"change{temporary_name()}{UNTIDY if is_atomic else UNFINISHED}"
    try:
        make_directory(journals)
        # An atomic change does not wait for its journal. At worst, a power failure loses the
        # journal, and a temporary file stays behind.
        write_journal(path, journal, durable=not is_atomic)
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise PathProblem(
            f"No file was changed: the journal of the change can't be written: {error.strerror}."
        ) from error
    return path


def _make_directories(journal: _Journal, parents: _Parents) -> None:
    for made in journal.made:
        with parents.of(_made_at(made)) as (parent, name), suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)


def _stage(change: Change, step: _Step, parents: _Parents) -> None:
    """Write the new content beside the file."""
    with parents.of(change.location) as (parent, name):
        like = writable_state(parent, name, change.location)
        if like is None and change.like is not None:
            like = state_of(change.like)
        if change.after is not None:
            write_new(parent, step.staged, change.after, like)


def _back_up(change: Change, step: _Step, parents: _Parents) -> None:
    """Give the old file a second name, and check that it has the expected content."""
    with parents.of(change.location) as (parent, name):
        if change.before is not None:
            try:
                os.link(
                    name, step.backup, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False
                )
            except FileNotFoundError:
                raise PathProblem(_has_changed(change.location)) from None
            except OSError:
                # Some file systems have no hard links, and not every file may get one.
                like = os.stat(name, dir_fd=parent, follow_symlinks=False)
                write_new(parent, step.backup, change.before, like)
        if _content(change.location, parents) != change.before:
            raise PathProblem(_has_changed(change.location))


def _put_in_place(step: _Step, parents: _Parents) -> None:
    with parents.of(_location(step)) as (parent, name):
        if step.after is None:
            os.unlink(name, dir_fd=parent)
        else:
            os.rename(step.staged, name, src_dir_fd=parent, dst_dir_fd=parent)


def _roll_back(journal: _Journal, parents: _Parents) -> bool:
    """Restore the backups and clean up; return whether no temporary file is left.

    Idempotent. If one file can't be restored, the others are restored all the same.
    """
    for step in reversed(journal.steps):
        with suppress(PathProblem):
            _restore(step, parents)
    return _clean_up(journal, parents)


def _restore(step: _Step, parents: _Parents) -> None:
    now = _fingerprint_of(_location(step), parents)
    if now not in (step.before, step.after):
        return
    with parents.of(_location(step)) as (parent, name):
        if step.before is None:
            # While the staged file still exists, the file at the path is not ours.
            if now is not None and _content(_location(step, step.staged), parents) is None:
                os.unlink(name, dir_fd=parent)
        elif _fingerprint_of(_location(step, step.backup), parents) == step.before:
            os.rename(step.backup, name, src_dir_fd=parent, dst_dir_fd=parent)


def _is_as_before(step: _Step, parents: _Parents) -> bool:
    with suppress(PathProblem):
        return _fingerprint_of(_location(step), parents) == step.before
    return False


def _clean_up(journal: _Journal, parents: _Parents) -> bool:
    """Remove temporary files, and new directories that are empty.

    Returns whether no temporary file is left.
    """
    is_gone = True
    for step in journal.steps:
        for name in (step.staged, step.backup):
            try:
                with parents.of(_location(step)) as (parent, _):
                    os.unlink(name, dir_fd=parent)
            except PathProblem as problem:
                # A directory that is gone took its temporary files along.
                is_gone &= isinstance(problem.__cause__, FileNotFoundError)
    for made in reversed(journal.made):
        with suppress(PathProblem), parents.of(_made_at(made)) as (parent, name):
            os.rmdir(name, dir_fd=parent)
    return is_gone


def _close_journal(path: Path, *, is_tidy: bool) -> None:
    """Remove a journal if `is_tidy`; otherwise keep it, but only for cleaning up."""
    # The journal must not roll anything back later, when the files may have changed again.
    with suppress(OSError):
        if is_tidy:
            path.unlink(missing_ok=True)
        else:
            path.rename(path.with_suffix(UNTIDY))


def _location(step: _Step, beside: str = "") -> Location:
    path = Path(os.fsdecode(step.path))
    return Location(path.with_name(beside) if beside else path, inside=False, text=step.text)


def _made_at(made: bytes) -> Location:
    return Location(Path(os.fsdecode(made)), inside=False, text=printable(os.fsdecode(made)))


def _content(location: Location, parents: _Parents) -> bytes | None:
    with parents.of(location) as (parent, name):
        try:
            return read_whole_in(parent, name, location)
        except FileNotFoundError:
            return None


def _fingerprint_of(location: Location, parents: _Parents) -> str | None:
    content = _content(location, parents)
    return None if content is None else fingerprint(content)


def _has_changed(location: Location) -> str:
    return (
        f"{location.text} has changed since it was last read. Read it again, then repeat the "
        "change."
    )


def _outcome(changed: Sequence[str]) -> str:
    if not changed:
        return "No file was changed."
    return (
        f"The change could not be undone in {', '.join(changed)}. "
        "Read what is there now before you go on."
    )
