"""Journals, which record changes of files on disk before the changes are made.

A journal is written before the first file is touched, and removed when all changes are made. If the
daemon is killed in between, it finds the journal at its next start and rolls the changes back. A
journal that can't be decoded was still being written, so no file had been touched.

All functions here block for as long as the disk takes.
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
"""The errors of file systems that can't sync directories, such as some network file systems."""


def write_journal(path: Path, record: msgspec.Struct, *, durable: bool = True) -> None:
    """Write a new journal; if `durable`, wait until it is on disk. Raises `OSError`."""
    content = msgspec.json.encode(record)
    with open(path, "xb", opener=open_private) as stream:
        stream.write(content)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    if durable:
        sync_directory(path.parent)


def read_journal(path: Path, kind: type[Record]) -> Record | None:
    """Return the record in a journal; None if it is missing or incomplete. Raises `OSError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        # Logged, because a disk that damages files gives the same error as a kill in mid-write.
        log.warning("journal_unreadable", journal=str(path), reason=str(error))
        return None


def sync_directory(directory: Path | str, parent: int | None = None) -> None:
    """Sync the names in a directory to disk, if its file system can do that. Raises `OSError`.

    A relative `directory` starts from the descriptor `parent`.
    """
    # Without permission to list it, a directory can't be opened for syncing. Then the system writes
    # its names to disk later.
    with suppress(PermissionError):
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno not in CANNOT_SYNC:
                raise
        finally:
            os.close(opened)
