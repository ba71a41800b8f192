"""What git executes in a workspace is not changed by a build that runs without approval.

Each test lets a build try. Afterwards, the user runs git outside of the sandbox.
"""

from pathlib import Path

import pytest
import trio

from e2e.test_escalation import asked, begin_unasked, daemon
from e2e.test_linked_hooks import COMMITTER
from e2e.test_sandbox import needs_sandbox
from support.frontend import Frontend

__all__ = ["daemon"]

pytestmark = needs_sandbox


async def git(directory: Path, *arguments: str) -> None:
    command = ["git", "-C", str(directory), *arguments]
    await trio.run_process(command, env=COMMITTER, capture_stdout=True)


async def build(frontend: Frontend, workspace: Path, *lines: str) -> str:
    """Let a build run these lines, each of which may fail; return the output of the call."""
    (workspace / "Makefile").write_text("all:\n" + "".join(f"\t-{line}\n" for line in lines))
    session_id = await begin_unasked(frontend, workspace, "make")
    await frontend.turn_ended(session_id)
    (call,) = frontend.completed_calls(session_id)
    assert asked(frontend, session_id) == []
    return call.output


@pytest.mark.promise("B60")
async def test_a_build_writes_no_hook_of_another_repository_in_the_workspace(
    frontend: Frontend, workspace: Path
) -> None:
    other, old = workspace / "projects" / "other", workspace / "old"
    await git(workspace, "init", "-q", "projects/other")
    await git(other, "config", "core.hooksPath", ".husky/_")
    await git(workspace, "init", "-q", "old")
    await git(old, "config", "core.hooksPath", "githooks")
    (old / "githooks").mkdir()
    (old / "githooks" / "pre-commit").write_text("#!/bin/sh\n")
    (old / "githooks" / "pre-commit").chmod(0o755)
    output = await build(
        frontend,
        workspace,
        "mkdir -p projects/other/.husky/_",
        "echo 'touch ran' >projects/other/.husky/_/pre-commit",
        "chmod +x projects/other/.husky/_/pre-commit",
        "echo 'touch ran' >>old/githooks/pre-commit",
        "touch projects/other/built",
    )
    for place in (other, old):
        await git(place, "commit", "-q", "--allow-empty", "-m", "x")
        assert not (place / "ran").exists(), output
    assert (other / "built").exists(), output
