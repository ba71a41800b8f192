"""A repository and its worktrees, made by the code of the daemon without a daemon."""

import os
import subprocess
from pathlib import Path

from tiller_daemon.worktrees.records import Records
from tiller_daemon.worktrees.worktrees import Worktrees
from tiller_protocol.ids import Ulids


def git(place: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t")
    return subprocess.check_output(["git", *who, *arguments], cwd=place, text=True).strip()


class Ground:
    """A repository, and the worktrees that were made of it."""

    def __init__(self, root: Path) -> None:
        self.root, self.main = root, root / "main"
        self.trees = root / "main.worktrees"

    @classmethod
    def new(cls, root: Path) -> "Ground":
        made = cls(root)
        made.main.mkdir(parents=True)
        git(made.main, "init", "-q", "-b", "main")
        git(made.main, "config", "user.name", "t")
        git(made.main, "config", "user.email", "t@t")
        (made.main / "file").write_text("one\n")
        (made.main / ".gitignore").write_text(".env\n")
        git(made.main, "add", "-A")
        git(made.main, "commit", "-qm", "one")
        (made.main / ".env").write_text("KEY=1\n")
        return made

    def worktrees(self) -> Worktrees:
        """Return a daemon's worktrees, as after a start."""
        ulids = Ulids()
        numbers = iter(range(int.from_bytes(os.urandom(4)), 1 << 40))
        return Worktrees(
            Records(self.root / "state"),
            lambda _place, _use: None,
            lambda: {"PATH": os.environ["PATH"]},
            lambda: ulids.make(next(numbers), os.urandom(10)),
            lambda: 1.0,
        )

    def tree(self, name: str) -> Path:
        return self.trees / name
