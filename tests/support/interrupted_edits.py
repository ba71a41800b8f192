"""Stops tools that change files at one of their system calls, by a kill or a full disk.

For each point, the tool runs in a forked process. The daemon's own code, which is killed as well,
recovers the files, which are then judged. Used by the tests and by `scripts/soak/edits.py`.
"""

import errno
import gc
import os
import signal
import stat
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, assert_never

from support.tool_calls import call
from tiller_daemon.files.changes import recover_changes
from tiller_daemon.files.whole_files import fingerprint
from tiller_daemon.tools.base import FileVersions, Tool, ToolFailure
from tiller_daemon.tools.editing.apply_patch import APPLY_PATCH
from tiller_daemon.tools.editing.edit import EDIT
from tiller_daemon.tools.editing.write import WRITE

CALLS: Final = (
    "open", "write", "fchown", "fchmod", "chmod", "fsync", "mkdir", "link", "symlink", "rename",
    "unlink", "rmdir",
)  # fmt: skip
"""The system calls with which the tools change files, and every `open`, even to read."""

TAKING_ROOM: Final = ("open", "write", "fsync", "mkdir", "link", "symlink")
"""The calls that fail while a disk is full; `open` only when it makes a file."""

Fault = Literal["kill", "fails once", "full from then on", "half a write"]
FAULTS: Final[tuple[Fault, ...]] = ("kill", "fails once", "full from then on", "half a write")

Tree = dict[str, tuple[bytes, int]]
"""Content and mode of each file in a directory."""

RECOVERY_CALLS_MAX: Final = 60
"""A recovery is killed before one of its calls, by turns from the first to this number."""

DONE, REFUSED, UNSAID, UNREACHED = range(4)
"""How a child ends: the tool did its work, said that nothing has changed, failed without saying
so, or met no fault."""


class Case(NamedTuple):
    """A call of a tool, the files it finds, and those it leaves."""

    name: str
    tool: Tool
    arguments: dict[str, str]
    before: dict[str, bytes]
    after: dict[str, bytes]


class Left(NamedTuple):
    """The result of a fault after recovery: which tree is left, and what is wrong with it."""

    tree: Literal["old", "new", "neither"]
    complaints: tuple[str, ...]


def cases(*sizes: int) -> list[Case]:
    """Return patches with these numbers of files, and calls to the tools that change one file."""
    before = {"f": b"one\r\ntwo", "g": b"x\n"}
    return [
        *(patch_of(size) for size in sizes),
        Case(
            "edit",
            EDIT,
            {"path": "f", "old": "one", "new": "1"},
            before,
            {**before, "f": b"1\r\ntwo"},
        ),
        Case("write (new)", WRITE, {"path": "d/e/f", "content": "x"}, before,
             {**before, "d/e/f": b"x"}),
        Case("write (over)", WRITE, {"path": "f", "content": "x"}, before, {**before, "f": b"x"}),
    ]  # fmt: skip


def patch_of(size: int) -> Case:
    """Return a patch of `size` files: updates, additions, moves and deletions by turns."""
    before: dict[str, bytes] = {"other": b"other"}
    after: dict[str, bytes] = {"other": b"other"}
    parts: list[str] = []
    for number in range(size):
        name = f"f{number}"
        old, new = f"old {number}\nkept\n", f"new {number}\nkept\n"
        update = f"@@\n-old {number}\n+new {number}\n"
        match number % 4:
            case 0:
                before[name], after[name] = old.encode(), new.encode()
                parts.append(f"*** Update File: {name}\n{update}")
            case 1:
                after[f"new{number}/deep/{name}"] = b"made\n"
                parts.append(f"*** Add File: new{number}/deep/{name}\n+made\n")
            case 2:
                before[name], after[f"moved/{name}"] = old.encode(), new.encode()
                parts.append(f"*** Update File: {name}\n*** Move to: moved/{name}\n{update}")
            case _:
                before[name] = old.encode()
                parts.append(f"*** Delete File: {name}\n")
    text = f"*** Begin Patch\n{''.join(parts)}*** End Patch\n"
    return Case(f"patch of {size}", APPLY_PATCH, {"patch": text}, before, after)


def faults_of(case: Case, fault: Fault, root: Path, step: int = 1) -> Iterator[tuple[int, Left]]:
    """Stop the call at each point (or each `step`-th), and yield what each fault left."""
    for number in count(0, step):
        left = meet(case, fault, number, root)
        if left is None:
            return
        yield number, left


