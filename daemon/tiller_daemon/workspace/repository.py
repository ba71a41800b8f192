"""The git repository around a workspace, by looking at its files.

No git process is started: it would read the repository's configuration, and that may name programs
to run (`core.fsmonitor`, filters). Whether files are changed is therefore not known here.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.workspace.documents import read_document

GIT_FILE_BYTES_MAX: Final = 4096
"""Largest beginning of `HEAD` or of a `.git` file that is looked at."""

COMMIT_CHARS_SHOWN: Final = 12

# git-check-ref-format(1): what no name of a branch holds.
_BRANCH: Final = re.compile(r"ref: refs/heads/([^\x00-\x20\x7f~^:?*\[\\]{1,250})\n?\Z")
_COMMIT: Final = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\n?\Z")


class Repository(NamedTuple):
    """The directory that holds `.git`, and what is checked out: `branch x`, `commit abc…` or ''."""

    root: Path
    head: str


def find_repository(directory: Path) -> Repository | None:
    """Return the nearest repository that holds `directory` (absolute, links followed).

    One that belongs neither to the owner of `directory` nor to the user of this process does not
    count: in a shared place, such as `/tmp`, anybody could put one above.
    """
    owners = {os.geteuid(), _owner(directory)}
    for root in (directory, *directory.parents):
        mark = root / ".git"
        if mark.exists() and _owner(mark) in owners:
            return Repository(root, _head(git_directory(mark)))
    return None


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def git_directory(mark: Path) -> Path:
    """What `.git` is, or leads to: it is a file in a second work tree and in a submodule."""
    pointer = read_document(mark, None, GIT_FILE_BYTES_MAX)
    if pointer is None or not pointer.text.startswith("gitdir: ") or "\0" in pointer.text:
        return mark
    return mark.parent / pointer.text.removeprefix("gitdir: ").rstrip("\n")


def _head(git_directory: Path) -> str:
    head = read_document(git_directory / "HEAD", None, GIT_FILE_BYTES_MAX)
    if head is None:
        return ""
    if branch := _BRANCH.match(head.text):
        return f"branch {branch[1]}"
    if commit := _COMMIT.match(head.text):
        return f"commit {commit[1][:COMMIT_CHARS_SHOWN]}"
    return ""
