"""Files that no snapshot stores because of what they are or contain."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path


def files_to_exclude(
    workspace: Path, paths: Sequence[str], secret_values: Sequence[bytes]
) -> frozenset[str]:
    """Return the files that no snapshot may store.

    These are files that contain a secret value, can't be read, are neither regular files nor links,
    or are reached through a linked directory.
    """
    parents = {(workspace / path).parent for path in paths}
    behind_links = {parent for parent in parents if os.path.realpath(parent) != str(parent)}
    return frozenset(
        path
        for path in paths
        if (workspace / path).parent in behind_links
        or _is_excluded(workspace / path, secret_values)
    )


def _is_excluded(path: Path, secret_values: Sequence[bytes]) -> bool:
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            data = os.fsencode(os.readlink(path))  # noqa: PTH115 - bytes
        elif stat.S_ISREG(state.st_mode):
            if not secret_values:
                return not os.access(path, os.R_OK)
            data = path.read_bytes()
        else:
            return True
    except OSError:
        return True
    return any(value in data for value in secret_values)
