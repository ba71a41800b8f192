"""Changes N files again and again, killed before each system call in turn, and recovers each time.

The recovery is killed as well, before a call that moves on with each round. A program of its own,
as it forks. Prints how often the files were old and new afterwards; fails when they were neither.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tiller_daemon.workspace.changes import Change, change_all, recover_changes
from tiller_daemon.workspace.paths import locate

CALLS = ("open", "write", "fsync", "rename", "link", "unlink", "mkdir", "rmdir", "fchmod")
RECOVERY_CALLS_MAX = 60


def main(root: Path, files: int) -> None:
    outcomes: Counter[str] = Counter()
    work, journals = root / "work", root / "journals"
    number = 0
    while True:
        changes = prepare(work, files)
        old = tree(work)
        new = {**old} | {f"new/{i}": b"made" for i in range(files)}
        for change in changes:
            if change.after is None:
                del new[change.location.text]
            else:
                new[change.location.text] = change.after
        completed = dies(number, lambda changes=changes: change_all(changes, journals))
        dies(number % RECOVERY_CALLS_MAX, lambda: recover_changes(journals))
        recover_changes(journals)
        now = tree(work)
        assert now in (old, new), f"call {number}: {sorted(now)}"
        assert (now == new) or not (work / "new").exists(), f"call {number}: a directory is left"
        assert not list(journals.glob("*.journal")), f"call {number}: a journal is left"
        outcomes["new" if now == new else "old"] += 1
        if completed:
            break
        number += 1
    print(number, outcomes["old"], outcomes["new"])


def prepare(work: Path, files: int) -> list[Change]:
    """Update, delete and make so many files each, in a tree without anything else."""
    for path in sorted(work.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    work.mkdir(parents=True, exist_ok=True)
    changes: list[Change] = []
    for i in range(files):
        for name, before, after in (
            (f"update{i}", b"old", b"new"),
            (f"delete{i}", b"old", None),
            (f"new/{i}", None, b"made"),
        ):
            if before is not None:
                (work / name).write_bytes(before)
            changes.append(Change(locate(work, name), before, after))
    return changes


def tree(work: Path) -> dict[str, bytes]:
    files = (path for path in work.rglob("*") if path.is_file())
    return {str(path.relative_to(work)): path.read_bytes() for path in files}


def dies(number: int, do: Callable[[], object]) -> bool:
    """Do it in a process that is killed before system call `number`; whether it got through."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    left = number

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    do()
    os._exit(0)


main(Path(sys.argv[1]), int(sys.argv[2]))
