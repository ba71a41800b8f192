"""Instructions for every model from the user and the project: `AGENTS.md`, or else `CLAUDE.md`.

This module finds and truncates instructions; the turn puts them into the prompt. Instructions are
only text for a model.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.files.paths import printable
from tiller_daemon.workspace.documents import (
    Document,
    MayRead,
    RefusedDocument,
    read_project_document,
)

NAMES: Final = ("AGENTS.md", "CLAUDE.md")
"""The file names, of which the first that exists in a directory is used."""

FILE_BYTES_MAX: Final = 32 * 1024
"""The most bytes of one file: some 8,000 tokens, which every request of every turn contains."""

TOTAL_BYTES_MAX: Final = 64 * 1024
"""The most bytes of all files together; the nearest files get their share first."""


NOT_THE_PROJECTS: Final = frozenset({".git", ".venv", "node_modules", "site-packages"})
"""Directories of git and of installed packages, whose instructions are for the packages' own
developers."""


class Instructions(NamedTuple):
    """An instruction file; if it was truncated, its last sentence says so.

    If there is a `problem` (a clause), the file was not read, and the text is empty.
    """

    path: str
    text: str
    problem: str = ""


def read_instructions(
    workspace: Path, repository: Path | None, home: Path, config: Path, may_read: MayRead
) -> tuple[Instructions, ...]:
    """Return the instructions for `workspace`; the nearest come last, as they take precedence.

    The user's own in `config` come first. Those of each directory follow, from the repository's
    root (or from `home`, if that is nearer) down to the workspace. Outside both, only the workspace
    counts. All paths are absolute, without links. A project's file has a `problem` if it leads out
    of the repository (or, without a repository, out of its directory), or if no model `may_read` it
    without approval.
    """
    upwards = _upwards(workspace, repository, home)
    of_project = [(directory, repository or directory) for directory in upwards]
    return _collect([*of_project, (config, None)], may_read)


def read_nested_instructions(
    workspace: Path, directory: Path, may_read: MayRead
) -> tuple[Instructions, ...]:
    """Return the instructions in the directories from below `workspace` down to `directory`.

    The nearest come last. Both paths are absolute, without links. The same limits apply as for
    `read_instructions`.
    """
    if not directory.is_relative_to(workspace):
        return ()
    below = directory.relative_to(workspace)
    if NOT_THE_PROJECTS.intersection(below.parts):
        return ()
    upwards = [directory, *directory.parents][: len(below.parts)]
    return _collect([(one, workspace) for one in upwards], may_read)


def _upwards(workspace: Path, repository: Path | None, home: Path) -> list[Path]:
    chain = [workspace, *workspace.parents]
    ends = [chain.index(end) for end in (repository, home) if end in chain]
    return chain[: min(ends, default=0) + 1]


def _documents(
    directory: Path, within: Path | None, left: int, may_read: MayRead
) -> Iterator[Document | RefusedDocument]:
    """Yield a directory's refused documents up to its first readable one, and then that one.

    Without `within`, the documents are the user's own.
    """
    bytes_max = min(left, FILE_BYTES_MAX)
    for name in NAMES:
        document = read_project_document(directory / name, within, bytes_max, may_read)
        if document:
            yield document
        if isinstance(document, Document):
            return


def _collect(
    places: Iterable[tuple[Path, Path | None]], may_read: MayRead
) -> tuple[Instructions, ...]:
    """Return the documents that have text or were refused, the last place's first.

    Each place is a directory, and where its links may lead. The first place gets its share of the
    bytes first.
    """
    left = TOTAL_BYTES_MAX
    instructions: list[Instructions] = []
    for directory, within in places:
        for document in _documents(directory, within, left, may_read):
            path = printable(document.path)
            if isinstance(document, RefusedDocument):
                instructions.append(Instructions(path, "", document.why))
                continue
            text = document.text.strip()
            if document.cut:
                text += (
                    f"\n(Cut here: {path} has {document.size_bytes:,} bytes, too many for a "
                    "prompt. Read the rest when it matters.)"
                )
            if text:
                instructions.append(Instructions(path, text))
                left -= len(document.text.encode())
    return tuple(reversed(instructions))
