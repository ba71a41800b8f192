"""Bubblewrap: a command sees the file system read-only, with what it may write bound over it.

It gets namespaces of its own for processes, network and shared memory. `--die-with-parent` is not
used: what the shell leaves behind would be killed before it could finish (the end of a pipe, a
trap), and the guard and the next start find the namespace by its marks and end it as a whole.
"""

import os
import platform
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tiller_daemon.workspace.sandbox import DENIED, ROOT_KEEPS, Confinement, Enclosed, NotConfined
from tiller_daemon.workspace.sandbox_calls import filter_in_namespaces
from tiller_daemon.workspace.sandbox_paths import between, within
from tiller_daemon.workspace.sandbox_put_back import NotKept, PutBack

FILTER: Final = filter_in_namespaces(platform.machine())
"""Holds what there is no namespace for."""


class Bubblewrap:
    """The mechanism. Where something may not be made, a stand-in is put for as long as it takes.

    `root` says whether commands run as root; by default as the daemon does.
    """

    def __init__(self, program: str, *, root: bool | None = None) -> None:
        self.name: Final = "bubblewrap"
        self.helpers: Final = 2
        self.limits: Final = ""
        self.denials: Final = DENIED
        self._program: Final = program
        self._root: Final = os.geteuid() == 0 if root is None else root
        self._stand_ins: Final = Counter[Path]()
        self._put_back: Final = PutBack()

    @contextmanager
    def around(
        self, arguments: Sequence[str], confinement: Confinement, told: Callable[[str], None]
    ) -> Generator[Enclosed]:
        """What to run instead of `arguments`; to be left when the command has ended."""
        stand_ins = [path for path in _stand_ins(confinement) if self._is_missing(path)]
        self._stand_ins.update(stand_ins)
        try:
            with self._put_back.around(_watched(confinement), told), _readable(FILTER) as given:
                chosen = [*options(confinement, root=self._root)]
                chosen += [word for one in given for word in ("--seccomp", str(one))]
                yield Enclosed((self._program, *chosen, "--", *arguments), given)
        except NotKept as problem:
            raise NotConfined(f"The sandbox can't hold this command. {problem}") from problem
        finally:
            for path in stand_ins:
                self._stand_ins[path] -= 1
                if not self._stand_ins[path]:
                    del self._stand_ins[path]
                    _take_away(path)

    def _is_missing(self, path: Path) -> bool:
        """Whether there is nothing, or a stand-in that another command needs too."""
        return path in self._stand_ins or not os.path.lexists(path)


@contextmanager
def _readable(data: bytes) -> Generator[tuple[int, ...]]:
    """A descriptor to read `data` from, once: it fits into a pipe. None for no data."""
    if not data:
        yield ()
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, data)
    finally:
        os.close(writing)
    try:
        yield (reading,)
    finally:
        os.close(reading)


def options(confinement: Confinement, *, root: bool) -> list[str]:
    """The options for `bwrap`, in the order that it does things."""
    mounts, at_end = _mounts(confinement)
    found = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for path in sorted(mounts, key=lambda path: len(path.parts)):
        found += [*mounts[path], str(path)]
    for path in at_end:
        found += ["--remount-ro", str(path)]
    found += ["--unshare-pid", "--unshare-ipc"]
    if not confinement.network:
        found.append("--unshare-net")
    if root:
        found += ["--cap-drop", "ALL"]
        found += [word for capability in ROOT_KEEPS for word in ("--cap-add", capability)]
    return [*found, "--chdir", str(confinement.workspace)]


def _mounts(confinement: Confinement) -> tuple[dict[Path, list[str]], list[Path]]:
    """How each path is mounted, without its last word, and what is made read-only at the end."""
    writable = confinement.writable
    mounts = {path: ["--bind", str(path)] for path in writable}
    # Where the workspace lies in what is hidden, it is shown.
    mounts.setdefault(confinement.workspace, ["--ro-bind", str(confinement.workspace)])
    at_end: list[Path] = []
    kept = [path for path in (*confinement.folders, *confinement.files) if within(path, writable)]
    for path in kept:
        if path.is_symlink():
            continue
        if os.path.lexists(path):
            mounts[path] = ["--ro-bind", str(path)]
        elif path in confinement.files:
            if path.parent.is_dir():
                mounts[path] = ["--ro-bind", "/dev/null"]
        else:
            # Also where `.git` is missing: an empty one is no repository, and can't be made one.
            missing = path if path.parent.is_dir() else path.parent
            mounts[missing] = ["--tmpfs"]
            at_end.append(missing)
    for path in confinement.hidden:
        if path in confinement.shown or path == confinement.workspace:
            continue
        if path.is_dir():
            mounts[path] = ["--tmpfs"]
            at_end.append(path)
        else:
            mounts[path] = ["--ro-bind", "/dev/null"]
    shown = (path for path in confinement.shown if path not in writable)
    mounts |= {path: ["--ro-bind", str(path)] for path in shown}
    return _pinned(mounts, writable), at_end


def _pinned(mounts: dict[Path, list[str]], writable: Sequence[Path]) -> dict[Path, list[str]]:
    """With the directories on the way mounted on themselves.

    What is mounted can't be renamed: otherwise `.git` could be moved away with all that is kept
    in it, and another one be made.
    """
    pins: dict[Path, list[str]] = {}
    for path in mounts:
        if root := within(path, writable):
            pins |= {one: ["--bind", str(one)] for one in between(root, path)}
    return pins | mounts


def _stand_ins(confinement: Confinement) -> list[Path]:
    """What would have to be mounted although it is not there."""
    if not confinement.writable:
        return []
    folders = [path if path.parent.is_dir() else path.parent for path in confinement.folders]
    return [*folders, *(path for path in confinement.files if path.parent.is_dir())]


def _watched(confinement: Confinement) -> dict[Path, Path]:
    """Links and what may never come, which no mount can protect, and the directory of each."""
    links = [path for path in (*confinement.folders, *confinement.files) if path.is_symlink()]
    watched = (*links, *confinement.never_made)
    return {path: root for path in watched if (root := within(path, confinement.writable))}


def _take_away(path: Path) -> None:
    """Remove a stand-in; what somebody outside has put there meanwhile stays."""
    with suppress(OSError):
        if path.is_symlink():
            return
        if path.is_dir():
            path.rmdir()
        elif path.stat().st_size == 0:
            path.unlink()
