"""A home, a workspace and foreign files and sockets that a command should not reach.

Tests judge from outside what a command did, by files, connections and living processes.
"""

import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final, Literal, get_args

import pytest

from support.sandboxes import OrdinaryBubblewrap, eyes_of_ordinary_user
from tiller_daemon.config import SandboxPolicy
from tiller_daemon.processes.command import run_command
from tiller_daemon.sandbox import launcher as sandbox_launcher
from tiller_daemon.sandbox.base import CommandSandbox, GitUse, SandboxSearchResult
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.detect import bubblewrap_program, try_out, try_out_landlock
from tiller_daemon.sandbox.known_paths import COMPILER_CACHES
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.sandbox.scan import ScanResult
from tiller_protocol.settings import SandboxMode

NOBODY: Final = 65534
PYTHON: Final = shutil.which("python3", path="/usr/bin:/bin") or os.path.realpath(sys.executable)
SECRET: Final = "the-secret-of-the-user"
NOTES: Final = "what-the-user-noted"
WHO: Final = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)

Mechanism = Literal["bubblewrap", "landlock"]
MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)

TIMEOUT_S: Final = 60


class Jail:
    """The jail's files and listeners; `said` is what commands in it have printed."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root, self.home, self.out = root, root / "home", root / "out"
        # The visible directories lie in hidden ones, as they do with the daemon.
        self.runtime, self.spill = root / "runtime", root / "runtime" / "spill"
        self.workspace, self.bare = self.home / "w", self.home / "w2"
        for folder in (".ssh", ".aws", "other", "w2", ".config/git"):
            (self.home / folder).mkdir(parents=True)
        for folder in (self.out, self.runtime, self.spill, self.spill / "tmp"):
            folder.mkdir()
        for name in COMPILER_CACHES:
            (self.spill / "caches" / Path(name).name).mkdir(parents=True, exist_ok=True)
        for path in (".ssh/id", ".netrc", ".aws/credentials"):
            (self.home / path).write_text(SECRET)
        (self.home / ".bash_history").write_text(NOTES)
        (self.home / "other" / "notes").write_text(NOTES)
        (self.runtime / "token").write_text(SECRET)
        (self.out / "there").write_text("")
        self._make_workspace()
        self.name = root.name
        self.listeners: dict[str, socket.socket] = {}
        for name, address in (
            ("ops", str(self.runtime / "ops.sock")),
            ("agent", str(self.out / "agent.sock")),
            ("home_socket", str(self.home / "other" / "agent.sock")),
            ("abstract", f"\0{self.name}"),
        ):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address)
            self.listeners[name] = listener
        self.listeners["tcp"] = stack.enter_context(socket.socket())
        self.listeners["tcp"].bind(("127.0.0.1", 0))
        for listener in self.listeners.values():
            listener.listen()
            listener.settimeout(0)
        self.said = ""
        self._is_of_ordinary_user = False

    def _make_workspace(self) -> None:
        """Make a repository with protected files, links to the outside, and a nested repository."""
        w = self.workspace
        subprocess.run(["git", "init", "-q", "-b", "main", w], check=True)
        shutil.rmtree(w / ".git" / "hooks")
        (w / ".git" / "hooks").mkdir()
        (w / "file").write_text("a line\n")
        (w / ".gitignore").write_text(".env\nnested/\n")
        self.git("add", "file", ".gitignore")
        self.git("commit", "-qm", "one")
        (w / ".env").write_text("KEY=what-rules-protect\n")
        (w / "link").symlink_to(self.home / "other")
        subprocess.run(["git", "init", "-q", w / "nested"], check=True)

    def git(self, *arguments: str) -> str:
        """Run git in the workspace as the user would; return its output."""
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", *arguments],
            cwd=self.workspace,
            check=True,
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.root), **AUTHOR},
        )
        return done.stdout

    async def receive(self, piece: bytes) -> None:
        """Keep what commands print."""
        self.said += piece.decode(errors="replace")

    def as_user(self, who: str) -> list[str]:
        """Give all files to that user; return the command prefix that switches to them."""
        if who == "root" or os.geteuid() != 0:
            return []
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        self._is_of_ordinary_user = True
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

    async def run(
        self,
        sandbox: CommandSandbox | None,
        script: str,
        *,
        prefix: Sequence[str] = (),
        place: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> int:
        """Run a bash script; return its exit status."""
        given = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "W": str(self.workspace),
            "OUT": str(self.out), "RUNTIME": str(self.runtime), "NAME": self.name,
            "PORT": str(self.listeners["tcp"].getsockname()[1]), "PYTHON": PYTHON,
            "SECRET": SECRET, "GIT_TERMINAL_PROMPT": "0", **AUTHOR, **(variables or {}),
        }  # fmt: skip
        ended = await run_command(
            [*(() if sandbox else prefix), "bash", "-c", script],
            directory=place or self.workspace,
            variables=given,
            receive=self.receive,
            timeout_s=TIMEOUT_S,
            sandbox=sandbox,
        )
        return ended.status

    def sandbox(
        self,
        found: SandboxSearchResult,
        level: SandboxLevel,
        mode: SandboxMode = "workspace_write",
        place: Path | None = None,
        *,
        network: bool = False,
        git_use: GitUse = "",
    ) -> CommandSandbox | None:
        """Return the level for a command."""
        # As most distributions set it.
        path = f"{self.home}/.local/bin:{self.home}/bin:/usr/local/bin:/usr/bin:/bin"
        sandboxes = Sandboxes(lambda: found, self.home, {"PATH": path}, private=(self.runtime,))
        policy = SandboxPolicy(mode, network=network)
        masked = (self.workspace / ".env",)
        with self.eyes():
            return sandboxes.make(
                level,
                policy,
                place or self.workspace,
                self.spill,
                masked=masked if level < SandboxLevel.SESSION else (),
                found=ScanResult(repositories=(self.workspace / "nested/.git",)),
                git_use=git_use,
            )

    def eyes(self) -> AbstractContextManager[None]:
        """Access files as the user of the files does."""
        return eyes_of_ordinary_user() if self._is_of_ordinary_user else nullcontext()

    def connected(self) -> set[str]:
        """Return the listeners that somebody has connected to since the last call."""
        return {name for name, one in self.listeners.items() if _was_connected(one)}

    def state(self) -> dict[str, str]:
        """Return kind, mode and content of every path outside `spill` and `/tmp`."""
        found: dict[str, str] = {}
        for folder, names, files in os.walk(self.root):
            if Path(folder) == self.runtime:
                names[:] = [name for name in names if name != "spill"]
            for name in (*names, *files):
                path = Path(folder, name)
                found[str(path.relative_to(self.root))] = _state(path)
        return found


AUTHOR: Final = {
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@t", "GIT_CONFIG_GLOBAL": "/dev/null",
}  # fmt: skip


def _state(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link {os.readlink(path)}"  # noqa: PTH115
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
    return f"{oct(mode)} {content}"


@contextmanager
def jail_of() -> Generator[Jail]:
    """Yield a jail that is removed at the end."""
    # An ordinary user can't reach the tests' directory, and sandboxes have another /tmp, so
    # neither can stand for a home.
    base = Path("/srv") if os.geteuid() == 0 else Path.home()
    root = Path(tempfile.mkdtemp(prefix="tiller-jail-", dir=base))
    root.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        yield Jail(root, stack)


def sandbox_for(mechanism: Mechanism, prefix: Sequence[str], place: Path) -> SandboxSearchResult:
    """Return the sandbox for a user; skip the test where there is none."""
    match mechanism:
        case "bubblewrap":
            found = bubblewrap_for(prefix, place)
        case "landlock":
            found = landlock_for(prefix, place)
    if found.sandbox is None:
        pytest.skip(found.problem)
    return found


def landlock_for(prefix: Sequence[str], place: Path) -> SandboxSearchResult:
    """Return Landlock with a Python and a launcher that this user may read."""
    launcher = place / "launcher.py"
    shutil.copy(sandbox_launcher.__file__, launcher)
    return try_out_landlock((*prefix, PYTHON, "-I", "-S", str(launcher)))


def bubblewrap_for(prefix: Sequence[str], place: Path) -> SandboxSearchResult:
    """Return Bubblewrap run as that user."""
    program = bubblewrap_program()
    if program is None:
        pytest.skip("no bwrap: apt install bubblewrap")
    if prefix:
        return try_out(OrdinaryBubblewrap(place / "bwrap", program, prefix))
    return try_out(Bubblewrap(program))


def _was_connected(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
