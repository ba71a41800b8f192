"""Journals: what is about to be done to files, on disk before it is done.

A journal is written once, before the first file is touched, and removed when all is done. If the
daemon is killed in between, it finds the journal when it starts again and rolls the change back.
A journal that can't be decoded was still being written, so nothing had been done.

Everything here blocks for as long as the disk takes.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from tiller_daemon.private import open_private

log = structlog.get_logger()

Record = TypeVar("Record", bound=msgspec.Struct)

CANNOT_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""The errors of file systems that can't sync a directory, among them some network file systems."""


def write_journal(path: Path, record: msgspec.Struct, *, durable: bool = True) -> None:
    """Write a new journal; if `durable`, it is on disk when this returns. Raises `OSError`."""
    content = msgspec.json.encode(record)
    with open(path, "xb", opener=open_private) as stream:
        stream.write(content)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    if durable:
        sync_directory(path.parent)


def read_journal(path: Path, kind: type[Record]) -> Record | None:
    """Return what a journal records; None if it is missing or incomplete. Raises `OSError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        # Logged, because a disk that damages files gives the same error as a kill in mid-write.
        log.warning("journal_unreadable", journal=str(path), reason=str(error))
        return None


def sync_directory(directory: Path | str, parent: int | None = None) -> None:
    """Bring the names in a directory to disk, if its file system can do that. Raises `OSError`.

    `parent` is the descriptor that a relative `directory` starts from.
    """
    # Without permission to list it a directory can't be opened for this. The system then writes
    # its names out later.
    with suppress(PermissionError):
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno not in CANNOT_SYNC:
                raise
        finally:
            os.close(opened)
