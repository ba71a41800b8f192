"""Changes of files, all of a call's or none, also when the daemon is killed in the middle.

Before anything else a journal says what will be done. New contents are written beside the files,
what they replace is kept beside them as well; then the new ones take their places. Until that is
done, whatever happens is taken back from what was kept: by the failing change itself, or when the
daemon starts again. A file that somebody else has changed by then stays theirs. Nothing that was
put beside a file is forgotten: a journal stays until all of it is removed.
"""

import errno
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec
from msgspec import Struct

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
from tiller_daemon.private import make_directory, open_private

UNFINISHED: Final = ".journal"
UNTIDY: Final = ".untidy"
"""How a journal's name ends: of one whose changes are to be taken back, and of one that only says
what may lie about."""

UNSYNCED: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""What file systems answer that can't sync a directory, among them some of networks."""


class Change(Struct, frozen=True):
    """What becomes of one file: `before` are its bytes as they must be, `after` as they will be.

    None stands for no file. A new file gets mode and owner of the file at `like`, if there is one.
    """

    location: Location
    before: bytes | None
    after: bytes | None
    like: Location | None = None


class _Step(Struct, frozen=True):
    """A change as the journal has it: paths as bytes, contents as fingerprints.

    `staged` is the name of the new content beside the file, `kept` that of the old one.
    """

    path: bytes
    text: str
    staged: str
    kept: str
    before: str | None
    after: str | None


class _Journal(Struct, frozen=True):
    steps: tuple[_Step, ...]
    made: tuple[bytes, ...]
    """Directories that are made on the way, upper ones first."""


def change_all(changes: Sequence[Change], journals: Path) -> None:
    """Make all changes or none; on disk when it returns. `journals` is a directory of the daemon's.

    Blocks for as long as the disk takes. Raises `PathProblem`; then nothing has changed, or the
    message says what has.
    """
    journal = _plan(changes)
    place = _write_journal(journal, journals)
    placed: list[_Step] = []
    with _Parents() as parents:
        try:
            _make_directories(journal, parents)
            for change, step in zip(changes, journal.steps, strict=True):
                _stage(change, step, parents)
            for change, step in zip(changes, journal.steps, strict=True):
                _keep(change, step, parents)
            for step in journal.steps:
                placed.append(step)
                _put_in_place(step, parents)
            parents.sync()
            untidy = place.with_suffix(UNTIDY)
            place.rename(untidy)
        except BaseException as failure:
            # Where no directory was opened nothing was done, and nothing may be done now.
            reached = tuple(step for step in journal.steps if parents.hold(_location(step)))
            is_tidy = _take_back(_Journal(reached, journal.made), parents)
            left = [step.text for step in placed if not _is_as_before(step, parents)]
            _close(place, is_tidy=is_tidy)
            if isinstance(failure, OSError):
                failure = PathProblem(f"The change can't be completed: {failure.strerror}.")
            if isinstance(failure, PathProblem):
                raise PathProblem(f"{failure} {_what_is_left(left)}") from failure
            raise
        # From here on it is done; what fails now only leaves something to tidy up at a start.
        if not _is_atomic(journal):
            with suppress(OSError):
                _sync_directory(journals)
        _close(untidy, is_tidy=_tidy_up(journal, parents))


def recover_changes(journals: Path) -> list[str]:
    """Take back what was being changed when the daemon died, and remove what it left.

    Returns the files that were put back. Blocks. What can't be reached is tried at the next start.
    """
    restored: list[str] = []
    for place in sorted(journals.glob("*")):
        journal = _read_journal(place)
        if journal is None:
            # It was being written: nothing had been done.
            place.unlink(missing_ok=True)
            continue
        with _Parents() as parents:
            if place.suffix == UNFINISHED:
                changed = [step for step in journal.steps if not _is_as_before(step, parents)]
                is_tidy = _take_back(journal, parents)
                back = (step for step in changed if _is_as_before(step, parents))
                restored += [os.fsdecode(step.path) for step in back]
            else:
                is_tidy = _tidy_up(journal, parents)
        if is_tidy:
            place.unlink(missing_ok=True)
    return restored


class _Parents:
    """The directories of a change's files, each opened once and held.

    What becomes of their names meanwhile leads nobody elsewhere, and hides nothing from the way
    back.
    """

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}

    def __enter__(self) -> "_Parents":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        for opened in self._opened.values():
            os.close(opened)

    @contextmanager
    def of(self, location: Location) -> Generator[tuple[int, str]]:
        """Give the directory that a location is in, and the name there, like `opened_parent`."""
        directory, name = os.path.split(location.path)
        with os_errors_explained(location):
            if directory not in self._opened:
                self._opened[directory] = open_parent(location)
            yield self._opened[directory], name or "."

    def hold(self, location: Location) -> bool:
        """Whether the directory that a location is in was opened."""
        return os.path.split(location.path)[0] in self._opened

    def sync(self) -> None:
        """Bring the names in all of them to the disk."""
        for opened in self._opened.values():
            _sync_directory(".", opened)


