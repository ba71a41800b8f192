"""Adds up the files that a turn changed, from the patches of its steps. Pure."""

from collections.abc import Iterable

from tiller_protocol.items import FileChange, Item, Patch

FILES_NAMED_MAX = 1_000
"""How many files `turn_ended` names at most, which is as many as one patch names."""


def changed_files(items: Iterable[Item]) -> tuple[tuple[FileChange, ...], bool]:
    """Return the files that the patches in `items` changed, sorted, and whether there may be more.

    A file that one step added and a later step removed has not changed.
    """
    changes: dict[str, FileChange] = {}
    more = False
    for patch in items:
        if not isinstance(patch, Patch):
            continue
        more = more or not patch.tree_after or patch.more > 0
        for change in patch.changes:
            before = changes.pop(change.path, None)
            joined = _join(before, change) if before else change
            if joined:
                changes[change.path] = joined
    paths = sorted(changes)
    named = tuple(changes[path] for path in paths[:FILES_NAMED_MAX])
    return named, more or len(paths) > FILES_NAMED_MAX


def _join(first: FileChange, then: FileChange) -> FileChange | None:
    """Return the sum of two changes of a file; None if the file existed only between them."""
    added, removed = first.kind == "added", then.kind == "removed"
    if added and removed:
        return None
    kind = "added" if added else "removed" if removed else "modified"
    return FileChange(
        then.path,
        kind,
        _sum(first.added_lines, then.added_lines),
        _sum(first.removed_lines, then.removed_lines),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
