"""Publishes a worktree's branch in the repository that the worktree was made from.

Commands have written to the worktree's `.git`, so git reads it in a sandbox, and only a pack of
new commits gets out. The original repository checks the pack, takes it, and moves the branch if
nobody else has moved it.
"""

import re
import tempfile
from pathlib import Path
from typing import Final

import trio
from msgspec import structs

from tiller_daemon.worktrees.git import (
    GitFailed,
    MakeSandbox,
    WorktreeProblem,
    data_inside,
    git,
    git_inside,
    succeeds,
)
from tiller_daemon.worktrees.making import KEPT, branches_in_use
from tiller_daemon.worktrees.records import Record, Records

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class BranchMoved(WorktreeProblem):
    """The commits are in the original repository, but its branch could not be moved to them."""


async def head_of(make: MakeSandbox, record: Record) -> str:
    """Return the last commit of a worktree's branch; raises `WorktreeProblem`."""
    try:
        found = await git_inside(
            make, record.path, "rev-parse", "--verify", "--quiet", f"refs/heads/{record.name}"
        )
    except GitFailed:
        raise WorktreeProblem(f"{record.path} has no branch `{record.name}` any more.") from None
    if not _COMMIT.fullmatch(found):
        raise WorktreeProblem(f"git gives no commit of {record.path}: {found[:80]}")
    return found


async def publish(records: Records, make: MakeSandbox, record: Record) -> Record:
    """Bring a worktree's commits into the original repository, and move the branch there.

    Returns the changed record. Raises `BranchMoved` if the branch can't be moved because somebody
    else uses it, and `WorktreeProblem`.
    """
    head = await head_of(make, record)
    if head == record.published:
        return record
    repository, ref = record.origin.repository, f"refs/heads/{record.name}"
    kept = f"{KEPT}/{record.id}/head"
    # A daemon may have died between moving the branch and storing the record.
    ours = (record.published, await _value(repository, kept), head)
    await _take(make, record, head)
    await git(repository, "update-ref", kept, head)
    if place := (await branches_in_use(repository)).get(record.name):
        why = f"The branch `{record.name}` is checked out in {place}, so it was not moved."
        raise BranchMoved(f"{why} Its commits are kept as {kept}.")
    now = await _value(repository, ref)
    if now not in ours:
        why = f"The branch `{record.name}` has other commits than the worktree, so it stays there."
        raise BranchMoved(f"{why} The worktree's commits are kept as {kept}.")
    await git(repository, "update-ref", ref, head, now)
    published = structs.replace(record, published=head)
    records.put(published)
    return published


async def _value(repository: str, ref: str) -> str:
    """Return the commit of a ref; empty if there is no such ref."""
    return await git(repository, "for-each-ref", "--format=%(objectname)", ref)


async def _take(make: MakeSandbox, record: Record, head: str) -> None:
    """Take the new objects; nothing refers to them yet."""
    if await succeeds(
        record.origin.repository, "merge-base", "--is-ancestor", head, record.origin.base
    ):
        return
    ref = f"refs/heads/{record.name}"
    bundle = await data_inside(
        make, record.path, "bundle", "create", "-q", "-", ref, f"^{record.origin.base}"
    )
    with tempfile.NamedTemporaryFile(suffix=".bundle") as file:
        await trio.to_thread.run_sync(Path(file.name).write_bytes, bundle)
        await git(
            record.origin.repository,
            *("-c", "fetch.fsckObjects=true", "-c", "protocol.file.allow=always"),
            *("fetch", "-q", "--no-tags", "--no-write-fetch-head"),
            *("--no-recurse-submodules", file.name, f"+{ref}:{KEPT}/{record.id}/head"),
        )
    if not await succeeds(record.origin.repository, "cat-file", "-e", f"{head}^{{commit}}"):
        raise WorktreeProblem(f"The branch of {record.path} changed while it was read. Try again.")
