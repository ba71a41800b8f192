"""Lands a worktree: brings its commits onto the branch that it was made from.

Nothing changes before the result exists as a commit. Then the branch moves to it in one step: as a
fast-forward of the checkout where the branch is checked out, else as a ref.
"""

from contextlib import suppress
from typing import Literal, NamedTuple

from msgspec import structs

from tiller_daemon.worktrees.git import (
    GitFailed,
    MakeSandbox,
    WorktreeProblem,
    branches_in_use,
    git,
    git_inside,
)
from tiller_daemon.worktrees.git import succeeds as holds
from tiller_daemon.worktrees.making import KEPT
from tiller_daemon.worktrees.publishing import publish
from tiller_daemon.worktrees.records import Record, Records

How = Literal["merge", "rebase", "squash"]

IGNORING = ("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=all")
"""Asks for changes of the checkout's own files: a submodule is updated later, by its user."""

FILES_SHOWN = 5
"""How many files a message names."""


class Conflict(WorktreeProblem):
    """The commits don't fit; everything is as it was."""

    def __init__(self, onto: str, files: tuple[str, ...]) -> None:
        super().__init__(
            f"There are conflicts with `{onto}` in {_some(files)}. Nothing has changed."
        )
        self.onto, self.files = onto, files


class Landed(NamedTuple):
    """What landing has done."""

    commit: str
    """The commit to which the branch has moved."""
    onto: str
    """The branch."""
    checkout: str
    """Where the branch is checked out; empty if nowhere."""
    submodules: tuple[str, ...] = ()
    """The paths of submodules there that are still at their earlier commit."""


class Target(NamedTuple):
    """Where a worktree lands."""

    branch: str
    tip: str
    """The branch's commit."""
    checkout: str
    """Where the branch is checked out; empty if nowhere."""


async def check_landable(make: MakeSandbox, record: Record, onto: str) -> Target:
    """Return where a worktree can land; raises `WorktreeProblem`."""
    target = onto or record.origin.base_branch
    if not target:
        raise WorktreeProblem(
            f"The worktree `{record.name}` was made from no branch. Say where to land, with --onto."
        )
    await check_clean(make, record)
    current = await git_inside(make, record.path, "branch", "--show-current")
    if current != record.name:
        where = f"`{current}` is" if current else "no branch is"
        raise WorktreeProblem(f"In {record.path} {where} checked out instead of `{record.name}`.")
    try:
        tip = await git(record.origin.repository, "rev-parse", "--verify", f"refs/heads/{target}")
    except GitFailed:
        raise WorktreeProblem(f"There is no branch `{target}` to land on.") from None
    place = (await branches_in_use(record.origin.repository)).get(target, "")
    if place:
        changed = await git(place, *IGNORING)
        if changed:
            files = _some(changed_paths(changed))
            why = f"`{target}` is checked out in {place}, where {files} changed."
            raise WorktreeProblem(f"{why} Commit or stash that first. Nothing has changed.")
    return Target(target, tip, place)


async def check_clean(make: MakeSandbox, record: Record, or_else: str = "") -> None:
    """Raise `WorktreeProblem` if a worktree has changes that are in no commit.

    `or_else` says what else can be done about them.
    """
    changed = await git_inside(make, record.path, "status", "--porcelain", "-z")
    if paths := tuple(one for one in changed_paths(changed) if one not in record.by_check):
        raise WorktreeProblem(
            f"The worktree `{record.name}` has changes that are in no commit: "
            f"{_some(paths)}. Commit them, let git ignore them, or let the "
            f"session do it{or_else}."
        )


async def loose_files(make: MakeSandbox, record: Record) -> tuple[str, ...]:
    """Return the files in a worktree that git does not track, and directories of such files."""
    listed = await git_inside(
        make, record.path, "status", "--porcelain", "-z", "--ignored=matching"
    )
    return tuple(one[3:] for one in listed.split("\0") if one[:3] in ("?? ", "!! "))


async def land(records: Records, make: MakeSandbox, record: Record, how: How, to: Target) -> Landed:
    """Land a worktree; raises `Conflict` or `WorktreeProblem`, and then nothing has changed."""
    target, tip, place = to
    record = await publish(records, make, record)
    repository, head = record.origin.repository, record.published
    if await holds(repository, "merge-base", "--is-ancestor", head, tip):
        raise WorktreeProblem(f"`{target}` has all commits of `{record.name}` already.")
    if how == "rebase":
        record = await _rebase(records, make, record, target, tip)
        commit = record.published
    elif how == "merge" and await holds(repository, "merge-base", "--is-ancestor", tip, head):
        commit = head
    else:
        commit = await _merged(record, target, tip, how)
    submodules = await _changed_submodules(record, tip, commit)
    if place:
        try:
            await git(place, "merge", "--ff-only", "-q", commit)
        except GitFailed as problem:
            raise WorktreeProblem(f"{problem} Nothing has changed in {place}.") from None
    else:
        await git(repository, "update-ref", f"refs/heads/{target}", commit, tip)
    records.put(structs.replace(record, landed=record.published))
    return Landed(commit, target, place, submodules if place else ())


