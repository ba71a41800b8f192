"""What a command may change but must not have changed: kept while it runs, put back when it ended.

For what a mechanism can't keep from being written: names in a directory where the command may make
others. What it has made of them stays beside, under another name. No link is followed, and every
step is made below a directory that was opened before the command began.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, assert_never

BYTES_MAX: Final = 8 * 1024 * 1024
ENTRIES_MAX: Final = 2_000
"""What is kept of one place: hooks and configuration of agents take some hundred kilobytes."""

DEPTH_MAX: Final = 32
"""How deep it may be; each level takes a descriptor while it is looked at."""

REMOVED: Final = ".removed-by-sandbox"
"""Ends the new name of what a command made and may not make."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL_OF_OWNER: Final = 0o700


class NotKept(Exception):
    """A path that could not be put back as it is; the message is a sentence."""


class TooMuch(Exception):
    """What would have to be kept is more than can be."""


class _Nothing(NamedTuple):
    """No such name."""


class _Link(NamedTuple):
    target: bytes


class _File(NamedTuple):
    mode: int
    content: bytes


class _Folder(NamedTuple):
    mode: int
    entries: Mapping[str, "_Node"]


class _Special(NamedTuple):
    """A socket, a FIFO, a device: known by its number alone, and not made again."""

    number: int


_Node = _Nothing | _Link | _File | _Folder | _Special
_NOTHING: Final = _Nothing()


class _Budget:
    """How much more may be kept."""

    def __init__(self) -> None:
        self._bytes = BYTES_MAX
        self._entries = ENTRIES_MAX

    def take(self, size: int, depth: int) -> None:
        self._bytes -= size
        self._entries -= 1
        if self._bytes < 0 or self._entries < 0 or depth > DEPTH_MAX:
            raise TooMuch


class PutBack:
    """What is put back: each path once, also when several commands run that must not change it."""

    def __init__(self) -> None:
        self._kept: Final = dict[Path, _Keeping]()
        self._users: Final = Counter[Path]()

    @contextmanager
    def around(self, places: Mapping[Path, Path], told: Callable[[str], None]) -> Generator[None]:
        """Keep each path of `places`, which is below the directory that it leads to.

        When left, `told` hears of each that had become something else. Raises `NotKept`.
        """
        entered: list[Path] = []
        try:
            for path, root in places.items():
                if path not in self._kept:
                    self._kept[path] = _keep(root, path)
                self._users[path] += 1
                entered.append(path)
            yield
        finally:
            for path in entered:
                if said := self._kept[path].put_back():
                    told(said)
                self._users[path] -= 1
                if not self._users[path]:
                    self._kept.pop(path).close()


def _keep(root: Path, path: Path) -> "_Keeping":
    try:
        return _Keeping(root, path)
    except TooMuch:
        why = f"it holds more than {BYTES_MAX >> 20} MB or {ENTRIES_MAX} files, or is too deep"
    except OSError as error:
        why = error.strerror or str(error)
    raise NotKept(f"{path} could not be put back after the command: {why}.")


class _Keeping:
    """A path below a directory as it is now; `close` when it need not be put back any more."""

    def __init__(self, root: Path, path: Path) -> None:
        self._path: Final = path
        self._parts: Final = path.relative_to(root).parts
        self._opened: Final = os.open(root, _FOLDER)
        try:
            self._before: Final = self._look()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Put nothing back any more."""
        os.close(self._opened)

    def put_back(self) -> str:
        """Make it what it was; returns a sentence if it was something else."""
        try:
            changed = self._restore()
        except OSError as error:
            return f"{self._path} was changed and can't be put back: {error.strerror}."
        return f"{self._path} may not be changed: it was put back." if changed else ""

    def _look(self) -> "_Node":
        """What is there; nothing where a part of the way is no directory."""
        try:
            with _parent(self._opened, self._parts) as parent:
                return _node(parent, self._parts[-1], _Budget())
        except (FileNotFoundError, NotADirectoryError):
            return _NOTHING

    def _restore(self) -> bool:
        """Whether something had to be done."""
        before, parts, name = self._before, self._parts, self._parts[-1]
        # Its owner may have closed it to everybody, this process too.
        os.fchmod(self._opened, os.fstat(self._opened).st_mode | _ALL_OF_OWNER)
        moved = self._clear_way()
        try:
            now: _Node | None = self._look()
        except (TooMuch, OSError):
            now = None  # Whatever it is, it is not what it was.
        if now == before:
            return moved
        for count in range(1, 0 if before == _NOTHING else len(parts)):
            with _parent(self._opened, parts[:count]) as parent, suppress(FileExistsError):
                os.mkdir(parts[count - 1], dir_fd=parent)
        with _parent(self._opened, parts) as parent:
            if now != _NOTHING:
                _move_aside(parent, name)
            _make(parent, name, before)
        return True

    def _clear_way(self) -> bool:
        """Move away what is no directory and stands on the way: a link would lead elsewhere."""
        for count in range(1, len(self._parts)):
            name = self._parts[count - 1]
            try:
                with _parent(self._opened, self._parts[:count]) as parent:
                    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                    if not stat.S_ISDIR(mode):
                        _move_aside(parent, name)
                        return True
                    if mode & _ALL_OF_OWNER != _ALL_OF_OWNER:
                        os.chmod(name, mode | _ALL_OF_OWNER, dir_fd=parent)
            except FileNotFoundError:
                return False
        return False


@contextmanager
def _parent(root: int, parts: Sequence[str]) -> Generator[int]:
    """The directory that holds the last of `parts`, opened without following a link."""
    opened = os.dup(root)
    try:
        for name in parts[:-1]:
            deeper = os.open(name, _FOLDER, dir_fd=opened)
            os.close(opened)
            opened = deeper
        yield opened
    finally:
        os.close(opened)


def _node(parent: int, name: str, budget: _Budget, depth: int = 0) -> _Node:
    try:
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return _NOTHING
    budget.take(state.st_size if stat.S_ISREG(state.st_mode) else 0, depth)
    mode = stat.S_IMODE(state.st_mode)
    if stat.S_ISLNK(state.st_mode):
        return _Link(os.readlink(os.fsencode(name), dir_fd=parent))
    if stat.S_ISREG(state.st_mode):
        how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, how, dir_fd=parent), "rb") as stream:
            return _File(mode, stream.read(BYTES_MAX + 1))
    if stat.S_ISDIR(state.st_mode):
        opened = os.open(name, _FOLDER, dir_fd=parent)
        try:
            names = os.listdir(opened)  # noqa: PTH208 - by descriptor
            return _Folder(mode, {one: _node(opened, one, budget, depth + 1) for one in names})
        finally:
            os.close(opened)
    return _Special(state.st_ino)


def _make(parent: int, name: str, node: _Node) -> None:
    match node:
        case _Nothing() | _Special():
            pass
        case _Link(target):
            os.symlink(target, os.fsencode(name), dir_fd=parent)
        case _File(mode, content):
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, how, mode, dir_fd=parent), "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), mode)
        case _Folder(mode, entries):
            os.mkdir(name, dir_fd=parent)
            opened = os.open(name, _FOLDER, dir_fd=parent)
            try:
                for one, inner in entries.items():
                    _make(opened, one, inner)
                os.fchmod(opened, mode)
            finally:
                os.close(opened)
        case _:
            assert_never(node)


def _move_aside(parent: int, name: str) -> None:
    taken = set(os.listdir(parent))
    aside, number = name + REMOVED, 1
    while aside in taken:
        number += 1
        aside = f"{name}{REMOVED}-{number}"
    os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
