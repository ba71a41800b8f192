"""The daemon's own git repository for a workspace, whether or not that is a repository itself.

git runs here without using or changing the user's or the project's hooks, filters, configuration or
attributes, and without converting line ends. `snapshots` decides what is stored, and when.
"""

import hashlib
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import trio

from tiller_daemon.isolation import find_program
from tiller_daemon.private import UMASK, make_directory, open_private
from tiller_daemon.workspace.documents import read_document
from tiller_daemon.workspace.repository import find_repository, git_directory

GIT_S_MAX: Final = 60.0
"""How long a git process may take; the first snapshot of 5,000 files takes 0.5 s."""

OUTPUT_BYTES_MAX: Final = 128 * 1024 * 1024
"""The largest output of a git process, such as the names of a million files, or the files of one
restore."""

ERROR_BYTES_MAX: Final = 4 * 1024

EXCLUDES_BYTES_MAX: Final = 64 * 1024
"""The largest `.git/info/exclude` that is used."""

KILL_WAIT_S: Final = 2.0
"""How long to wait for a git process that was killed."""

CHECKSUM_BYTES: Final = 20
"""The length of the SHA-1 at the end of an index."""

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
\tprotectNTFS = false
\tprotectHFS = false
[gc]
\tauto = 0
[diff]
\tignoreSubmodules = all
"""

# `info/attributes` overrides every other file, so nothing in the project can change these.
_ATTRIBUTES: Final = "* -text -ident -filter !eol !working-tree-encoding !diff !merge\n"

_FILES: Final = {
    "HEAD": "ref: refs/heads/none\n",
    "config": _CONFIG,
    "info/attributes": _ATTRIBUTES,
}


class GitProblem(Exception):
    """git failed; the message says why, in whole sentences."""


class GitFailed(GitProblem):
    """git ended with an error."""


class GitTooSlow(GitProblem):
    """git was stopped because it took too long."""


class ShadowRepository:
    """The git directory `store` for `workspace` (absolute, without links).

    For one task at a time, which calls `prepare` before anything else. `variables` are the
    environment variables that git needs, and the daemon's marker.
    """

    def __init__(self, store: Path, workspace: Path, variables: Mapping[str, str]) -> None:
        self.store: Final = store
        self.workspace: Final = workspace
        self._variables: Final = variables
        self.work_tree = workspace
        """The directory of the project: the workspace, or a directory above it."""
        self._ignored_roots: dict[Path, bool] = {}

    @property
    def project_excludes(self) -> Path:
        """The project's own file of patterns; `info/exclude` is a copy of it."""
        repository = find_repository(self.workspace)
        mark = git_directory(repository.root / ".git") if repository else self.workspace
        return mark / "info" / "exclude"

    @property
    def prefix(self) -> str:
        """The workspace's path in the project, with a trailing slash; '' if they are the same."""
        inside = self.workspace.relative_to(self.work_tree).as_posix()
        return "" if inside == "." else f"{inside}/"

    async def prepare(self) -> None:
        """Create or repair the git directory; raises `GitProblem`."""
        try:
            self._lay_out()
        except OSError as error:
            raise GitProblem(f"{self.store} can't be written: {error.strerror}.") from error
        repository = find_repository(self.workspace)
        self.work_tree = repository.root if repository else self.workspace
        if repository and repository.root != self.workspace:
            if repository.root not in self._ignored_roots:
                self._ignored_roots[repository.root] = await self._is_ignored()
            if self._ignored_roots[repository.root]:
                # git would store nothing in an ignored directory, so the workspace is treated as a
                # project itself.
                self.work_tree = self.workspace

    async def run(
        self,
        *arguments: str,
        stdin: bytes | BinaryIO = b"",
        on_files: bool = False,
        timeout_s: float = GIT_S_MAX,
    ) -> bytes:
        """Run git and return its output; raises `GitProblem`. Cancellation kills the process.

        With `on_files` git runs in the workspace, and paths are relative to the workspace.
        """
        directory = self.workspace if on_files else self.store
        # The subcommand, for messages.
        name = next(word for word in arguments if word[:1] != "-" and "=" not in word)
        if not (program := find_program("git", self._variables["PATH"])):
            raise GitProblem("Git could not be started: it was not found.")
        try:
            process = await trio.lowlevel.open_process(
                [program, *arguments],
                stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=directory,
                env=self._environment(),
                umask=UMASK,
            )
        except OSError as error:
            raise GitProblem(f"Git could not be started: {error.strerror}.") from error
        try:
            with trio.fail_after(timeout_s):
                output, errors = await _communicate(process, stdin)
                status = await process.wait()
        except trio.TooSlowError:
            raise GitTooSlow(f"`git {name}` took longer than {timeout_s:g} s.") from None
        finally:
            await _terminate(process)
        if status != 0:
            first = errors.decode(errors="replace").strip().partition("\n")[0]
            reason = first.rstrip(".") or f"exit status {status}"
            raise GitFailed(f"`git {name}` failed: {reason}.")
        return output

    def _environment(self) -> dict[str, str]:
        return {
            **self._variables,
            "GIT_DIR": str(self.store),
            "GIT_WORK_TREE": str(self.work_tree),
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
        path = self.project_excludes
        excludes = read_document(path, path.parent.parent, EXCLUDES_BYTES_MAX)
        _ensure_content(self.store / "info" / "exclude", excludes.text if excludes else "")
        # A git process that was killed may have left its lock. There is one daemon, and one task at
        # a time, so no other process holds it.
        (self.store / "index.lock").unlink(missing_ok=True)
        if not _is_whole(self.store / "index"):
            # git always refuses to work with a damaged index.
            self.drop_index()

    def drop_index(self) -> None:
        """Forget all files, so that git reads and stores them all again."""
        (self.store / "index").unlink(missing_ok=True)

    async def _is_ignored(self) -> bool:
        try:
            await self.run("check-ignore", "-q", "--no-index", "--", ".", on_files=True)
        except GitProblem:
            return False
        return True


def _is_whole(index: Path) -> bool:
    """Whether an index ends with its checksum or is missing; a power cut may damage an index."""
    try:
        data = index.read_bytes()
    except FileNotFoundError:
        return True
    checksum = hashlib.sha1(data[:-CHECKSUM_BYTES], usedforsecurity=False).digest()
    return data[-CHECKSUM_BYTES:] == checksum


def _ensure_content(path: Path, text: str) -> None:
    """Write the file unless it already has this content. A damaged file is written again."""
    content = text.encode(errors="surrogateescape")
    with suppress(OSError):
        if path.read_bytes() == content:
            return
    with open(path, "wb", opener=open_private) as file:
        file.write(content)


async def _communicate(process: trio.Process, stdin: bytes | BinaryIO) -> tuple[bytes, bytes]:
    """Send a process its input unless that is a file; return its output and errors."""
    assert process.stdout
    assert process.stderr
    errors = bytearray()
    output = bytearray()

    async def give(stream: trio.abc.SendStream, data: bytes) -> None:
        # git may end before it has read everything.
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data)
        await stream.aclose()

    async def complain(stream: trio.abc.ReceiveStream) -> None:
        while piece := await stream.receive_some(_PIECE_BYTES):
            errors.extend(piece[: ERROR_BYTES_MAX - len(errors)])

    async with trio.open_nursery() as nursery:
        if process.stdin and isinstance(stdin, bytes):
            nursery.start_soon(give, process.stdin, stdin)
        nursery.start_soon(complain, process.stderr)
        while piece := await process.stdout.receive_some(_PIECE_BYTES):
            output += piece
            if len(output) > OUTPUT_BYTES_MAX:
                nursery.cancel_scope.cancel()
                break
    if len(output) > OUTPUT_BYTES_MAX:
        raise GitProblem(
            f"Git printed more than {OUTPUT_BYTES_MAX // 1024**2} MiB: there are too many files, "
            "or some are too large."
        )
    return bytes(output), bytes(errors)


async def _terminate(process: trio.Process) -> None:
    """Kill the process if it still runs, and close its pipes."""
    with trio.move_on_after(KILL_WAIT_S, shield=True):
        if process.returncode is None:
            process.kill()
            await process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + KILL_WAIT_S):
                await pipe.aclose()
