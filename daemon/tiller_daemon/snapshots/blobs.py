"""Reads files for a snapshot through descriptors, and writes them as git's objects."""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from tiller_daemon.files.paths import DIRECTORY
from tiller_daemon.files.pinned_directory import PinnedDirectory
from tiller_daemon.files.restore import GitEntry, blob_id, read_entry


def write_blobs(
    workspace: Path, paths: Sequence[str], secret_values: Sequence[bytes], blobs: BinaryIO
) -> dict[str, GitEntry]:
    """Write the files to `blobs`, for `git fast-import`; return their entries.

    Left out are files that contain a secret value, can't be read, are neither regular files nor
    links, or are reached through a linked directory. No link is followed, whatever a command does
    meanwhile. Blocks for as long as the disk takes; raises `OSError` if `blobs` can't be written.
    """
    entries: dict[str, GitEntry] = {}
    root = os.open(workspace, DIRECTORY)
    try:
        with closing(PinnedDirectory(root, workspace)) as beneath:
            for path in paths:
                try:
                    mode, content = read_entry(*beneath.parent(os.fsencode(path)))
                except OSError:
                    continue
                if not any(value in content for value in secret_values):
                    entries[path] = GitEntry(mode, blob_id(content))
                    blobs.write(b"blob\ndata %d\n%b\n" % (len(content), content))
    finally:
        os.close(root)
    blobs.seek(0)
    return entries
