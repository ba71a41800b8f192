"""What user and project tell every model: `AGENTS.md`, or else `CLAUDE.md`.

Found and cut here, put into the prompt by the turn. Text for a model, and nothing else.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tiller_daemon.files.paths import printable
from tiller_daemon.workspace.documents import (
    Document,
    MayRead,
    RefusedDocument,
    read_document,
    read_project_document,
)

NAMES: Final = ("AGENTS.md", "CLAUDE.md")
"""The first that is there counts, in each directory by itself."""

FILE_BYTES_MAX: Final = 32 * 1024
"""Of one file; some 8,000 tokens, with every request of every turn."""

TOTAL_BYTES_MAX: Final = 64 * 1024
"""Of all files; the nearest get theirs first."""


NOT_THE_PROJECTS: Final = frozenset({".git", ".venv", "node_modules", "site-packages"})
"""Directories of other people's packages: what stands below them speaks to their developers."""


class Instructions(NamedTuple):
    """One file, with a last sentence that says so when it was cut.

    With a `problem`, a clause, it was not read and says nothing.
    """

    path: str
    text: str
    problem: str = ""


def read_instructions(
    workspace: Path, repository: Path | None, home: Path, config: Path, may_read: MayRead
) -> tuple[Instructions, ...]:
    """Return what applies to `workspace`, the nearest last: that one wins.

    Looked at are the user's own in `config`, then each directory from the root of the repository
    (or from `home`, if that comes first on the way up) down to the workspace; outside of both, the
    workspace alone. All paths are absolute, with links followed. A file of a project that leads
    out of the repository (without one: out of its directory) or that a model `may_read` only with
    an approval has a `problem`.
    """
    left = TOTAL_BYTES_MAX
    found: list[Instructions] = []
    for directory in _upwards(workspace, repository, home):
        within = repository or directory
        left = _collect(_documents(directory, within, left, may_read), found, left)
    _collect(_documents(config, None, left, may_read), found, left)
    return tuple(reversed(found))


def read_nested_instructions(
    workspace: Path, directory: Path, may_read: MayRead
) -> tuple[Instructions, ...]:
    """Return what applies to `directory` beyond what applies to `workspace`, the nearest last.

    Looked at is each directory below the workspace on the way to `directory`; both are absolute,
    with links followed. The bounds are those of `read_instructions`.
    """
    if not directory.is_relative_to(workspace):
        return ()
    below = directory.relative_to(workspace)
    if NOT_THE_PROJECTS.intersection(below.parts):
        return ()
    left = TOTAL_BYTES_MAX
    found: list[Instructions] = []
    for one in [directory, *directory.parents][: len(below.parts)]:
        left = _collect(_documents(one, workspace, left, may_read), found, left)
    return tuple(reversed(found))


def _upwards(workspace: Path, repository: Path | None, home: Path) -> list[Path]:
    chain = [workspace, *workspace.parents]
    ends = [chain.index(end) for end in (repository, home) if end in chain]
    return chain[: min(ends, default=0) + 1]


def _documents(
    directory: Path, within: Path | None, left: int, may_read: MayRead
) -> Iterator[Document | RefusedDocument]:
    """Give what is refused, until one can be read; without `within` it is the user's own."""
    bytes_max = min(left, FILE_BYTES_MAX)
    for name in NAMES:
        path = directory / name
        if within is None:
            document = read_document(path, None, bytes_max)
        else:
            document = read_project_document(path, within, bytes_max, may_read)
        if document:
            yield document
        if isinstance(document, Document):
            return


def _collect(
    documents: Iterable[Document | RefusedDocument], found: list[Instructions], left: int
) -> int:
    """Add those that say something; returns how many bytes are left for the others."""
    for document in documents:
        path = printable(document.path)
        if isinstance(document, RefusedDocument):
            found.append(Instructions(path, "", document.why))
            continue
        text = document.text.strip()
        if not text and not document.cut:
            continue
        if document.cut:
            text += (
                f"\n(Cut here: {path} has {document.size_bytes:,} bytes, more than fit into a "
                "prompt. Read the rest of it when it matters.)"
            )
        found.append(Instructions(path, text))
        left -= len(document.text.encode())
    return left
