"""The git repository around a workspace, found by reading its files.

git itself is not run, because it would read the repository's configuration, which may name programs
to run (`core.fsmonitor`, filters). So this module can't tell whether files were changed.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.workspace.documents import read_document

GIT_FILE_BYTES_MAX: Final = 4096
"""How much of `HEAD` or of a `.git` file is read."""

COMMIT_CHARS_SHOWN: Final = 12

# Excludes what git-check-ref-format(1) forbids in the name of a branch.
_BRANCH: Final = re.compile(r"ref: refs/heads/([^\x00-\x20\x7f~^:?*\[\\]{1,250})\n?\Z")
_COMMIT: Final = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\n?\Z")


class Repository(NamedTuple):
    """The directory with `.git`, and the checked-out `branch x` or `commit abc…`, or ''."""

    root: Path
    head: str


def find_repository(directory: Path) -> Repository | None:
    """Return the nearest repository around `directory` (absolute, without links).

    A repository counts only if it belongs to this user or to the owner of `directory`. In a shared
    place such as `/tmp`, anyone could create a repository above a user's directory.
    """
    owners = {os.geteuid(), _owner(directory)}
    for root in (directory, *directory.parents):
        mark = root / ".git"
        if mark.exists() and _owner(mark) in owners:
            return Repository(root, _head(git_directory(mark)))
    return None


def checked_out(directory: str) -> str:
    """Return the branch of the repository around `directory`, `commit abc…`, or ''."""
    repository = find_repository(Path(directory))
    return repository.head.removeprefix("branch ") if repository else ""


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def git_directory(mark: Path) -> Path:
    """Return the git directory of a `.git`, which in a work tree or submodule is a file."""
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
