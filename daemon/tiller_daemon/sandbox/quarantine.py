"""Puts aside what a command made and other programs would execute by themselves.

A mount protects what exists, but no mount can keep a command from creating a name in a directory
where it may write. So the entries that matter are listed before the command and again when all its
processes are dead. New ones are renamed, and the user is told. Only names that were listed here are
renamed, through descriptors of their directories, and no link is followed.

A record of the first list is kept while the command runs. If the daemon is killed, the next one
finishes its work.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import EEXIST, ELOOP, ENOTDIR
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from tiller_daemon.files.paths import printable
from tiller_daemon.private import make_directory
from tiller_daemon.sandbox.base import GitUse
from tiller_daemon.sandbox.git_repository import EXECUTED, find_git, read_index
from tiller_daemon.sandbox.known_paths import is_executed, is_product
from tiller_daemon.sandbox.scan import Scanner, WorkspaceTooLarge

DISABLED: Final = ".disabled"
"""Appended to the names of entries that are put aside."""

QUARANTINED: Final = "quarantined"
"""The code of the warning for the user."""

PUT_ASIDE: Final = re.compile(rf"\{DISABLED}(?:-[0-9a-f]{{16}})?(?=/|\Z)")
"""What was appended to names in a path."""

NAME_BYTES_MAX: Final = 200
"""How much of a name is kept when it is put aside; file systems allow 255 bytes."""

NAMED_MAX: Final = 20
"""How many entries a message names; a command may make any number."""

TELL_PUT_ASIDE: Final = (
    "The command made what other programs execute by themselves: {names}. It was renamed to "
    "{renamed}. To let commands create such a name, add its path to `sandbox.writable`."
)

CLOSED: Final = "The command closed {name} to you. Run `chmod u+rwx {name}` and look what is there."

STAYS: Final = "Other programs may execute {name}, which the command made: {why}. Remove it."

_GIT_DATA: Final = re.compile(
    r"[A-Z][A-Z_]*|(?:shared)?index(?:\..+)?|packed-refs|shallow|refs|logs|objects|rr-cache|info|lfs"
    r"|rebase-merge|rebase-apply|sequencer|description|gc\.\w+|fsmonitor--daemon.*"
    r"|.+\.lock|tmp_.+|next-index-.+|gitk\.cache"
)
"""The top-level entries of a git directory in which git executes nothing."""

_NOT_SEARCHED: Final = frozenset(("objects", "modules", "worktrees", "hooks"))
"""Directories in a git directory that hold no links that git follows, or can't be written."""

MAKE_REPOSITORIES: Final = frozenset((".git", "head"))
"""The names by which git recognizes a repository, in lower case. Commits have files with any other
name."""

PLANTED_MAX: Final = 10_000
"""How many paths are remembered as put aside; a command may make any number."""

BESIDE_HEAD: Final = frozenset(("objects", "refs"))
"""What git needs beside a `HEAD` to recognize a repository without a `.git`, in lower case."""

DEPTH_MAX: Final = 40
"""How deep a git directory is searched; the names of branches have a few parts."""

_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Watch(Struct, frozen=True):
    """What to look for around one command."""

    workspace: Path
    """The workspace, absolute and without links."""
    is_build: bool
    """Whether the command ran without approval. If it did not, less is looked for."""
    git: tuple[Path, ...] = ()
    """The git directories that the command may write, whose other parts it can't."""
    writable: tuple[Path, ...] = ()
    """The directories in which the command may create something."""
    exempt: tuple[Path, ...] = ()
    """Entries that the user lets commands create."""
    executed: tuple[Path, ...] = ()
    """Paths that git would execute and that the command could create or replace."""
    git_use: GitUse = ""
    """What the command may do as git."""
    trees: tuple[Path, ...] = ()
    """Submodules and work trees, whose git directories are elsewhere."""

    @property
    def is_searched(self) -> bool:
        """Whether the command may make no repositories, as `git clone` and `npm create` do."""
        return self.is_build or self.git_use == "data"


class _Identity(NamedTuple):
    """What differs if an entry, a link on the way to it or its target is replaced."""

    place: str
    """The type of the entry, and where it leads."""
    inodes: str = ""
    """The inodes of the entry and its target, unless a file may be replaced by another one."""


class _Record(Struct, frozen=True):
    watch: Watch
    before: dict[str, _Identity]


