"""Caches values that are read from files, until one of the files changes.

Before a reader uses a path, it names the path (`look_at`, `look_into`, `look_along`). While a value
is read, `Stamps` records the stamps of these paths; `StampedCache` returns the value until a stamp
has changed. Missing files are recorded too, so that a new file is noticed.

A stamp is the kernel's data about a file: its identity, size and times. Nobody but the kernel sets
the time of the last change (`st_ctime`), so a file with the same stamp has the same content, unless
it changed twice within one tick of the clock. Therefore a stamp that was too young when it was
taken is never trusted, as in git's index.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

TICK_NS: Final = 100_000_000
"""How old a stamp must be to be trusted, in nanoseconds. The kernel's clock for files ticks every
1 to 10 ms; the rest is for a file server whose clock is slightly behind."""

WHOLE_SECONDS_TICK_NS: Final = 2_000_000_000
"""How old a stamp must be whose time has no fraction of a second. Its file system may store only
whole seconds, or only even seconds, as FAT does."""

ENTRIES_MAX: Final = 256
"""How many values a cache holds; the least recently used value is dropped first."""

LINKS_MAX: Final = 40
"""How many links are followed in one path, as in Linux."""

Stamp = tuple[int, ...]
"""The kernel's data about a file: device, inode, mode, owner, size, and the times of content and
inode in nanoseconds. If the file can't be examined, only the negative error number."""

_IDENTITY: Final = 4
"""How many numbers of a stamp identify the file. For directories in a path, only these count."""

_MISSING: Final[Stamp] = (-errno.ENOENT,)

T = TypeVar("T")


class _Moment:
    """The stamps of one moment: each path is examined only once."""

    def __init__(self) -> None:
        # Taken before any stamp, as a later time would make a young stamp seem old.
        self.at_ns: Final = time.time_ns()
        self._stamps: dict[tuple[str, bool], Stamp] = {}

    def stamp(self, path: str, *, follows: bool) -> Stamp:
        """Return the stamp of the file or link at `path`; with `follows`, of a link's target."""
        key = (path, follows)
        known = self._stamps.get(key)
        if known is None:
            known = self.stamp(path, follows=False) if follows else take_stamp(path, follows=False)
            if follows and _is_link(known):
                known = take_stamp(path, follows=True)
            self._stamps[key] = known
        return known

    def is_young(self, stamp: Stamp) -> bool:
        """Whether a stamp of this moment is too young to be trusted."""
        return is_young(stamp[-1], self.at_ns)


_moment: Final[ContextVar[_Moment | None]] = ContextVar("_moment", default=None)
"""The moment that the innermost `one_moment` uses."""


class _Recording(NamedTuple):
    """The object to which `look_at` and its siblings add stamps, and the moment of these."""

    stamps: "Stamps"
    moment: _Moment


_recording: Final[ContextVar[_Recording | None]] = ContextVar("_recording", default=None)


@contextmanager
def one_moment() -> Generator[None]:
    """Treat all checks in the block as made at once, so that each path is examined only once.

    The block must have no checkpoint, because changes during the block may be noticed only after
    it.
    """
    token = _moment.set(_moment.get() or _Moment())
    try:
        yield
    finally:
        _moment.reset(token)


def look_at(path: str | Path) -> None:
    """Record that the value being read depends on the content at `path`; links are followed."""
    if recording := _recording.get():
        recording.stamps.add(os.fspath(path), recording.moment)


def look_into(directory: str | Path) -> None:
    """Record that the value being read depends on the names in a directory."""
    if recording := _recording.get():
        recording.stamps.add(os.fspath(directory), recording.moment, names=True)


def look_along(path: str | Path, within: str | Path = "/") -> None:
    """Record that the value being read depends on where `path` leads, and on the content there.

    `within` is an existing directory above `path`, absolute and without links.
    """
    if recording := _recording.get():
        recording.stamps.add_way(os.fspath(path), os.fspath(within), recording.moment)


def failed(error: OSError) -> None:
    """Record that reading failed.

    Unless a file is missing, the next reading may succeed although no stamp changes.
    """
    recording = _recording.get()
    if recording and error.errno not in (errno.ENOENT, errno.ENOTDIR):
        recording.stamps.trust_nothing()


def is_young(changed_ns: int, now_ns: int) -> bool:
    """Whether a file that changed at this time may change again and keep its stamp."""
    tick_ns = TICK_NS if changed_ns % 1_000_000_000 else WHOLE_SECONDS_TICK_NS
    return changed_ns > now_ns - tick_ns


