"""Tells which changes between two snapshots may not be the work of the calls between them.

A revert must not lose what no snapshot has. So it leaves a file alone in these cases:

- The file was there before, but the snapshot left it out, for example because git ignored it.
- The file is older than the calls, and the snapshot has no such content: it was moved here from a
  place without snapshots.
- The file changed while a snapshot was being taken, when no call was running.

This is decided by times and paths. Where they mislead, a file stays that could have been reverted.
"""

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import trio

from tiller_daemon.snapshots.exclusions import is_in
from tiller_daemon.snapshots.git_trees import TreeChange, blobs_in
from tiller_daemon.snapshots.shadow_repository import ShadowRepository
from tiller_daemon.snapshots.taking import Taken

_SECOND_NS: Final = 1_000_000_000
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_STATX_BORN: Final = struct.Struct("=I76xqI")
"""The mask and the time of birth in the result of statx(2)."""


class _Times(NamedTuple):
    """When a file was made, written and last changed or moved, in ns; and its inode."""

    born_ns: int
    written_ns: int
    changed_ns: int
    inode: int


async def foreign_changes(
    before: Taken,
    after: Taken,
    calls_ns: tuple[int, int],
    changes: Sequence[TreeChange],
    shadow: ShadowRepository,
) -> tuple[str, ...]:
    """Return the paths of those `changes` that may not be the work of the calls.

    `calls_ns` are the beginning of the calls, by `file_time_ns`, and their end. Raises
    `GitProblem`.
    """
    begin_ns, end_ns = calls_ns
    here = [change for change in changes if change.after]
    times = await trio.to_thread.run_sync(_times, shadow.workspace, [one.path for one in here])
    windows = ((before.began_ns, begin_ns), (end_ns, after.ended_ns + 1))
    foreign = {
        one.path
        for one in here
        if (one.before is None and is_in(one.path, before.left_out))
        or (one.path in times and _is_within(times[one.path].changed_ns, windows))
    }
    inodes = frozenset(before.left_out.values())
    moved = [
        one
        for one in here
        if one.path in times and _may_be_moved(one, times[one.path], begin_ns, inodes)
    ]
    if moved:
        known = await blobs_in(before.tree, shadow)
        foreign.update(one.path for one in moved if one.after and one.after.blob not in known)
    return tuple(sorted(foreign))


def _is_within(time_ns: int, windows: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= time_ns < end for begin, end in windows)


def _may_be_moved(
    change: TreeChange, times: _Times, begin_ns: int, left_out: frozenset[int]
) -> bool:
    """Whether a file is older than the calls, and was probably not there before them."""
    return times.born_ns < begin_ns and (
        change.before is None or times.written_ns < begin_ns or times.inode in left_out
    )


def _times(workspace: Path, paths: Sequence[str]) -> dict[str, _Times]:
    """Return the times of files; files that are gone are left out."""
    times: dict[str, _Times] = {}
    for path in paths:
        try:
            state = os.lstat(workspace / path)
        except OSError:
            continue
        # A file that was moved keeps its time of birth, and usually its time of modification.
        born_ns = _born_ns(workspace / path) or state.st_mtime_ns
        times[path] = _Times(born_ns, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
    return times


def _born_ns(path: Path) -> int:
    """Return when a file was made; 0 if the file system does not record it."""
    try:
        statx = ctypes.CDLL(None).statx
    except AttributeError:  # not Linux
        return int(getattr(os.lstat(path), "st_birthtime", 0.0) * _SECOND_NS)
    result = ctypes.create_string_buffer(_STATX_BYTES)
    failed = statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, result)
    mask, seconds, ns = _STATX_BORN.unpack_from(result)
    return 0 if failed or not mask & _STATX_BTIME else seconds * _SECOND_NS + ns
