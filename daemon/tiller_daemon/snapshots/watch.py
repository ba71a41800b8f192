"""Finds the directories of a workspace with changes, by inotify (Linux, files on a local disk).

A watch only makes snapshots quick. It misses a write through an open memory mapping, or through
another name of the file elsewhere. `known_workspace` says how such writes are found.
"""

import ctypes
import os
import re
import struct
from pathlib import Path
from typing import Final

from tiller_daemon.snapshots.directories import Directory

LOCAL: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
)
"""File systems that only this machine changes. On others, inotify misses changes."""

_EVENTS: Final = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""`IN_MODIFY`, `ATTRIB`, `CLOSE_WRITE`, `MOVED_FROM`, `MOVED_TO`, `CREATE`, `DELETE`,
`DELETE_SELF` and `MOVE_SELF` of inotify(7)."""
_ONLY_DIRECTORIES: Final = 0x01000000 | 0x02000000
"""`IN_ONLYDIR` and `IN_DONT_FOLLOW`."""
_OVERFLOW: Final = 0x4000
_ENDED: Final = 0x8000
"""`IN_IGNORED`: the directory was deleted, and a new one may have its inode."""
_MOUNT_POINT: Final = 4
"""The index of the mount point in a line of `mountinfo`; see proc(5)."""
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_READ_BYTES: Final = 1024 * 1024
"""More than the queue holds by default, which is 16,384 events of some 32 bytes."""
_HEADER: Final = struct.Struct("iIII")


class Watch:
    """Watches directories until `close` is called. Raises `OSError` where this is not possible."""

    def __init__(self) -> None:
        self._libc: Final = ctypes.CDLL(None, use_errno=True)
        self._watched: Final[dict[int, Directory]] = {}
        self._inotify = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, root: Path, directory: Directory) -> None:
        """Watch a directory; call this before the directory is read."""
        path = os.fsencode(root / directory.path)
        watched = self._libc.inotify_add_watch(self._inotify, path, _EVENTS | _ONLY_DIRECTORIES)
        directory.watched = _checked(watched)
        # A directory that moved has the same number as before.
        self._watched[directory.watched] = directory

    def remove(self, directory: Directory) -> None:
        """Stop watching a directory that is gone."""
        if self._watched.get(directory.watched) is directory:
            del self._watched[directory.watched]
            # This fails if the directory was deleted, which ended the watch.
            self._libc.inotify_rm_watch(self._inotify, directory.watched)

    def has(self, directory: Directory) -> bool:
        """Return whether the directory is watched, according to the events read so far."""
        return self._watched.get(directory.watched) is directory

    def changed(self) -> list[Directory] | None:
        """Return the directories that changed since the last call; None if any may have."""
        changed: dict[int, Directory] = {}
        overflown = False
        while True:
            try:
                data = os.read(self._inotify, _READ_BYTES)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                number, mask, _, name_bytes = _HEADER.unpack_from(data, at)
                overflown = overflown or bool(mask & _OVERFLOW)
                if directory := self._watched.get(number):
                    changed[number] = directory
                if mask & _ENDED:
                    self._watched.pop(number, None)
                at += _HEADER.size + name_bytes
        if overflown:
            # Watches may have ended, too. Adding a watch again is harmless.
            self._watched.clear()
            return None
        return list(changed.values())

    def close(self) -> None:
        """Stop watching."""
        os.close(self._inotify)


def is_local(path: Path) -> bool:
    """Return whether a directory is on a file system that only this machine changes."""
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return False
    best, kind = b"", ""
    above = os.fsencode(path) + b"/"
    for mount in mounts:
        fields = mount.split(b" ")
        place = _unescaped(fields[_MOUNT_POINT]).rstrip(b"/") + b"/"
        # If two mounts are on the same directory, the later one is visible.
        if above.startswith(place) and len(place) >= len(best):
            best, kind = place, fields[fields.index(b"-") + 1].decode()
    return kind in LOCAL


def _unescaped(text: bytes) -> bytes:
    return _ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), text)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