@contextmanager
def quarantine(
    watch: Watch,
    records: Path | None,
    nested: Sequence[Path],
    find_nested: Callable[[], Sequence[Path]],
    planted: set[Path],
    report: Callable[[str], None],
) -> Generator[None]:
    """Run a command in the block; afterwards put aside what it made. Leaving the block takes time.

    `nested` are the repositories in subdirectories; `find_nested` looks for them again. `planted`
    gets the paths of what was put aside. `report` is called with sentences for the user and the
    model. A record is kept in the directory `records`.
    """
    before = _listed(watch, nested)
    record = records and _write_record(records, _Record(watch, before))
    try:
        yield
    finally:
        with suppress(OSError), _folder(watch.workspace):
            pass  # Opened, if the command has closed it to its own user.
        try:
            again = find_nested()
        except WorkspaceTooLarge as problem:
            again = nested
            report(f"{problem}, so they were not searched for repositories that the command made.")
        try:
            for text in _put_aside_new(watch, before, _listed(watch, again), planted):
                report(printable(text))
        except OSError as error:
            report(printable(f"What the command made could not be searched: {error}."))
        if record:
            record.unlink(missing_ok=True)


def finish_abandoned(records: Path) -> list[str]:
    """Put aside what the commands of a killed daemon have made; return sentences for the log.

    Call this when no process of the killed daemon is left.
    """
    texts: list[str] = []
    for record in sorted(records.glob("*")):
        with suppress(OSError, ValueError, WorkspaceTooLarge):
            data = json.loads(record.read_bytes())
            found = msgspec.convert(data, _Record, dec_hook=_decode)
            scanner = Scanner(found.watch.workspace, lambda _: False)
            nested = scanner.scan().repositories if found.watch.is_searched else ()
            # Not every file system keeps its inodes when the machine starts again.
            before, after = map(_places, (found.before, _listed(found.watch, nested)))
            texts += _put_aside_new(found.watch, before, after, set())
        record.unlink(missing_ok=True)
    return texts


def _write_record(records: Path, record: _Record) -> Path:
    make_directory(records)
    path = records / token_hex(8)
    # Unlike msgspec, json encodes names that are not UTF-8.
    path.write_text(json.dumps(msgspec.to_builtins(record, enc_hook=os.fspath)))
    return path


def _places(listed: Mapping[str, _Identity]) -> dict[str, _Identity]:
    return {path: _Identity(identity.place) for path, identity in listed.items()}


def _decode(kind: type[Path], value: str) -> Path:
    return kind(value)


def _listed(watch: Watch, nested: Sequence[Path]) -> dict[str, _Identity]:
    """Return the entries that programs execute by themselves, and what each one is."""
    git = find_git(watch.workspace)
    names = list(_top_level(watch))
    exact = {path for path in names if is_executed(path.name)}
    exact |= {*watch.executed, *nested, *(link / ".git" for link in read_index(git).links)}
    found = [*names, *(path for directory in watch.git for path in _in_git(directory))]
    if watch.git_use == "work_tree":
        found = [path for path in found if path.name != "worktrees"]
    places = (one.parent for one in watch.git if one not in git.directories)
    others = map(find_git, dict.fromkeys((*places, *watch.trees)))
    for one in (git, *others) if watch.git else ():
        is_unsafe = one.directories and read_index(one).is_unsafe
        found += [one.directories[-1] / "index"] if is_unsafe else ()
    wanted = {*exact, *found}.difference(watch.exempt)
    listed = ((str(path), _identity(path, is_exact=path in exact)) for path in wanted)
    return {path: identity for path, identity in listed if identity}


def _top_level(watch: Watch) -> Iterator[Path]:
    for name in _names(watch.workspace):
        if PUT_ASIDE.search(name):
            continue
        if watch.git_use == "work_tree":
            is_watched = name.casefold() in MAKE_REPOSITORIES
        else:
            is_watched = _is_unknown(name) if watch.is_build else is_executed(name)
        if is_watched or name.casefold() in BESIDE_HEAD:
            yield watch.workspace / name


def _is_unknown(name: str) -> bool:
    """Whether a program may execute an entry of the workspace by itself, as far as is known."""
    if name.startswith("."):
        return not is_product(name)
    return is_executed(name)


def _names(directory: Path) -> list[str]:
    with _folder(directory) as opened:
        return os.listdir(opened)  # noqa: PTH208 - a descriptor


def _in_git(directory: Path) -> Iterator[Path]:
    """Yield the entries of a git directory that are not data: unknown names, and links.

    If the directory has been moved, it is found as a new one.
    """
    with suppress(FileNotFoundError, NotADirectoryError), _folder(directory) as opened:
        for name, mode in _entries(opened):
            # Where case does not matter, git finds `COMMONDIR`, too.
            if not _GIT_DATA.fullmatch(name) or name.casefold() in EXECUTED:
                yield directory / name
            elif stat.S_ISDIR(mode) and name not in _NOT_SEARCHED:
                with _folder(name, opened) as deeper:
                    yield from _odd_below(deeper, directory / name, DEPTH_MAX)
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                yield directory / name