class Stamps:
    """The stamps that a value depends on, from the time when the value was read."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, bool], Stamp] = {}
        """The stamps by path, and by whether a link there is followed. A shortened stamp is
        compared with the beginning of the current stamp."""
        self._missing: dict[str, set[str]] = {}
        """The names that are missing in each directory; one check of a directory covers them."""
        self._unchanged: dict[str, Stamp] = {}
        """The stamps that these directories had while the names were missing, if trusted."""
        self._is_void = False
        """Whether the value may already be outdated, so that it is read again each time."""

    def record(self, read: Callable[[], T]) -> T:
        """Call `read`, and add the paths that it names. May be called in any thread."""
        outer = _recording.get()
        moment = _moment.get() or _Moment()
        token = _recording.set(_Recording(self, moment))
        try:
            return read()
        finally:
            _recording.reset(token)
            if outer:
                outer.stamps.include(self)

    def include(self, other: "Stamps") -> None:
        """Add the stamps of another value from which this value is made."""
        for key, stamp in other._expected.items():
            known = self._expected.setdefault(key, stamp)
            shorter = min(len(known), len(stamp))
            # If they differ, the two moments do not belong to the same value.
            self._is_void |= known[:shorter] != stamp[:shorter]
            self._expected[key] = max(known, stamp, key=len)
        for directory, names in other._missing.items():
            self._missing.setdefault(directory, set()).update(names)
            # It is unknown which of two stamps is older, so the names will be checked again.
            self._unchanged.pop(directory, None)
        self._is_void |= other._is_void

    def trust_nothing(self) -> None:
        """Make sure that the value is read again the next time."""
        self._is_void = True

    def are_current(self) -> bool:
        """Whether no stamp has changed."""
        if self._is_void:
            return False
        moment = _moment.get() or _Moment()
        for (path, follows), expected in self._expected.items():
            if moment.stamp(path, follows=follows)[: len(expected)] != expected:
                return False
        return all(self._is_still_missing(one, moment) for one in self._missing)

    def add(self, path: str, moment: _Moment, *, names: bool = False) -> None:
        """Add the content at `path`; with `names`, if it is a directory, the names in it."""
        stamp = moment.stamp(path, follows=True)
        # The target of a link may appear although the directory of the link stays the same.
        if stamp == moment.stamp(path, follows=False) == _MISSING:
            self._add_missing(path, moment)
        else:
            self._expect(path, stamp, moment, follows=True, names=names)

    def add_way(self, path: str, within: str, moment: _Moment) -> None:
        """Add each directory and link from `within` to the end of `path`, and the file there."""
        below = path.removeprefix(within.rstrip("/") + "/")
        names = below.split("/")[::-1]
        place, links = within if below != path else "/", 0
        while names and links <= LINKS_MAX:
            name = names.pop()
            if name in ("", "."):
                continue
            if name == "..":
                place = os.path.dirname(place)  # noqa: PTH120 - as `realpath`, by text
                continue
            place = f"{place.rstrip('/')}/{name}"
            stamp = moment.stamp(place, follows=False)
            if stamp == _MISSING:
                self._add_missing(place, moment)
                return
            self._expect(place, stamp, moment, follows=False)
            if _is_link(stamp):
                links += 1
                try:
                    target = os.readlink(place)  # noqa: PTH115 - a fifth of the time of a `Path`
                except OSError:
                    return
                names += target.split("/")[::-1]
                place = "/" if target.startswith("/") else os.path.dirname(place)  # noqa: PTH120

    def _expect(
        self, path: str, stamp: Stamp, moment: _Moment, *, follows: bool, names: bool = False
    ) -> None:
        is_directory = len(stamp) > 1 and stat.S_ISDIR(stamp[2])
        if is_directory and not names:
            # A stamp that covers the names may be there already.
            self._expected.setdefault((path, follows), stamp[:_IDENTITY])
            return
        self._expected[path, follows] = stamp
        if len(stamp) > 1:
            self._is_void |= moment.is_young(stamp)

    def _add_missing(self, path: str, moment: _Moment) -> None:
        directory, name = os.path.split(path)
        above = moment.stamp(directory, follows=True)
        if len(above) > 1 and stat.S_ISDIR(above[2]):
            self._missing.setdefault(directory, set()).add(name)
            if not moment.is_young(above):
                self._unchanged.setdefault(directory, above)
        elif moment.stamp(directory, follows=False) == _MISSING:
            self._add_missing(directory, moment)
        else:
            # For example below a link that leads nowhere.
            self._expected[path, True] = moment.stamp(path, follows=True)

    def _is_still_missing(self, directory: str, moment: _Moment) -> bool:
        now = moment.stamp(directory, follows=True)
        if self._unchanged.get(directory) == now:
            return True
        for name in self._missing[directory]:
            if moment.stamp(f"{directory.rstrip('/')}/{name}", follows=False) != _MISSING:
                return False
        if len(now) > 1 and not moment.is_young(now):
            self._unchanged[directory] = now
        return True


class _Entry(NamedTuple):
    """A cached value."""

    value: Any
    stamps: Stamps


class StampedCache:
    """Values read from files, by keys."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        self._dropping: Final = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the cached value, or call `read` if a path that it named last time has changed.

        `key` contains everything else that the value depends on. The value is shared, so it must
        not be changed. If `read` raises an error, nothing is cached.
        """
        with self._dropping:
            entry = self._entries.pop(key, None)
        if entry is None or not entry.stamps.are_current():
            stamps = Stamps()
            entry = _Entry(stamps.record(read), stamps)
        elif recording := _recording.get():
            recording.stamps.include(entry.stamps)
        with self._dropping:
            # Moved to the end, so that the first entry is the next to drop.
            self._entries[key] = entry
            if len(self._entries) > ENTRIES_MAX:
                del self._entries[next(iter(self._entries))]
        return cast("T", entry.value)


def take_stamp(path: str, *, follows: bool) -> Stamp:
    """Return the stamp of the file or link at `path` now; with `follows`, of a link's target."""
    try:
        now = os.stat(path, follow_symlinks=follows)  # noqa: PTH116 - as above
    except OSError as error:
        return (-(error.errno or errno.EIO),)
    except ValueError:
        # A NUL in the path.
        return (-errno.EINVAL,)
    return (
        now.st_dev,
        now.st_ino,
        now.st_mode,
        now.st_uid,
        now.st_size,
        now.st_mtime_ns,
        now.st_ctime_ns,
    )


def _is_link(stamp: Stamp) -> bool:
    return len(stamp) > 1 and stat.S_ISLNK(stamp[2])
