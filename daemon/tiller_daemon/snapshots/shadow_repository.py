"""A git directory of the daemon's own, beside a workspace that may have one or none.

git is run here so that nothing of the user or the project is used or changed: no hook, no filter,
no configuration, no attribute, no conversion of line ends. What is kept in it, and when, is in
`snapshots`.
"""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from tiller_daemon.private import UMASK, make_directory, open_private
from tiller_daemon.workspace.documents import read_document
from tiller_daemon.workspace.repository import find_repository, git_directory

GIT_S_MAX: Final = 60.0
"""How long one git process may take; 5,000 files for the first time take 0.5 s."""

OUTPUT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Most that a git process may say: the names of a million files, or the files of one restore."""

ERROR_BYTES_MAX: Final = 4 * 1024

EXCLUDES_BYTES_MAX: Final = 64 * 1024
"""Largest `.git/info/exclude` that is heeded."""

KILL_WAIT_S: Final = 2.0
"""The longest that is waited for a git process that was killed."""

_PIECE_BYTES: Final = 64 * 1024

_CONFIG: Final = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tfilemode = true
\tsymlinks = true
\tautocrlf = false
\tsafecrlf = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tprecomposeUnicode = false
[gc]
\tauto = 0
[diff]
\tignoreSubmodules = all
"""

# The first word on attributes is the last one too: nothing in the project's files overrides it.
_ATTRIBUTES: Final = "* -text -ident -filter !eol !working-tree-encoding !diff !merge\n"

_FILES: Final = {
    "HEAD": "ref: refs/heads/none\n",
    "config": _CONFIG,
    "info/attributes": _ATTRIBUTES,
}


class GitProblem(Exception):
    """git could not do what it was asked for; the message is a clause that says why."""


class ShadowRepository:
    """The git directory `store` for `workspace` (absolute, links followed).

    One task at a time; `prepare` comes first, each time. `variables` mark processes as the daemon's
    and find git.
    """

    def __init__(self, store: Path, workspace: Path, variables: Mapping[str, str]) -> None:
        self.store: Final = store
        self.workspace: Final = workspace
        self._variables: Final = variables
        self._work_tree = workspace
        self._ignored_roots: dict[Path, bool] = {}

    @property
    def prefix(self) -> str:
        """Where the workspace is in the project, with a slash at its end; '' for all of it."""
        inside = self.workspace.relative_to(self._work_tree).as_posix()
        return "" if inside == "." else f"{inside}/"

    async def prepare(self) -> None:
        """Make the git directory as it has to be, whatever became of it; raises `GitProblem`."""
        try:
            self._lay_out()
        except OSError as error:
            raise GitProblem(f"{self.store} can't be written: {error.strerror}") from error
        found = find_repository(self.workspace)
        self._work_tree = found.root if found else self.workspace
        if found and found.root != self.workspace:
            if found.root not in self._ignored_roots:
                self._ignored_roots[found.root] = await self._is_ignored()
            if self._ignored_roots[found.root]:
                # Nothing of it would be kept: it has nothing to do with the project around it.
                self._work_tree = self.workspace

    async def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        on_files: bool = False,
        timeout_s: float = GIT_S_MAX,
    ) -> bytes:
        """Run git and return what it says; raises `GitProblem`. Cancellation kills it.

        With `on_files` it works on the workspace, and paths are relative to that.
        """
        directory = self.workspace if on_files else self.store
        name = next(word for word in arguments if word[:1] != "-" and "=" not in word)
        try:
            process = await trio.lowlevel.open_process(
                ["git", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=directory,
                env=self._environment(),
                umask=UMASK,
            )
        except OSError as error:
            raise GitProblem(f"git could not be started: {error.strerror}") from error
        try:
            with trio.fail_after(timeout_s):
                output, errors = await _communicate(process, stdin)
                status = await process.wait()
        except trio.TooSlowError:
            raise GitProblem(f"git {name} took longer than {timeout_s:g} s") from None
        finally:
            await _terminate(process)
        if status != 0:
            first = errors.decode(errors="replace").strip().partition("\n")[0]
            raise GitProblem(f"git {name}: {first or f'exit status {status}'}")
        return output

    def _environment(self) -> dict[str, str]:
        return {
            **self._variables,
            "GIT_DIR": str(self.store),
            "GIT_WORK_TREE": str(self._work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }

    def _lay_out(self) -> None:
        if not (self.store / "objects").is_dir():
            for name in ("refs", "info", "objects"):
                make_directory(self.store / name)
        for name, text in _FILES.items():
            _ensure_content(self.store / name, text)
        found = find_repository(self.workspace)
        mark = git_directory(found.root / ".git") if found else self.workspace
        excludes = read_document(mark / "info" / "exclude", mark, EXCLUDES_BYTES_MAX)
        _ensure_content(self.store / "info" / "exclude", excludes.text if excludes else "")
        # A git process that was killed may have left it; there is only one daemon, and one task.
        (self.store / "index.lock").unlink(missing_ok=True)

    async def _is_ignored(self) -> bool:
        try:
            await self.run("check-ignore", "-q", "--no-index", "--", ".", on_files=True)
        except GitProblem:
            return False
        return True


def _ensure_content(path: Path, text: str) -> None:
    """Make sure that the file holds `text`."""
    with suppress(OSError):
        if path.read_text() == text:
            return
    with open(path, "w", opener=open_private) as file:
        file.write(text)


async def _communicate(process: trio.Process, stdin: bytes) -> tuple[bytes, bytes]:
    """Give a process its input and return its output and its complaints."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    errors = bytearray()
    output = bytearray()

    async def give(stream: trio.abc.SendStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(stdin)
        await stream.aclose()

    async def complain(stream: trio.abc.ReceiveStream) -> None:
        while piece := await stream.receive_some(_PIECE_BYTES):
            errors.extend(piece[: ERROR_BYTES_MAX - len(errors)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give, process.stdin)
        nursery.start_soon(complain, process.stderr)
        while piece := await process.stdout.receive_some(_PIECE_BYTES):
            output += piece
            if len(output) > OUTPUT_BYTES_MAX:
                nursery.cancel_scope.cancel()
                break
    if len(output) > OUTPUT_BYTES_MAX:
        raise GitProblem("there are too many files, or too large ones")
    return bytes(output), bytes(errors)


async def _terminate(process: trio.Process) -> None:
    """Leave no process behind, and no pipe open."""
    with trio.move_on_after(KILL_WAIT_S, shield=True):
        if process.returncode is None:
            process.kill()
            await process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + KILL_WAIT_S):
                await pipe.aclose()