def _plan(changes: Iterable[Change]) -> _Journal:
    steps: list[_Step] = []
    made: dict[bytes, None] = {}
    for change in changes:
        path = change.location.path
        if change.after is not None:
            missing = takewhile(lambda above: not os.path.lexists(above), path.parents)
            made.update(dict.fromkeys(os.fsencode(above) for above in reversed([*missing])))
        steps.append(
            _Step(
                path=os.fsencode(path),
                text=change.location.text,
                staged=temporary_name(),
                kept=temporary_name(),
                before=None if change.before is None else fingerprint(change.before),
                after=None if change.after is None else fingerprint(change.after),
            )
        )
    return _Journal(tuple(steps), tuple(made))


def _is_atomic(journal: _Journal) -> bool:
    """Whether one system call does it all, so that there is no half of it to be taken back."""
    return len(journal.steps) == 1


def _write_journal(journal: _Journal, journals: Path) -> Path:
    """Write a journal; one of more than one step is on disk then."""
    place = journals / f"change{temporary_name()}{UNTIDY if _is_atomic(journal) else UNFINISHED}"
    try:
        make_directory(journals)
        content = msgspec.json.encode(journal)
        # Without power a journal of one step may get lost, and at the worst a name is left then.
        with open(place, "xb", opener=open_private) as stream:
            stream.write(content)
            if not _is_atomic(journal):
                stream.flush()
                os.fsync(stream.fileno())
        if not _is_atomic(journal):
            _sync_directory(journals)
    except OSError as error:
        with suppress(OSError):
            place.unlink(missing_ok=True)
        raise PathProblem(
            f"No file was changed: the journal of the change can't be written: {error.strerror}."
        ) from error
    return place


def _read_journal(place: Path) -> _Journal | None:
    try:
        return msgspec.json.decode(place.read_bytes(), type=_Journal)
    except (OSError, msgspec.MsgspecError):
        return None


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


def _keep(change: Change, step: _Step, parents: _Parents) -> None:
    """Give the old content a second name, and see that it is what it is taken for."""
    with parents.of(change.location) as (parent, name):
        if change.before is not None:
            try:
                os.link(
                    name, step.kept, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False
                )
            except FileNotFoundError:
                raise PathProblem(_changed(change.location)) from None
            except OSError:
                # Not every file system has links, and not every file may get one.
                like = os.stat(name, dir_fd=parent, follow_symlinks=False)
                write_new(parent, step.kept, change.before, like)
        if _content(change.location, parents) != change.before:
            raise PathProblem(_changed(change.location))


def _put_in_place(step: _Step, parents: _Parents) -> None:
    with parents.of(_location(step)) as (parent, name):
        if step.after is None:
            os.unlink(name, dir_fd=parent)
        else:
            os.rename(step.staged, name, src_dir_fd=parent, dst_dir_fd=parent)


def _take_back(journal: _Journal, parents: _Parents) -> bool:
    """Restore what was kept and tidy up; may be done twice, goes on after a failure."""
    for step in reversed(journal.steps):
        with suppress(PathProblem):
            _restore(step, parents)
    return _tidy_up(journal, parents)


def _restore(step: _Step, parents: _Parents) -> None:
    now = _fingerprint_of(_location(step), parents)
    if now not in (step.before, step.after):
        return
    with parents.of(_location(step)) as (parent, name):
        if step.before is None:
            if now is not None and _content(_beside(step, step.staged), parents) is None:
                os.unlink(name, dir_fd=parent)
        elif _fingerprint_of(_beside(step, step.kept), parents) == step.before:
            os.rename(step.kept, name, src_dir_fd=parent, dst_dir_fd=parent)


def _is_as_before(step: _Step, parents: _Parents) -> bool:
    with suppress(PathProblem):
        return _fingerprint_of(_location(step), parents) == step.before
    return False


def _tidy_up(journal: _Journal, parents: _Parents) -> bool:
    """Remove what lies beside the files and directories that were made for nothing.

    Returns whether nothing can lie there any more.
    """
    is_gone = True
    for step in journal.steps:
        for name in (step.staged, step.kept):
            try:
                with parents.of(_location(step)) as (parent, _):
                    os.unlink(name, dir_fd=parent)
            except PathProblem as problem:
                is_gone &= isinstance(problem.__cause__, FileNotFoundError)
    for made in reversed(journal.made):
        with suppress(PathProblem), parents.of(_made_at(made)) as (parent, name):
            os.rmdir(name, dir_fd=parent)
    return is_gone


def _close(place: Path, *, is_tidy: bool) -> None:
    """Remove a journal; one that is still needed for tidying up takes nothing back any more."""
    # By the next start the files may have changed again.
    with suppress(OSError):
        if is_tidy:
            place.unlink(missing_ok=True)
        else:
            place.rename(place.with_suffix(UNTIDY))


def _location(step: _Step) -> Location:
    return Location(Path(os.fsdecode(step.path)), inside=False, text=step.text)


def _beside(step: _Step, name: str) -> Location:
    return Location(Path(os.fsdecode(step.path)).with_name(name), inside=False, text=step.text)


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


def _sync_directory(directory: Path | str, parent: int | None = None) -> None:
    # One that may not be listed can't be opened so; then its names reach the disk by themselves.
    with suppress(PermissionError):
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno not in UNSYNCED:
                raise
        finally:
            os.close(opened)


def _changed(location: Location) -> str:
    return f"{location.text} has changed since it was last read. Read it again, then repeat this."


def _what_is_left(left: Sequence[str]) -> str:
    if not left:
        return "No file was changed."
    return f"What was done could not be taken back in {', '.join(left)}. Read it again."
