"""Writes and compares the trees in a shadow repository, and reads blobs."""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from tiller_daemon.files.restore import GitEntry
from tiller_daemon.snapshots.shadow_repository import ShadowRepository

PATHS_AT_ONCE: Final = 500
"""How many paths go on one command line; Linux allows 2 MiB, and 4 KiB for each path."""

_CHANGES: Final = ("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", "--raw", "--numstat")
_DIFF: Final = (
    *("--literal-pathspecs", "diff-tree", "-r", "-p", "--no-renames"),
    *("--no-ext-diff", "--no-textconv", "--no-color", "--binary"),
)


class TreeChange(NamedTuple):
    """A file that differs between two trees."""

    path: str
    """The path in the workspace."""
    before: GitEntry | None
    """The old entry; None if the file was added."""
    after: GitEntry | None
    """The new entry; None if the file was removed."""
    added: int | None
    """The number of added lines; None if the file is not text."""
    removed: int | None
    """The number of removed lines; None if the file is not text."""


async def write_tree(shadow: ShadowRepository) -> str:
    """Write a tree of the workspace's index. All functions of this module raise `GitProblem`."""
    if not shadow.prefix:
        return (await shadow.run("write-tree")).decode().strip()
    if not await shadow.run("ls-files", "-z", on_files=True):
        return (await shadow.run("mktree")).decode().strip()
    return (await shadow.run("write-tree", f"--prefix={shadow.prefix}")).decode().strip()


async def blobs_in(tree: str, shadow: ShadowRepository) -> frozenset[str]:
    """Return the ids of the contents of all files in a tree."""
    records = (await shadow.run("ls-tree", "-r", "-z", tree)).split(b"\0")
    return frozenset(one.partition(b"\t")[0].split(b" ")[2].decode() for one in records if one)


async def compare(before: str, after: str, shadow: ShadowRepository) -> tuple[TreeChange, ...]:
    """Return the files that differ between two trees, by path."""
    return _changes(await shadow.run(*_CHANGES, before, after))


async def differences(
    before: str, after: str, paths: Sequence[str], shadow: ShadowRepository
) -> str:
    """Return the differences between two trees in these files, as a diff for `git apply`."""
    results: list[bytes] = []
    for start in range(0, len(paths), PATHS_AT_ONCE):
        some = paths[start : start + PATHS_AT_ONCE]
        results.append(await shadow.run(*_DIFF, before, after, "--", *some))
    return b"".join(results).decode(errors="replace")


async def contents(blobs: Sequence[str], shadow: ShadowRepository) -> dict[str, bytes]:
    """Return the bytes of these blobs; missing blobs are left out."""
    if not blobs:
        return {}
    output = await shadow.run(
        "cat-file", "--batch", stdin="".join(f"{b}\n" for b in blobs).encode()
    )
    results: dict[str, bytes] = {}
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        name, kind, *size = output[at:end].decode().split(" ")
        at = end + 1
        if kind == "blob":
            results[name] = output[at : at + int(size[0])]
            at += int(size[0]) + 1
    return results


def _changes(output: bytes) -> tuple[TreeChange, ...]:
    """Parse the output of `diff-tree --raw --numstat -z`: first all entries, then all counts."""
    entries: dict[bytes, tuple[GitEntry | None, GitEntry | None]] = {}
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    records = iter(output.split(b"\0"))
    for record in records:
        if record.startswith(b":"):
            before, after, old, new, _ = record[1:].decode().split(" ")
            entries[next(records)] = (_entry(before, old), _entry(after, new))
        elif record:
            added, removed, name = record.split(b"\t", 2)
            counts[name] = (_count(added), _count(removed))
    nothing = (None, None)
    return tuple(
        TreeChange(os.fsdecode(name), *both, *counts.get(name, nothing))
        for name, both in entries.items()
    )


def _entry(mode: str, blob: str) -> GitEntry | None:
    return GitEntry(int(mode, 8), blob) if int(mode, 8) else None


def _count(text: bytes) -> int | None:
    return None if text == b"-" else int(text)