def meet(case: Case, fault: Fault, number: int, root: Path) -> Left | None:
    """Stop the call at one point; return None when the call ends earlier."""
    work, journals = root / "work", root / "journals"
    _prepare(case, work)
    old = _tree(work)
    new = {name: (content, _mode_of(name, old)) for name, content in case.after.items()}
    ended = in_child(lambda: _run(case, work), fault, number)
    if ended == UNREACHED:
        return None
    complaints: list[str] = []
    now = _tree(work)
    if torn := [name for name in now if now[name] not in (old.get(name), new.get(name))]:
        complaints += [f"torn: {name}" for name in torn if not _is_beside(name)]
    if ended in (DONE, REFUSED):
        said = old if ended == REFUSED else new
        if {name: one for name, one in now.items() if not _is_beside(name)} != said:
            complaints.append("half applied before recovery")
    elif fault != "kill":
        complaints.append(f"the tool ended with {ended}")
    in_child(lambda: _recover(journals), "kill", number % RECOVERY_CALLS_MAX)
    recover_changes(journals)
    return _judge(old, new, work, journals, complaints)


def in_child(do: Callable[[], int], fault: Fault, number: int) -> int:
    """Run `do` in a fork with a fault at call `number`; return its status, negative if killed."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # Collecting nng sockets that earlier tests have left would make nng abort in the fork.
    gc.disable()
    status = 70
    try:
        met = _lay(fault, number)
        status = do()
        if not met():
            status = UNREACHED
    finally:
        os._exit(status)


def _judge(old: Tree, new: Tree, work: Path, journals: Path, complaints: list[str]) -> Left:
    now = _tree(work)
    complaints += [f"left behind: {name}" for name in now if _is_beside(name)]
    if journals.exists():
        complaints += [f"journal left: {name}" for name in journals.iterdir()]
    kinds: dict[Literal["old", "new"], Tree] = {"old": old, "new": new}
    for kind, tree in kinds.items():
        if now == tree:
            wanted = {str(above) for name in tree for above in Path(name).parents} - {"."}
            is_directory = (path for path in work.rglob("*") if path.is_dir())
            found = {str(path.relative_to(work)) for path in is_directory}
            complaints += [f"directory left: {name}" for name in sorted(found - wanted)]
            return Left(kind, tuple(complaints))
    return Left("neither", (*complaints, f"half applied: {sorted(now)}"))


def _lay(fault: Fault, number: int) -> Callable[[], bool]:
    """Plant a fault in this process's calls; return a function that says whether it was met."""
    left, met = number, 0

    def may_fail(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_fail(*given: Any, **named: Any) -> Any:
            nonlocal left, met
            if _concerns(fault, name, given):
                left -= 1
                if left < 0 and not (met and fault == "fails once"):
                    met += 1
                    if fault == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    if fault == "half a write" and met == 1:
                        return real(given[0], bytes(given[1])[: len(given[1]) // 2])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*given, **named)

        return call_or_fail

    for name in CALLS:
        setattr(os, name, may_fail(name, getattr(os, name)))
    return lambda: met > 0


def _concerns(fault: Fault, name: str, given: tuple[Any, ...]) -> bool:
    """Whether a fault may occur at such a call."""
    changes = name != "open" or bool(given[1] & os.O_CREAT)
    match fault:
        case "kill":
            return True
        case "fails once":
            return changes
        case "full from then on":
            return changes and name in TAKING_ROOM
        case "half a write":
            return name == "write"
        case _:
            assert_never(fault)


def _run(case: Case, work: Path) -> int:
    seen = {work / name: fingerprint(content) for name, content in case.before.items()}
    try:
        call(case.tool, case.arguments, work, FileVersions(seen))
    except ToolFailure as failure:
        return REFUSED if "o file was changed" in str(failure) else UNSAID
    return DONE


def _recover(journals: Path) -> int:
    recover_changes(journals)
    return DONE


def _prepare(case: Case, work: Path) -> None:
    for path in sorted(work.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    work.mkdir(parents=True, exist_ok=True)
    for number, (name, content) in enumerate(case.before.items()):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
        (work / name).chmod((0o644, 0o755, 0o600)[number % 3])


def _tree(work: Path) -> Tree:
    files = (path for path in work.rglob("*") if path.is_file())
    return {
        str(path.relative_to(work)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in files
    }


def _mode_of(name: str, old: Tree) -> int:
    """Return the mode that a file must have after a call: that of the old file."""
    was = old.get(name) or old.get(name.removeprefix("moved/"))
    return was[1] if was else 0o644


def _is_beside(name: str) -> bool:
    return Path(name).name.startswith(".tiller-")
