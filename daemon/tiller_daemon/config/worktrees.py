"""The schema of the settings for worktrees."""

from typing import Annotated

from msgspec import Meta, Struct

FileName = Annotated[str, Meta(pattern=r"^(?!/)(?!.*(^|/)\.\.?(/|$)).+$")]


class ProjectWorktree(Struct, frozen=True, forbid_unknown_fields=True):
    """What a new worktree gets, and which commands accompany it; all of them run in a sandbox."""

    copy: tuple[FileName, ...] = ()
    """Files of the checkout that a new worktree gets, such as `.env`; relative to the top."""
    setup: str = ""
    """A command line for the shell that prepares a new worktree, in the session's first turn."""
    check: str = ""
    """A command line that must succeed before a worktree lands."""
    teardown: str = ""
    """A command line that runs before a worktree is removed."""


class Worktree(ProjectWorktree, frozen=True, forbid_unknown_fields=True):
    """Where worktrees are, and what they get."""

    directory: str | None = None
    """The directory for worktrees, absolute after loading; absent means `CHECKOUT.worktrees` beside
    each checkout."""
