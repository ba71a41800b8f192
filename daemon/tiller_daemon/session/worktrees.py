"""Sessions in worktrees: makes the worktree of a new session."""

from contextlib import suppress
from pathlib import Path

from tiller_daemon.config import TrustError
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.services import Services
from tiller_daemon.worktrees.git import WorktreeProblem
from tiller_daemon.worktrees.worktrees import Made, Worktrees
from tiller_protocol.worktrees import WorktreeChoice

LEFT = (
    "{checkout} has changes in {left} {files}, which this worktree does not have. It begins with "
    "commit {commit}."
)


def worktrees_of(services: Services) -> Worktrees:
    """Return the worktrees; raises `RejectionError` if this daemon has none."""
    if services.files.worktrees is None:
        raise RejectionError("worktree", "This daemon makes no worktrees.")
    return services.files.worktrees


async def make_worktree(services: Services, workspace: str, choice: WorktreeChoice) -> Made:
    """Return the worktree of a new session; raises `RejectionError`.

    A project that the user trusts is trusted there as well, as long as its content is the same.
    """
    settings = configuration_for(services, workspace).worktree
    try:
        made = await worktrees_of(services).make(
            Path(workspace), choice.name, choice.base, settings
        )
    except WorktreeProblem as problem:
        raise RejectionError("worktree", str(problem)) from problem
    known = services.user.projects.inspect(workspace)
    copy = services.user.projects.inspect(made.workspace)
    if known.trusted and copy.digest == known.digest and not copy.trusted:
        with suppress(TrustError):
            services.user.projects.trust(made.workspace, copy.digest)
    return made


def what_is_left(made: Made) -> str:
    """Return a sentence about changes that a new worktree does not have; or empty."""
    if not made.left:
        return ""
    record, files = made.record, "file" if made.left == 1 else "files"
    return LEFT.format(
        checkout=record.origin.checkout, left=made.left, files=files, commit=record.origin.base[:12]
    )
