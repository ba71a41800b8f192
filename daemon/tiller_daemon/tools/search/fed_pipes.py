"""Keeps ripgrep from waiting for ever for a named pipe in place of an ignore file.

ripgrep opens `.gitignore` and the like without looking, and a pipe that nobody writes to never
opens. There is no option against this, so pipes are opened for it, and closed again at once.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import trio

STALL_S: Final = 1.0
"""Most searches end sooner. One that has not may be waiting for a pipe."""

AGAIN_S: Final = 0.05
"""How soon a pipe is opened again, as ripgrep may come to it later, or more than once."""

DIRECTORIES_MAX: Final = 50_000
"""In how many directories to look for pipes; this takes some seconds."""

NAMES: Final = frozenset((".gitignore", ".ignore", ".rgignore"))
"""The files that ripgrep opens in every directory, and in those above."""

EXCLUDES: Final = ".git/info/exclude"

_LOOK: Final = getattr(os, "O_PATH", os.O_NONBLOCK) | os.O_CLOEXEC

Result = TypeVar("Result")


async def with_fed_pipes(directory: Path, run: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of `run`, which awaits a search in `directory`."""
    failure: Exception | None = None
    results: list[Result] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_feed, directory)
        try:
            results.append(await run())
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure:
        raise failure
    return results[0]


async def _feed(directory: Path) -> None:
    await trio.sleep(STALL_S)
    pipes = await trio.to_thread.run_sync(_find_pipes, directory, abandon_on_cancel=True)
    while pipes:
        for pipe in pipes:
            # Fails unless ripgrep waits for the pipe.
            with suppress(OSError):
                _open_pipe(pipe)
        await trio.sleep(AGAIN_S)


def _open_pipe(path: str) -> None:
    """Open a pipe and close it again; a command may have put something else in its place.

    Elsewhere than on Linux this fails, and only the time limit ends the search.
    """
    found = os.open(path, _LOOK)
    try:
        if stat.S_ISFIFO(os.fstat(found).st_mode):
            os.close(os.open(f"/proc/self/fd/{found}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    finally:
        os.close(found)


def _find_pipes(directory: Path) -> list[str]:
    return [path for path in _ignore_files(Path(os.path.realpath(directory))) if _is_pipe(path)]


def _ignore_files(directory: Path) -> Iterator[str]:
    for above in directory.parents:
        yield from (str(above / name) for name in (*NAMES, EXCLUDES))
    for number, (place, directories, files) in enumerate(os.walk(directory)):
        if number == DIRECTORIES_MAX:
            return
        yield from (f"{place}/{name}" for name in NAMES.intersection(files))
        if ".git" in directories:
            directories.remove(".git")
            yield f"{place}/{EXCLUDES}"


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - also where a link leads
    except OSError:
        return False
