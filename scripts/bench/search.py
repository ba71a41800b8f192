#!/usr/bin/env python3
"""Measures `grep` and `glob` in a tree of many files, in turns with ripgrep alone.

    .venv/bin/python scripts/bench/search.py [--files 50000] [--runs 20]

The tree is made in a temporary directory: folders of 100 small files each. Every tenth file
contains the common word. ripgrep alone gets the same arguments, and its output is discarded.
"""

import argparse
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio
from table import Row, print_rows

from tiller_daemon.policy.readable import Readable
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.tools.base import CommandAccess, FileAccess, FileVersions, Tool, ToolEnvironment
from tiller_daemon.tools.search.glob import GLOB
from tiller_daemon.tools.search.grep import GREP
from tiller_daemon.tools.search.ripgrep import ALWAYS, find_ripgrep

FILES_PER_FOLDER = 100
LINES = "".join(f"line {number} of an ordinary file\n" for number in range(40))

SEARCHES: dict[str, tuple[Tool, dict[str, object], tuple[str, ...]]] = {
    "grep of a rare word": (GREP, {"pattern": "needle4711"}, ("--line-number", "needle4711", ".")),
    "grep of a common word": (GREP, {"pattern": "needle"}, ("--line-number", "needle", ".")),
    "glob of all": (GLOB, {"pattern": "**/*.txt"}, ("--files", "--glob=**/*.txt")),
    "glob of few": (GLOB, {"pattern": "**/7/*.txt"}, ("--files", "--glob=**/7/*.txt")),
    "glob of one folder": (GLOB, {"pattern": "7/*.txt"}, ("--files", "--glob=/7/*.txt")),
}


def main() -> None:
    """Make the tree, measure and print the table."""
    parser = argparse.ArgumentParser(description="Measure searching.")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place).resolve()
        make_tree(workspace, arguments.files)
        rows = trio.run(partial(measure, workspace, arguments.runs))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {arguments.files:,} files")
    print_rows(rows)


def make_tree(workspace: Path, files: int) -> None:
    """Write `files` files."""
    for number in range(files):
        folder = workspace / str(number // FILES_PER_FOLDER)
        folder.mkdir(exist_ok=True)
        word = f"needle{number}\n" if number % 10 == 1 else ""
        (folder / f"{number}.txt").write_text(LINES + word)


async def measure(workspace: Path, runs: int) -> list[Row]:
    """Measure each search by the tool and by ripgrep alone, in turns."""
    environment = make_environment(workspace)
    rows: list[Row] = []
    for name, (tool, given, alone) in SEARCHES.items():
        ripgrep = [find_ripgrep()[0], *ALWAYS, *alone]
        taken: dict[str, list[tuple[float, float]]] = {}
        for _ in range(runs):
            with _timed(taken, name):
                await _search(tool, given, environment)
            with _timed(taken, "  ripgrep alone"):
                _run(ripgrep, workspace)
        for row, figures in taken.items():
            wall, cpu = zip(*figures, strict=True)
            rows.append(Row(row, "ms", wall, sum(cpu) / len(cpu)))
    return rows


@contextmanager
def _timed(taken: dict[str, list[tuple[float, float]]], row: str) -> Generator[None]:
    """Record the wall and CPU time of the block, in milliseconds."""
    cpu, began = _cpu_s(), time.monotonic()
    yield
    wall = time.monotonic() - began
    taken.setdefault(row, []).append((wall * 1000, (_cpu_s() - cpu) * 1000))


def _run(program: list[str], workspace: Path) -> None:
    subprocess.run(program, cwd=workspace, check=False, capture_output=True)


async def _search(tool: Tool, given: dict[str, object], environment: ToolEnvironment) -> None:
    assert isinstance(tool.arguments, type)
    arguments = tool.arguments(**given)
    requirements = tool.requirements(arguments, environment.workspace)
    await tool.run(arguments, replace(environment, requirements=requirements))


def make_environment(workspace: Path) -> ToolEnvironment:
    """Return an environment with the fields that a search needs."""
    nothing: Any = None
    return ToolEnvironment(
        workspace=workspace,
        session_id="s",
        call_id="s/1",
        files=FileAccess(
            FileVersions(), Readable(()), nothing, workspace / "spill", nothing, nothing
        ),
        commands=CommandAccess(
            lambda: child_environment(os.environ, (), f"bench-{os.getpid()}", "s/1"), nothing
        ),
        user=nothing,
        delegate=nothing,
    )


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
