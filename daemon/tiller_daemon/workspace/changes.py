"""Changes of several files, all of them or none, also when the daemon is killed in the middle.

Before anything else a journal says on disk what will be done. New contents are written beside the
files, what they replace is kept beside them as well; then the new ones take their places. Until the
journal is marked as done, whatever happens is taken back from what was kept: by the failing change
itself, or when the daemon starts again. A file that somebody else has changed by then stays theirs.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tiller_daemon.workspace.files import (
    fingerprint,
    read_whole,
    state_of,
    temporary_name,
    writable_state,
    write_new,
)
from tiller_daemon.workspace.paths import Location, PathProblem, opened_parent

UNFINISHED: Final = ".journal"
DONE: Final = ".done"
UNFINISHED_JOURNAL: Final = ".new"
"""How the files end that say what is being changed, what is done, and what is not written yet."""


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

    Blocks for as long as the disk takes. Raises `PathProblem`; then nothing has changed.
    """
    journal = _plan(changes)
    place = _write_journal(journal, journals)
    try:
        for change, step in zip(changes, journal.steps, strict=True):
            _stage(change, step)
        for change, step in zip(changes, journal.steps, strict=True):
            _keep(change, step)
        for step in journal.steps:
            _put_in_place(step)
        for step in {os.path.dirname(step.path): step for step in journal.steps}.values():  # noqa: PTH120
            with opened_parent(_location(step)) as (parent, _):
                _sync_directory(".", parent)
        done = place.with_suffix(DONE)
        place.rename(done)
    except BaseException as failure:
        _take_back(journal)
        place.unlink(missing_ok=True)
        if isinstance(failure, OSError):
            failure = PathProblem(f"The change can't be completed: {failure.strerror}.")
        if isinstance(failure, PathProblem):
            raise PathProblem(f"{failure} No file was changed.") from failure
        raise
    # From here on it is done; what fails now only leaves something to tidy up at the next start.
    with suppress(OSError):
        _sync_directory(journals)
    _clear(journal)
    with suppress(OSError):
        done.unlink(missing_ok=True)


def recover_changes(journals: Path) -> list[str]:
    """Take back what was being changed when the daemon died.

    Returns the files that are as they were before. Blocks. What can't be restored stays.
    """
    restored: list[str] = []
    for place in sorted(journals.glob("*")):
        journal = _read_journal(place)
        if journal and place.suffix == UNFINISHED:
            _take_back(journal)
            restored += [os.fsdecode(step.path) for step in journal.steps]
        elif journal:
            _clear(journal)
        place.unlink(missing_ok=True)
    return restored


def _plan(changes: Iterable[Change]) -> _Journal:
    steps: list[_Step] = []
    made: dict[bytes, None] = {}
    for change in changes:
        path = change.location.path
        if change.after is not None:
            missing = [above for above in path.parents if not os.path.lexists(above)]
            made.update(dict.fromkeys(os.fsencode(above) for above in reversed(missing)))
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


def _write_journal(journal: _Journal, journals: Path) -> Path:
    place = journals / f"change{temporary_name()}{UNFINISHED}"
    unfinished = place.with_suffix(UNFINISHED_JOURNAL)
    try:
        journals.mkdir(mode=0o700, parents=True, exist_ok=True)
        with unfinished.open("xb") as stream:
            stream.write(msgspec.json.encode(journal))
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(place)
        _sync_directory(journals)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
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


def _stage(change: Change, step: _Step) -> None:
    """Write the new content beside the file."""
    if change.after is None:
        return
    with opened_parent(change.location, make=True) as (parent, name):
        like = writable_state(parent, name, change.location)
        if like is None and change.like is not None:
            like = state_of(change.like)
        write_new(parent, step.staged, change.after, like)


def _keep(change: Change, step: _Step) -> None:
    """Give the old content a second name, and see that it is what it is taken for."""
    if change.before is None:
        if state_of(change.location) is not None:
            raise PathProblem(_changed(change.location))
        return
    with opened_parent(change.location) as (parent, name):
        state = writable_state(parent, name, change.location)
        try:
            os.link(name, step.kept, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            raise PathProblem(_changed(change.location)) from None
        except OSError:
            # Not every file system has links, and not every file may get one.
            write_new(parent, step.kept, change.before, state)
    if read_whole(change.location) != change.before:
        raise PathProblem(_changed(change.location))


def _put_in_place(step: _Step) -> None:
    with opened_parent(_location(step)) as (parent, name):
        if step.after is None:
            os.unlink(name, dir_fd=parent)
        else:
            os.rename(step.staged, name, src_dir_fd=parent, dst_dir_fd=parent)


def _take_back(journal: _Journal) -> None:
    """Restore what was kept, remove what was made; may be done twice, goes on after a failure."""
    for step in reversed(journal.steps):
        with suppress(PathProblem):
            _restore(step)
    _clear(journal)
    for made in reversed(journal.made):
        location = Location(Path(os.fsdecode(made)), inside=False, text="")
        with suppress(PathProblem), opened_parent(location) as (parent, name):
            os.rmdir(name, dir_fd=parent)


def _restore(step: _Step) -> None:
    location = _location(step)
    now = _fingerprint_of(location)
    if now not in (step.before, step.after):
        return
    with opened_parent(location) as (parent, name):
        if step.before is None:
            if now is not None and state_of(_beside(step, step.staged)) is None:
                os.unlink(name, dir_fd=parent)
        elif _fingerprint_of(_beside(step, step.kept)) == step.before:
            os.rename(step.kept, name, src_dir_fd=parent, dst_dir_fd=parent)


def _clear(journal: _Journal) -> None:
    """Remove what was put beside the files."""
    for step in journal.steps:
        for beside in (step.staged, step.kept):
            with (
                suppress(PathProblem),
                opened_parent(_location(step)) as (parent, _),
                suppress(FileNotFoundError),
            ):
                os.unlink(beside, dir_fd=parent)


def _location(step: _Step) -> Location:
    return Location(Path(os.fsdecode(step.path)), inside=False, text=step.text)


def _beside(step: _Step, name: str) -> Location:
    return Location(Path(os.fsdecode(step.path)).with_name(name), inside=False, text=step.text)


def _fingerprint_of(location: Location) -> str | None:
    if state_of(location) is None:
        return None
    return fingerprint(read_whole(location))


def _sync_directory(directory: Path | str, parent: int | None = None) -> None:
    # One that may not be listed can't be opened so; then its names reach the disk by themselves.
    with suppress(PermissionError):
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _changed(location: Location) -> str:
    return f"{location.text} has changed since it was last read. Read it again, then repeat this."
