"""What a link makes other programs execute, no agent writes unasked: by a build, or by a tool."""

import os
from pathlib import Path

import pytest
import trio

from e2e.test_sandbox import DEFAULT, NewDaemon, confined, confining, needs_sandbox, read, run
from e2e.words import calls, text, write
from support.daemon import Daemon
from support.frontend import Frontend

__all__ = ["DEFAULT", "NewDaemon", "confined", "confining"]

COMMITTER = {**os.environ, "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t"}
COMMITTER |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}

MAKEFILE = "all:\n\techo 'touch escaped' >>githooks/pre-commit\n"


@pytest.fixture
def hook(workspace: Path) -> Path:
    """A hook in the work tree, to which git's own directory has a link."""
    made = workspace / "githooks" / "pre-commit"
    made.parent.mkdir()
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    (workspace / ".git/hooks/pre-commit").symlink_to("../../githooks/pre-commit")
    (workspace / "Makefile").write_text(MAKEFILE)
    return made


@needs_sandbox
@pytest.mark.promise("B60")
async def test_a_build_can_not_write_a_hook_that_git_reaches_by_a_link(
    confined: tuple[Daemon, Frontend],
    workspace: Path,
    hook: Path,
) -> None:
    call = await run(confined[1], workspace, "make", approve="never")
    assert "Read-only file system" in call.output
    commit = ["git", "-C", str(workspace), "commit", "-qm", "x", "--allow-empty"]
    await trio.run_process(commit, env=COMMITTER)
    assert read(workspace / "escaped") is None


@needs_sandbox
@pytest.mark.promise("B60")
async def test_permission_to_write_does_not_cover_such_a_hook(
    confined: tuple[Daemon, Frontend], workspace: Path, hook: Path
) -> None:
    frontend = confined[1]
    await trio.Path(hook).unlink()
    allowed = [{"permission": "write", "pattern": "*", "action": "allow"}]
    for name, kind in (("other", None), (hook.name, "denied")):
        session_id = await frontend.session(
            workspace,
            calls(write(f"{hook.parent.name}/{name}", "x")),
            text("done"),
            approve="never",
            permissions=allowed,
        )
        await frontend.say(session_id)
        await frontend.turn_ended(session_id)
        (call,) = frontend.completed_calls(session_id)
        assert call.error_kind == kind
    assert read(hook) is None
