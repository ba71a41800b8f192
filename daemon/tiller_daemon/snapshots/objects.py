"""Writes git objects without git: blobs and trees, each to its own file."""

import hashlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from tiller_daemon.files.whole_files import temporary_name
from tiller_daemon.private import make_directory, open_private

TREE: Final = 0o40000
"""The mode of a directory in a tree."""

EMPTY_TREE: Final = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

BINARY_BYTES: Final = 8_000
"""git treats a file with a NUL within this many bytes of its beginning as binary."""

_COMPRESSION: Final = 1
"""The fastest level, which git uses for loose objects too."""


def object_of(kind: Literal["blob", "tree"], data: bytes) -> tuple[bytes, bytes]:
    """Return the id of an object and its bytes with their header."""
    whole = b"%b %d\0" % (kind.encode(), len(data)) + data
    return hashlib.sha1(whole, usedforsecurity=False).digest(), whole


def tree_data(entries: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the content of a tree; entries are mode, name and id."""
    # git sorts a directory as if its name ended in a slash.
    ordered = sorted(entries, key=lambda one: one[1] + b"/" if one[0] == TREE else one[1])
    return b"".join(b"%o %b\0%b" % entry for entry in ordered)


def write_object(store: Path, kind: Literal["blob", "tree"], data: bytes) -> bytes:
    """Store an object in the git directory `store` and return its id; raises `OSError`.

    Like git, this does not wait until the object is on the disk.
    """
    name, whole = object_of(kind, data)
    digits = name.hex()
    folder = f"{store}/objects/{digits[:2]}"
    path = f"{folder}/{digits[2:]}"
    if os.path.exists(path):  # noqa: PTH110 - a third of the time of a `Path`
        return name
    make_directory(Path(folder))
    # git removes files with this prefix if a crash leaves them.
    temporary = f"{folder}/tmp_obj_{temporary_name()}"  # noqa: S108 - in a private directory
    with open(temporary, "wb", opener=open_private) as stream:
        stream.write(zlib.compress(whole, _COMPRESSION))
    os.replace(temporary, path)  # noqa: PTH105 - as above
    return name


def count_lines(data: bytes) -> int | None:
    """Return the number of lines, as git counts them; None if the data is binary."""
    if b"\0" in data[:BINARY_BYTES]:
        return None
    return data.count(b"\n") + (not data.endswith(b"\n") if data else 0)
