"""Runs git for worktrees: as the user in the user's own repository, in a sandbox elsewhere.

Commands have written to a worktree's `.git`, so there git runs only in a sandbox. In the original
repository it runs no hooks, and contacts no server.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import trio

from tiller_daemon.isolation import environment_of_commands, find_program
from tiller_daemon.processes.command import CommandProblem, run_command
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.sandbox.git_repository import VARIABLES

GIT_S_MAX: Final = 600.0
"""The longest time for one run of git, which may check out a large repository."""

OUTPUT_BYTES_MAX: Final = 1 << 31
"""The most output of git that is kept: a pack of all new commits."""

PROBLEM_CHARS_MAX: Final = 500

OPTIONS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "protocol.allow=never"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "submodule.recurse=false"),
)
"""Options for every run: no hooks, no servers, and no work in the background."""

Use = Literal["read", "git", "script"]
"""What a sandbox in a worktree is for: git that only reads, git that writes, or a script."""

MakeSandbox = Callable[[Path, Use], Awaitable[CommandSandbox | None]]
"""Makes the sandbox of a program in a worktree; None if this machine has no sandbox."""


class WorktreeProblem(Exception):
    """Something about a worktree is not possible; the message says why, in whole sentences."""


class GitFailed(WorktreeProblem):
    """git has failed; the message is what git says."""


def variables() -> dict[str, str]:
    """Return the environment of git."""
    given = environment_of_commands()
    kept = {name: given[name] for name in VARIABLES if name in given}
    path = os.environ.get("PATH", os.defpath)
    identity = {name: value for name, value in given.items() if name.startswith("GIT_COMMITTER_")}
    return {**kept, **identity, "PATH": path, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}


async def git(
    directory: Path | str, *arguments: str, stdin: bytes = b"", ok: Sequence[int] = ()
) -> str:
    """Run git as the user, in the user's repository; return its output without the last newline.

    Raises `GitFailed` unless git ends with 0 or a status in `ok`. Cancellation kills git.
    """
    try:
        with trio.fail_after(GIT_S_MAX):
            done = await trio.run_process(
                [_program(), *OPTIONS, *arguments],
                stdin=stdin,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                cwd=directory,
                env=variables(),
            )
    except trio.TooSlowError:
        raise GitFailed(f"`git {arguments[0]}` took longer than {GIT_S_MAX:g} s.") from None
    except OSError as error:
        raise GitFailed(f"git can't run in {directory}: {error.strerror}.") from error
    if done.returncode and done.returncode not in ok:
        raise GitFailed(_said(done.stderr or done.stdout, arguments, done.returncode))
    return os.fsdecode(done.stdout).rstrip("\n")


async def succeeds(directory: Path | str, *arguments: str) -> bool:
    """Whether git ends with success."""
    try:
        await git(directory, *arguments)
    except GitFailed:
        return False
    return True


async def git_inside(
    make: MakeSandbox, directory: Path | str, *arguments: str, writes: bool = False
) -> str:
    """Run git in a worktree, in a sandbox; return what it prints, without the last newline.

    Raises `GitFailed`.
    """
    output = await _run_inside(make, directory, (_program(), *OPTIONS, *arguments), writes=writes)
    return os.fsdecode(output).rstrip("\n")


async def data_inside(make: MakeSandbox, directory: Path | str, *arguments: str) -> bytes:
    """Run git in a worktree, in a sandbox; return the bytes that it prints. Raises `GitFailed`."""
    command = (_program(), *OPTIONS, *arguments)
    quiet = ("/bin/sh", "-c", 'exec "$@" 2>/dev/null', "sh", *command)
    return await _run_inside(make, directory, quiet, writes=False)


async def _run_inside(
    make: MakeSandbox, directory: Path | str, command: Sequence[str], *, writes: bool
) -> bytes:
    output = bytearray()

    async def receive(piece: bytes) -> None:
        if len(output) + len(piece) > OUTPUT_BYTES_MAX:
            raise GitFailed(f"git prints more than {OUTPUT_BYTES_MAX} bytes in {directory}.")
        output.extend(piece)

    place = Path(directory)
    try:
        sandbox = await make(place, "git" if writes else "read")
        end = await run_command(
            command,
            directory=place,
            variables=variables(),
            receive=receive,
            timeout_s=GIT_S_MAX,
            sandbox=sandbox,
        )
    except CommandProblem as problem:
        raise GitFailed(str(problem)) from problem
    if end.status:
        raise GitFailed(_said(bytes(output), command, end.status))
    return bytes(output)


def _program() -> str:
    return find_program("git") or "git"


def _said(output: bytes, arguments: Sequence[str], status: int | None) -> str:
    words = iter(arguments[1:] if os.path.isabs(arguments[0]) else arguments)  # noqa: PTH117
    name = next((one for one in words if not one.startswith("-") and "=" not in one), "")
    text = output.decode(errors="replace").strip()[-PROBLEM_CHARS_MAX:]
    return f"`git {name}` failed: {text or f'status {status}'}"


async def branches_in_use(repository: Path | str) -> dict[str, str]:
    """Return the branches that a repository's own work trees have checked out, and where."""
    found: dict[str, str] = {}
    place = ""
    for line in (await git(repository, "worktree", "list", "--porcelain")).splitlines():
        word, _, value = line.partition(" ")
        if word == "worktree":
            place = value
        elif word == "branch":
            found[value.removeprefix("refs/heads/")] = place
    return found


async def clashing_branch(repository: Path, name: str) -> str:
    """Return a branch such as `a/b`, which keeps git from having `a` or `a/b/c`; or ""."""
    parts = name.split("/")
    for number in range(1, len(parts)):
        above = "/".join(parts[:number])
        if await succeeds(repository, "show-ref", "-q", "--verify", f"refs/heads/{above}"):
            return above
    short = "--format=%(refname:lstrip=2)"
    return await git(repository, "for-each-ref", "--count=1", short, f"refs/heads/{name}/")
