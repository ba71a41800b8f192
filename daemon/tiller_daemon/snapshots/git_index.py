"""The index of a git repository, read without git."""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.snapshots.directories import SECOND_NS, Stamp

VERSION: Final = 2
"""The version that git writes unless it needs another one."""

_HEAD: Final = struct.Struct(">4sII")
_ENTRY: Final = struct.Struct(">10I20sH")
_ALIGNED_BYTES: Final = 8
_LOW: Final = 0xFFFFFFFF


class IndexEntry(NamedTuple):
    """The state of a file when git last checked it."""

    mode: int
    """The mode that git stores."""
    blob: bytes
    """The id of the file's content."""
    times_ns: tuple[int, int]
    """Modification and change time."""
    inode: int
    """The lower 32 bits of the inode."""
    size: int
    """The lower 32 bits of the size."""

    def is_of(self, stamp: Stamp) -> bool:
        """Return whether the file had this stamp when git checked it."""
        modified_ns, changed_ns, size, inode, _ = stamp
        here = ((modified_ns, changed_ns), inode & _LOW, size & _LOW)
        return here == (self.times_ns, self.inode, self.size)


def read_index(store: Path) -> dict[bytes, IndexEntry] | None:
    """Return the files in the index, by path; None if the index has another version.

    Raises `OSError`.
    """
    try:
        data = (store / "index").read_bytes()
    except FileNotFoundError:
        return {}
    _, version, count = _HEAD.unpack_from(data)
    if version != VERSION:
        return None
    entries: dict[bytes, IndexEntry] = {}
    at = _HEAD.size
    for _ in range(count):
        c_s, c_ns, m_s, m_ns, _, inode, mode, _, _, size, blob, _ = _ENTRY.unpack_from(data, at)
        begin = at + _ENTRY.size
        end = data.index(b"\0", begin)
        times_ns = (m_s * SECOND_NS + m_ns, c_s * SECOND_NS + c_ns)
        entries[data[begin:end]] = IndexEntry(mode, blob, times_ns, inode, size)
        # One to eight NULs follow, so that an entry's length is a multiple of eight.
        at = end + _ALIGNED_BYTES - (end - at) % _ALIGNED_BYTES
    return entries
