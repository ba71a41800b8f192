#!/usr/bin/env python3
"""What `grep` and `glob` take in a tree of many files, beside ripgrep run alone, in turns.

    .venv/bin/python scripts/bench/search.py [--files 50000] [--runs 20]

The tree is made anew in a temporary directory: folders of 100 small files each, every tenth of
which holds the word that is looked for. ripgrep alone gets the same arguments, and its output is
read and thrown away.
"""

import argparse
import os
import resource
import subprocess
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio
from table import Row, print_rows

from tiller_daemon.tools.base import FileVersions, Tool, ToolEnvironment
from tiller_daemon.tools.glob import GLOB
from tiller_daemon.tools.grep import GREP
from tiller_daemon.tools.search import ALWAYS, find_ripgrep
from tiller_daemon.workspace.environment import child_environment
from tiller_daemon.workspace.tree import become_subreaper

FILES_PER_FOLDER = 100
LINES = "".join(f"line {number} of an ordinary file\n" for number in range(40))

SEARCHES = {
    "grep of a rare word": (GREP, {"pattern": "needle4711"}, ("--line-number", "needle4711", ".")),
    "grep of a common word": (GREP, {"pattern": "needle"}, ("--line-number", "needle", ".")),
    "glob of all": (GLOB, {"pattern": "**/*.txt"}, ("--files", "--glob=**/*.txt")),
    "glob of few": (GLOB, {"pattern": "**/7/*.txt"}, ("--files", "--glob=**/7/*.txt")),
}


def main() -> None:
    """Make the tree, measure and print the table."""
    parser = argparse.ArgumentParser(description="Measure searching.")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    become_subreaper()
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place).resolve()
        make_tree(workspace, arguments.files)
        rows = trio.run(partial(measure, workspace, arguments.runs))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {arguments.files:,} files")
    print_rows(rows)


def make_tree(workspace: Path, files: int) -> None:
    """Write so many files."""
    for number in range(files):
        folder = workspace / str(number // FILES_PER_FOLDER)
        folder.mkdir(exist_ok=True)
        word = f"needle{number}\n" if number % 10 == 1 else ""
        (folder / f"{number}.txt").write_text(LINES + word)


async def measure(workspace: Path, runs: int) -> list[Row]:
    """Each search by the tool and by ripgrep alone, in turns."""
    environment = make_environment(workspace)
    rows: list[Row] = []
    for name, (tool, given, alone) in SEARCHES.items():
        ours: list[float] = []
        plain: list[float] = []
        cpu_s = {"ours": 0.0, "plain": 0.0}
        for _ in range(runs):
            before, began = _cpu_s(), time.monotonic()
            await _search(tool, given, environment)
            ours.append((time.monotonic() - began) * 1000)
            between, began = _cpu_s(), time.monotonic()
            subprocess.run(  # noqa: ASYNC221 - nothing else runs here
                [find_ripgrep()[0], *ALWAYS, *alone],
                cwd=workspace,
                check=False,
                capture_output=True,
            )
            plain.append((time.monotonic() - began) * 1000)
            cpu_s["ours"] += between - before
            cpu_s["plain"] += _cpu_s() - between
        rows.append(Row(name, "ms", tuple(ours), cpu_s["ours"] / runs * 1000))
        rows.append(Row("  ripgrep alone", "ms", tuple(plain), cpu_s["plain"] / runs * 1000))
    return rows


async def _search(tool: Tool, given: dict[str, object], environment: ToolEnvironment) -> None:
    arguments = tool.arguments(**given)
    needs = tool.needs(arguments, environment.workspace)
    await tool.run(arguments, replace(environment, needs=needs))


def make_environment(workspace: Path) -> ToolEnvironment:
    """What a search needs of the environment of a call."""
    nothing: Any = None
    return ToolEnvironment(
        workspace=workspace,
        spill_directory=workspace / "spill",
        session_id="s",
        call_id="s/1",
        files=FileVersions(),
        variables=child_environment(os.environ, (), f"bench-{os.getpid()}", "s/1"),
        output=nothing,
        show_plan=nothing,
        ask=nothing,
        delegate=nothing,
        background=nothing,
        diagnostics=nothing,
    )


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
