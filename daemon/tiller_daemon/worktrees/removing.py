"""Removes a worktree, keeps it for a month, and restores it.

A removed worktree is moved aside beside the other worktrees, where it can be renamed back.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio
from msgspec import structs

from tiller_daemon.sandbox.known_paths import is_product
from tiller_daemon.worktrees.git import (
    MakeSandbox,
    WorktreeProblem,
    branches_in_use,
    git,
    git_inside,
    succeeds,
)
from tiller_daemon.worktrees.landing import check_clean
from tiller_daemon.worktrees.making import KEPT, read_plain
from tiller_daemon.worktrees.records import Record, Records, exists

KEPT_DAYS: Final = 30
"""How long a removed worktree can be restored."""

DAY_S: Final = 86_400.0

PRODUCTS: Final = frozenset(
    ("node_modules", "target", "build", "dist", "out", "__pycache__", "venv", "vendor")
)
"""Ignored directories that builds make again. Names with a dot are in `known_paths`."""


async def check_removable(make: MakeSandbox, record: Record) -> None:
    """Raise `WorktreeProblem` if anything in a worktree exists nowhere else."""
    await check_clean(make, record, ", or remove the worktree with --force")
    target = record.origin.base_branch
    merged = target and await succeeds(
        record.origin.repository,
        *("merge-base", "--is-ancestor", record.published, f"refs/heads/{target}"),
    )
    if not merged and record.published not in (record.origin.base, record.landed):
        raise WorktreeProblem(
            f"The commits of `{record.name}` are not in `{target or 'any branch'}`. Land them, or "
            "remove the worktree with --force; the branch stays in any case."
        )
    listed = await git_inside(
        make, record.path, "status", "--porcelain", "-z", "--ignored=matching"
    )
    names = [one[3:] for one in listed.split("\0") if one.startswith("!! ")]
    if left := [name for name in names if not _is_dispensable(record, name)]:
        shown = ", ".join(left[:5])
        raise WorktreeProblem(
            f"The worktree `{record.name}` has ignored files that exist only there: {shown}. Copy "
            "them, or remove the worktree with --force."
        )


async def is_untouched(make: MakeSandbox, record: Record) -> bool:
    """Whether nothing was committed, stashed, changed or left in a worktree."""
    if not record.origin.is_new or record.published != record.origin.base:
        return False
    span = ("--all", "--reflog", f"^{record.origin.base}")
    try:
        await check_removable(make, record)
        return await git_inside(make, record.path, "rev-list", "--count", *span) == "0"
    except WorktreeProblem:
        return False


def _is_dispensable(record: Record, name: str) -> bool:
    """Whether a build makes an ignored file or directory, or it is an unchanged copy."""
    parts = name.rstrip("/").split("/")
    if name in record.by_check or any(
        part in PRODUCTS or (part[0] == "." and is_product(part)) for part in parts
    ):
        return True
    content = read_plain(Path(record.path), name) if name in record.origin.copied else None
    return (
        content is not None and hashlib.sha256(content[0]).hexdigest() == record.origin.copied[name]
    )


async def remove(records: Records, record: Record, now: float) -> Record:
    """Move a worktree aside; its branch goes if other branches have its commits."""
    trash = Path(record.path).parent / f".{record.id}.removed"
    removed = structs.replace(record, state="removing", trash=str(trash), removed_at=now)
    records.put(removed)
    if exists(record.path):
        await trio.to_thread.run_sync(os.rename, record.path, trash)
    removed = structs.replace(removed, state="removed")
    records.put(removed)
    if await _is_elsewhere(record):
        await git(
            record.origin.repository,
            "update-ref",
            "-d",
            f"refs/heads/{record.name}",
            record.published,
        )
    return removed


async def _is_elsewhere(record: Record) -> bool:
    """Whether a branch may go: nobody has it checked out, and another one has its commits."""
    branch = f"refs/heads/{record.name}"
    if record.name in await branches_in_use(record.origin.repository):
        return False
    if not await succeeds(record.origin.repository, "show-ref", "-q", "--verify", branch):
        return False
    if record.published in (record.landed, record.origin.base):
        return True
    target = f"refs/heads/{record.origin.base_branch}"
    return bool(record.origin.base_branch) and await succeeds(
        record.origin.repository, "merge-base", "--is-ancestor", record.published, target
    )


def recover_removed(records: Records, record: Record) -> None:
    """Finish or undo a removal during which the daemon died."""
    gone = not exists(record.path)
    records.put(
        structs.replace(record, state="removed")
        if gone
        else structs.replace(record, state="ready", trash="", removed_at=0.0)
    )


async def restore(records: Records, record: Record) -> Record:
    """Put a removed worktree back; raises `WorktreeProblem`."""
    if exists(record.path):
        raise WorktreeProblem(f"{record.path} is taken. Rename what is there, then try again.")
    branch = f"refs/heads/{record.name}"
    if not await succeeds(record.origin.repository, "show-ref", "-q", "--verify", branch):
        await git(record.origin.repository, "update-ref", branch, record.published, "0" * 40)
    await trio.to_thread.run_sync(os.rename, record.trash, record.path)
    ready = structs.replace(record, state="ready", trash="", removed_at=0.0)
    records.put(ready)
    return ready


async def purge(records: Records, record: Record) -> None:
    """Delete a removed worktree for good."""
    await trio.to_thread.run_sync(lambda: shutil.rmtree(record.trash, ignore_errors=True))
    with suppress(OSError):  # unless other worktrees are there
        Path(record.trash).parent.rmdir()
    await forget(records, record)


async def forget(records: Records, record: Record) -> None:
    """Drop a record, and what keeps its commits in the original repository."""
    for name in ("base", "head", "onto"):
        await succeeds(record.origin.repository, "update-ref", "-d", f"{KEPT}/{record.id}/{name}")
    records.drop(record)


def size_of(place: Path) -> int:
    """Return how many bytes a directory takes on the disk."""
    total = 0
    for folder, _, files in os.walk(place):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118
            except OSError:
                continue
    return total
