"""Clones of the repositories that tasks name, one for each address, kept for later tasks.

Only the gateway writes here. Nothing is checked out: sessions work in worktrees beside a clone,
which are repositories of their own, so no command of a session can change what git runs here.
"""

import asyncio
import hashlib
import os
import re
from collections import defaultdict
from pathlib import Path

from tiller_client.errors import TillerError

BRANCH = "tiller-fleet"
"""What is checked out in a clone, for the daemon: a branch with one commit without files."""

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""What git calls a tree without files."""

AS_TILLER = ("-c", "user.name=tiller", "-c", "user.email=tiller@localhost")

PROTOCOLS = "https:http:ssh:git:file"
"""The transports that git may use. Others, such as `ext`, run a command that is in the address."""

FETCH_S = 3600.0
"""Longest time that git may take to fetch or push, in seconds."""

ANSWER_CHARS_MAX = 500


class RepositoryProblem(TillerError):
    """A repository can't be cloned, or has no such branch or commit."""


class Repositories:
    """The clones below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks = defaultdict[Path, asyncio.Lock](asyncio.Lock)

    async def prepare(self, address: str, ref: str) -> tuple[Path, str]:
        """Fetch; return the clone and the commit that `ref` names. Raises `RepositoryProblem`."""
        clone = self._directory / hashlib.sha256(address.encode()).hexdigest()[:16] / _name(address)
        async with self._locks[clone]:
            if not (clone / ".git" / "HEAD").exists():
                clone.mkdir(parents=True, exist_ok=True)
                await _git(None, "init", "--quiet", "--initial-branch", BRANCH, str(clone))
                empty = await _git(clone, *AS_TILLER, "commit-tree", EMPTY_TREE, "-m", "Empty")
                await _git(clone, "update-ref", f"refs/heads/{BRANCH}", empty)
            await _git(clone, "config", "remote.origin.url", address)
            refspec = "+refs/heads/*:refs/remotes/origin/*"
            await _git(clone, "fetch", "--quiet", "--prune", "--tags", "--force", "origin", refspec)
            commit = await self._commit(clone, ref)
            return clone, commit

    async def _commit(self, clone: Path, ref: str) -> str:
        if not ref:
            await _git(clone, "remote", "set-head", "origin", "--auto")
        names = [f"refs/remotes/origin/{ref}", f"refs/tags/{ref}", ref] if ref else ["origin/HEAD"]
        for name in names:
            try:
                revision = f"{name}^{{commit}}"
                return await _git(
                    clone, "rev-parse", "--verify", "--quiet", "--end-of-options", revision
                )
            except RepositoryProblem:
                continue
        raise RepositoryProblem(f"the repository has no branch, tag or commit {ref!r}")

    async def count(self, clone: Path, base: str, branch: str) -> int:
        """How many commits a branch has on top of a commit; 0 if there is no such branch."""
        try:
            return int(
                await _git(clone, "rev-list", "--count", f"{base}..refs/heads/{branch}", "--")
            )
        except RepositoryProblem:
            return 0

    async def push(self, clone: Path, branch: str, target: str) -> None:
        """Push a branch to the repository; raises `RepositoryProblem`."""
        refspec = f"refs/heads/{branch}:refs/heads/{target}"
        async with self._locks[clone]:
            await _git(clone, "push", "--quiet", "--no-verify", "origin", refspec)

    async def bundle(self, clone: Path, base: str, branch: str, file: Path) -> None:
        """Write a bundle of a branch without what is in `base`; raises `RepositoryProblem`."""
        await _git(clone, "bundle", "create", "--quiet", str(file), f"{base}..refs/heads/{branch}")


def _name(address: str) -> str:
    """A directory name that people recognise."""
    last = re.split(r"[/:]", address.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).strip(".-")[:60] or "repository"


async def _git(clone: Path | None, *words: str) -> str:
    """Run git without a terminal and return its output; raises `RepositoryProblem`."""
    where = ["-C", str(clone)] if clone else []
    process = await asyncio.create_subprocess_exec(
        *("git", *where, "-c", "core.hooksPath=/dev/null", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": PROTOCOLS,
            "GIT_SSH_COMMAND": os.environ.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
            "LC_ALL": "C",
        },
    )
    try:
        async with asyncio.timeout(FETCH_S):
            said, problem = await process.communicate()
    except TimeoutError:
        process.kill()
        raise RepositoryProblem(f"git {words[0]} took longer than {FETCH_S:g} s") from None
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode:
        text = problem.decode(errors="replace").strip()[-ANSWER_CHARS_MAX:]
        raise RepositoryProblem(f"git {words[0]} failed: {without_password(text)}")
    return said.decode(errors="replace").strip()


def without_password(text: str) -> str:
    """Remove user names and passwords from the addresses in a text."""
    return re.sub(r"(\w+://)[^\s/@]+@", r"\1", text)
