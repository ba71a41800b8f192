#!/usr/bin/env python3
"""Measures `write`, `edit` and `apply_patch`, from the call to its result.

    .venv/bin/python scripts/bench/files.py [--runs 200] [--directory DIR]...

The files have 200 lines and lie five directories deep. CPU time is that of the process, including
its disk calls; wall times consist mostly of `fsync`. By default it measures in memory and in the
directory for temporary files.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio
from msgspec import structs
from table import Row, print_rows

from tiller_daemon.files.paths import Location
from tiller_daemon.policy.readable import Readable
from tiller_daemon.tools.base import FileAccess, FileVersions, Tool, ToolEnvironment
from tiller_daemon.tools.editing.apply_patch import APPLY_PATCH
from tiller_daemon.tools.editing.edit import EDIT
from tiller_daemon.tools.editing.write import WRITE
from tiller_daemon.tools.read import READ

FILES = 10
LINES = "".join(f"line {number} of an ordinary file\n" for number in range(200))
WORDS = ("one", "two")


class NoEditors:
    """Implements `tools.editors.Editors`: no file is open."""

    async def unsaved(self, location: Location) -> bytes | None:  # noqa: ARG002
        """Return None, as no editor has unsaved text."""
        return None

    async def written(self, location: Location) -> None:
        """Do nothing, as no editor is open."""


def main() -> None:
    """Measure and print a table for each directory."""
    parser = argparse.ArgumentParser(description="Measure changing files.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--directory", type=Path, action="append")
    options = parser.parse_args()
    for directory in options.directory or (Path("/dev/shm"), Path(tempfile.gettempdir())):
        with tempfile.TemporaryDirectory(dir=directory) as place:
            rows = trio.run(partial(measure, Path(place).resolve(), options.runs))
        print(f"{directory}: load {os.getloadavg()[0]:.1f}, {options.runs} runs")
        print_rows(rows)


async def measure(place: Path, runs: int) -> list[Row]:
    """Measure each way to change files many times."""
    workspace = place / "some/deep/er/place/src"
    workspace.mkdir(parents=True)
    environment = make_environment(workspace, place / "journals")
    for number in range(FILES):
        (workspace / f"f{number}").write_text(f"{LINES}{WORDS[0]}\n")
        await call(environment, READ, path=f"f{number}")
    ways: dict[str, tuple[Tool, Callable[[int], dict[str, str]]]] = {
        "write (new)": (WRITE, lambda run: {"path": f"new{run}", "content": LINES}),
        "write (over)": (WRITE, lambda run: {"path": "new0", "content": f"{LINES}{run}"}),
        "edit": (EDIT, lambda run: {"path": "f0", "old": word(run), "new": word(run + 1)}),
        "apply_patch, 1 file": (APPLY_PATCH, lambda run: {"patch": patch(1, run)}),
        f"apply_patch, {FILES} files": (APPLY_PATCH, lambda run: {"patch": patch(FILES, run)}),
    }
    return [await row(environment, name, runs, *way) for name, way in ways.items()]


async def row(
    environment: ToolEnvironment,
    name: str,
    runs: int,
    tool: Tool,
    arguments: Callable[[int], dict[str, str]],
) -> Row:
    """Make `runs` calls and return their times."""
    walls: list[float] = []
    before = time.process_time()
    for run in range(runs):
        began = time.monotonic()
        await call(environment, tool, **arguments(run))
        walls.append((time.monotonic() - began) * 1000)
    return Row(name, "ms", tuple(walls), (time.process_time() - before) / runs * 1000)


async def call(environment: ToolEnvironment, tool: Tool, **given: str) -> None:
    """Call a tool as the runtime does."""
    assert isinstance(tool.arguments, type)
    arguments = tool.arguments(**given)
    requirements = tool.requirements(arguments, environment.workspace)
    await tool.run(arguments, structs.replace(environment, requirements=requirements))


def word(run: int) -> str:
    """Return the last line of a file after so many changes."""
    return WORDS[run % len(WORDS)]


def patch(files: int, run: int) -> str:
    """Return a patch that changes the last line of so many files."""
    update = f"@@\n-{word(run)}\n+{word(run + 1)}\n"
    parts = (f"*** Update File: f{number}\n{update}" for number in range(files))
    return f"*** Begin Patch\n{''.join(parts)}*** End Patch\n"


def make_environment(workspace: Path, journals: Path) -> ToolEnvironment:
    """Return an environment with the fields that these tools need."""
    nothing: Any = None
    return ToolEnvironment(
        workspace=workspace,
        session_id="s",
        call_id="s/1",
        files=FileAccess(FileVersions(), Readable(()), nothing, workspace, journals, NoEditors()),
        commands=nothing,
        user=nothing,
        delegate=nothing,
    )


if __name__ == "__main__":
    main()