def _odd_below(opened: int, place: Path, depth: int) -> Iterator[Path]:
    """Yield what is neither a file nor a directory, and directories below `depth` levels."""
    for name, mode in _entries(opened):
        if stat.S_ISDIR(mode) and depth:
            with _folder(name, opened) as deeper:
                yield from _odd_below(deeper, place / name, depth - 1)
        elif not stat.S_ISREG(mode):
            yield place / name


def _entries(opened: int) -> Iterator[tuple[str, int]]:
    """Yield the names in an open directory, and the modes of the entries."""
    for name in os.listdir(opened):
        with suppress(FileNotFoundError):
            yield name, os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode


@contextmanager
def _folder(name: str | Path, parent: int | None = None) -> Generator[int]:
    """Open a directory, even if a command has closed it to its own user. Follows no link."""
    try:
        opened = os.open(name, _LISTED, dir_fd=parent)
    except PermissionError:
        opened = os.open(name, _FOLDER, dir_fd=parent)
        try:
            _reopen(opened)
        finally:
            os.close(opened)
        opened = os.open(name, _LISTED, dir_fd=parent)
    try:
        yield opened
    finally:
        os.close(opened)


def _reopen(opened: int) -> None:
    """Give the owner all rights to an open directory. Raises `OSError`."""
    # A descriptor of the kind O_PATH can't be used by fchmod.
    place = f"/proc/self/fd/{opened}"
    os.chmod(place if hasattr(os, "O_PATH") else opened, stat.S_IRWXU)  # noqa: PTH101


def _identity(path: Path, *, is_exact: bool) -> _Identity | None:
    """Return the identity of an entry, or None if it is missing.

    Without `is_exact`, a file may be replaced by another one, as editors do when they save.
    """
    try:
        state = path.lstat()
    except OSError:
        return None
    place, inodes = f"{stat.S_IFMT(state.st_mode):o} {os.path.realpath(path)}", ""
    if is_exact:
        inodes = str(state.st_ino)
        with suppress(OSError):
            inodes += f" {path.stat().st_ino}"
    return _Identity(place, inodes)


def _put_aside_new(
    watch: Watch,
    before: Mapping[str, _Identity],
    after: Mapping[str, _Identity],
    planted: set[Path],
) -> Iterator[str]:
    """Rename the new entries, the deepest first; yield sentences about them."""
    names: list[str] = []
    renamed: list[str] = []
    new = [Path(path) for path, identity in after.items() if before.get(path) != identity]
    if not any(_is_at_top(watch, path, ("head",)) for path in before):
        # These complete no repository, as a new `HEAD` is put aside itself.
        new = [path for path in new if not _is_at_top(watch, path, BESIDE_HEAD)]
    for path in sorted(new, key=lambda path: -len(path.parts)):
        root = next((one for one in watch.writable if path.is_relative_to(one)), None)
        if root is None:
            continue  # Another command has made it.
        name = str(path.relative_to(root)) if root == watch.workspace else str(path)
        if path == root:
            yield CLOSED.format(name=path)
            continue
        try:
            # Of too many, any file of the workspace may be one.
            planted.add(path if len(planted) < PLANTED_MAX else watch.workspace)
            renamed.append(put_aside(root, path))
            names.append(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield STAYS.format(name=name, why=f"it can't be renamed ({error.strerror})")
    if names:
        yield TELL_PUT_ASIDE.format(names=_shown(names), renamed=_shown(renamed))


def _is_at_top(watch: Watch, path: str | Path, names: Collection[str]) -> bool:
    directory, name = os.path.split(path)
    return name.casefold() in names and directory == str(watch.workspace)


def _shown(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join((*names[:NAMED_MAX], *((f"{more} more",) if more > 0 else ())))


def put_aside(root: Path, path: Path) -> str:
    """Rename an entry below `root`, so that no program executes it; return its new name.

    Follows no links below `root`. Raises `OSError`.
    """
    *folders, name = path.relative_to(root).parts
    with ExitStack() as stack:
        opened = stack.enter_context(_folder(root))
        for folder in folders:
            try:
                opened = stack.enter_context(_folder(folder, opened))
            except OSError as error:
                if error.errno not in (ELOOP, ENOTDIR):
                    raise
                # The command has put a link in the place of a directory.
                name = folder
                break
        try:
            return _rename(name, opened)
        except PermissionError:
            # The command may have closed the directory to its own user.
            _reopen(opened)
            return _rename(name, opened)


def _rename(name: str, folder: int) -> str:
    """Rename an entry of an open directory; return its new name."""
    kept = os.fsdecode(os.fsencode(name)[:NAME_BYTES_MAX])
    for new in (kept + DISABLED, f"{kept}{DISABLED}-{token_hex(8)}"):
        try:
            # A link or file must not replace what has the name already.
            os.stat(new, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
            return new
    raise FileExistsError(EEXIST, os.strerror(EEXIST), name)
