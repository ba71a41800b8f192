"""Worktrees: a checkout of its own for a session, which nothing in it can leave.

A worktree is a repository of its own that borrows the objects of the repository that it was made
from (git's "alternates"), and reads that repository's configuration. So everything that git writes
for a commit, a branch, a stash or a rebase stays in the worktree's own `.git`, and a sandbox that
lets commands write to nothing but the worktree keeps them from the other checkouts, their indexes,
refs, hooks and objects. A worktree of `git worktree add` shares refs and objects with all others;
no limit on directories can separate them.

The worktree's branch is published in the original repository: `publishing.py` packs the new commits
in a sandbox, as commands have written to the worktree's `.git`, and the original repository takes
the pack and moves the branch. A second ref (`refs/tiller/worktrees/NAME`) keeps the commits that a
worktree borrows from being pruned.

`records.py` has one file for each worktree, which says what it is and what is being done to it.
`making.py` and `removing.py` change a worktree in steps, so that a daemon that was killed can
finish or undo them from the record: what exists under its final name is complete. `landing.py`
merges a worktree's branch into its base. `git.py` runs git. `worktrees.py` is the interface.
"""
