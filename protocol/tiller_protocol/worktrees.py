"""Ops on worktrees: checkouts of their own for sessions, which nothing in them can leave."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.op import Op, Result

BRANCH_CHARS_MAX = 200
"""Maximum number of characters in the name of a worktree."""

BranchName = Annotated[str, Meta(max_length=BRANCH_CHARS_MAX)]

WorktreeRef = Annotated[IdText, doc("Id of the worktree, from `worktree_list`.")]


class WorktreeChoice(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The worktree in which a new session works."""

    name: Annotated[
        BranchName,
        doc(
            "Name of the worktree and of its branch. A worktree of this repository with this name "
            "is used again. Default: a new name."
        ),
    ] = ""
    base: Annotated[
        BranchName,
        doc("Branch or commit that a new worktree begins with. Default: what is checked out."),
    ] = ""


class WorktreeList(Op, frozen=True, tag="worktree_list"):
    """Lists worktrees, oldest first. Answered by `WorktreeListResult`."""

    workspace: Annotated[
        str | None, doc("Only worktrees of the repository around this directory. Default: all.")
    ] = None
    name: Annotated[BranchName, doc("Only worktrees with this name. Default: all.")] = ""


class WorktreeSummary(Struct, frozen=True, omit_defaults=True):
    """A worktree."""

    id: Annotated[str, doc("Id of the worktree.")]
    name: Annotated[str, doc("Name of the worktree and of its branch.")]
    path: Annotated[str, doc("Absolute path of its top.")]
    checkout: Annotated[str, doc("Absolute path of the checkout that it was made from.")]
    state: Annotated[
        Literal["ready", "removed", "missing"],
        doc(
            "`ready`: there. `removed`: kept until `kept_until`, and can be restored. `missing`: "
            "somebody else has removed its directory."
        ),
    ]
    base_branch: Annotated[
        str, doc("Branch that it was made from and lands on; empty if none was checked out.")
    ] = ""
    ahead: Annotated[
        int, doc("Number of its commits that `base_branch` does not have; 0 once they have landed.")
    ] = 0
    changed_files: Annotated[int, doc("Number of files with changes that are in no commit.")] = 0
    sessions: Annotated[tuple[str, ...], doc("Ids of the sessions that work in it.")] = ()
    disk_bytes: Annotated[int, doc("What a removed worktree takes on the disk.")] = 0
    kept_until: Annotated[
        float | None, doc("When a removed worktree is deleted for good, in Unix seconds.")
    ] = None
    problem: Annotated[str, doc("Why its branch can't be moved or read; empty if it can.")] = ""


class WorktreeListResult(Result, frozen=True, tag="worktree_list"):
    """The worktrees."""

    worktrees: Annotated[tuple[WorktreeSummary, ...], doc("Worktrees, oldest first.")]


class WorktreeLand(Op, frozen=True, tag="worktree_land"):
    """Brings a worktree's commits onto its base branch. Answered by `WorktreeLanded`.

    Rejected as `conflict` if the commits don't fit, with `files`, `onto` and a `task` for the
    session in `data`, and as `worktree` for any other reason. Nothing has changed then.
    """

    worktree_id: WorktreeRef
    how: Annotated[
        Literal["merge", "rebase", "squash"],
        doc(
            "`merge`: fast-forward if possible, else a merge commit. `rebase`: one commit after "
            "another. `squash`: a single commit."
        ),
    ] = "merge"
    onto: Annotated[BranchName, doc("Branch to land on. Default: `base_branch`.")] = ""


class WorktreeLanded(Result, frozen=True, tag="worktree_landed"):
    """A worktree has landed."""

    commit: Annotated[str, doc("Commit to which the branch has moved.")]
    onto: Annotated[str, doc("The branch.")]
    checkout: Annotated[
        str, doc("Where the branch is checked out, and was updated; empty if nowhere.")
    ] = ""
    submodules: Annotated[
        tuple[str, ...],
        doc("Paths of submodules in `checkout` that `git submodule update` must bring up to date."),
    ] = ()


class WorktreeRemove(Op, frozen=True, tag="worktree_remove"):
    """Removes a worktree, which can be restored for 30 days. Answered by `WorktreeResult`.

    Rejected as `worktree` if anything in it exists nowhere else, unless `force`.
    """

    worktree_id: WorktreeRef
    force: Annotated[bool, doc("Remove it whatever is in it.")] = False


class WorktreeRestore(Op, frozen=True, tag="worktree_restore"):
    """Puts a removed worktree back. Answered by `WorktreeResult`."""

    worktree_id: WorktreeRef


class WorktreeResult(Result, frozen=True, tag="worktree"):
    """A worktree that was removed or restored."""

    worktree: Annotated[WorktreeSummary, doc("The worktree.")]