async def check_fits(records: Records, make: MakeSandbox, record: Record, to: Target) -> Record:
    """Publish a worktree; raise `Conflict` if its commits can't be merged into a branch."""
    record = await publish(records, make, record)
    await _merged_tree(record, to.branch, to.tip)
    return record


async def show_target(make: MakeSandbox, record: Record, onto: str) -> None:
    """Move the target's branch in the worktree to its present commit, so that it can be merged."""
    ref = f"refs/heads/{onto}"
    with suppress(GitFailed):
        tip = await git(record.origin.repository, "rev-parse", "--verify", ref)
        await git(record.origin.repository, "update-ref", f"{KEPT}/{record.id}/onto", tip)
        await git_inside(make, record.path, "update-ref", ref, tip, writes=True)


async def abort_rebase(records: Records, make: MakeSandbox, record: Record) -> None:
    """Undo a rebase that did not end, if there is one."""
    with suppress(GitFailed):
        await git_inside(make, record.path, "rebase", "--abort", writes=True)
    records.put(structs.replace(record, is_rebasing=False))


async def _merged_tree(record: Record, target: str, tip: str) -> str:
    """Return the tree with the changes of both; raises `Conflict`."""
    merging = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
    # With conflicts, the status is 1 and the files follow the tree.
    answer = await git(record.origin.repository, *merging, tip, record.published, ok=(1,))
    tree, *conflicts = (part for part in answer.split("\0") if part)
    if conflicts:
        raise Conflict(target, tuple(conflicts))
    return tree


async def _merged(record: Record, target: str, tip: str, how: How) -> str:
    """Return a new commit with both histories, or with one for all commits of the worktree."""
    head = record.published
    tree = await _merged_tree(record, target, tip)
    subjects = await git(
        record.origin.repository, "log", "--reverse", "--format=%s", f"{tip}..{head}", "--"
    )
    if how == "squash":
        lines = subjects.splitlines()
        title = lines[0] if len(lines) == 1 else f"{record.name}: {lines[-1]}"
        body = "" if len(lines) == 1 else "\n\n" + "\n".join(f"- {line}" for line in lines)
        parents, message = ("-p", tip), title + body
    else:
        parents, message = ("-p", tip, "-p", head), f"Merge branch '{record.name}' into {target}"
    return await git(record.origin.repository, "commit-tree", tree, *parents, "-m", message)


async def _rebase(
    records: Records, make: MakeSandbox, record: Record, target: str, tip: str
) -> Record:
    """Rebase in the worktree, in its sandbox; publish the result."""
    record = structs.replace(record, is_rebasing=True)
    records.put(record)
    try:
        await git_inside(make, record.path, "rebase", "-q", tip, writes=True)
    except GitFailed as problem:
        listed = await git_inside(make, record.path, "diff", "--name-only", "--diff-filter=U", "-z")
        files = tuple(name for name in listed.split("\0") if name)
        await abort_rebase(records, make, record)
        if not files:
            raise WorktreeProblem(
                f"The commits of `{record.name}` can't be rebased there, but perhaps they land "
                f"without --rebase. Nothing has changed. {problem}"
            ) from None
        raise Conflict(target, files) from None
    record = structs.replace(record, is_rebasing=False)
    records.put(record)
    return await publish(records, make, record)


async def _changed_submodules(record: Record, tip: str, commit: str) -> tuple[str, ...]:
    """Return the submodules that have another commit now, of those that the checkout has filled.

    Raises `WorktreeProblem` if such a commit is in the worktree only.
    """
    found: list[str] = []
    changed = (await git(record.origin.repository, "diff-tree", "-r", "-z", tip, commit)).split(
        "\0"
    )
    for state, path in zip(changed[::2], changed[1::2], strict=False):
        _, mode, _, new, *_ = state.split(" ")
        theirs = f"{record.origin.checkout}/{path}"
        if mode != "160000" or not await holds(theirs, "rev-parse", "--git-dir"):
            continue
        if not await holds(theirs, "cat-file", "-e", f"{new}^{{commit}}"):
            why = f"The submodule {path} has commits that are only in the worktree."
            todo = f"Push them from there, and fetch them in {theirs}."
            raise WorktreeProblem(f"{why} {todo} Nothing has changed.")
        found.append(path)
    return tuple(found)


def changed_paths(status: str) -> tuple[str, ...]:
    """Return the paths in what `git status --porcelain -z` prints."""
    return tuple(entry[3:] for entry in status.split("\0") if entry[2:3] == " ")


def _some(files: tuple[str, ...]) -> str:
    more = len(files) - FILES_SHOWN
    shown = ", ".join(files[:FILES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
