#!/usr/bin/env python3
"""Measures how long the result of a first and a later change waits for language servers.

    .venv/bin/python scripts/bench/language_servers.py [--changes 50] [NAME=PROGRAM ...]

Measures every known server that is on PATH, beside this Python, or given as PROGRAM, on a file of
200 lines in a separate directory. The memory is that of the server's processes after the last
change.
"""

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import trio
from table import Row, print_rows

from tiller_daemon.config.language_servers import KNOWN
from tiller_daemon.lsp.definitions import ServerDefinition, server_program
from tiller_daemon.lsp.servers import LanguageServers
from tiller_daemon.processes.environment import DAEMON_MARKER, child_environment

MARK = f"bench-{os.getpid()}"
LINES = 100
GOOD = {
    ".py": "def f{n}(x: int) -> int:\n    return x + {n}\n",
    ".ts": "export function f{n}(x: number): number {{\n  return x + {n}; }}\n",
    ".c": "int f{n}(int x) {{\n  return x + {n}; }}\n",
}
BAD = {".py": "y = nonsense(\n", ".ts": "const y = nonsense(;\n", ".c": "int y = nonsense(;\n"}


def main() -> None:
    """Measure the servers that are installed and print the table."""
    parser = argparse.ArgumentParser(description="Measure language servers.")
    parser.add_argument("--changes", type=int, default=50, help="changes after the first")
    parser.add_argument("programs", nargs="*", metavar="NAME=PROGRAM")
    arguments = parser.parse_args()
    named = dict(one.split("=", 1) for one in arguments.programs)
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    rows: list[Row] = []
    for name, known in KNOWN.items():
        command = (named.get(name, (known.command or ("",))[0]), *(known.command or ())[1:])
        definition = ServerDefinition(
            name=name,
            command=command,
            files=known.files,
            settings=known.settings,
            configured=True,
        )
        if server_program(definition, search):
            with tempfile.TemporaryDirectory() as place:
                workspace = Path(place).resolve()
                rows += trio.run(partial(measure, definition, search, workspace, arguments.changes))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print_rows(rows)


async def measure(
    definition: ServerDefinition, search: str, workspace: Path, changes: int
) -> list[Row]:
    """Measure the first change and later ones, each of which breaks or repairs the file."""
    end = next((end for end in definition.files if end in BAD), "")
    if not end:
        return []
    variables = {**child_environment(os.environ, (), MARK, ""), "PATH": search}
    good = "".join(GOOD[end].format(n=n) for n in range(LINES))
    file = workspace / f"file{end}"
    file.write_text(good)
    servers = LanguageServers((definition,), variables, workspace.parent)
    async with trio.open_nursery() as nursery:
        await nursery.start(servers.run)
        first = await _change(servers, file, good + BAD[end])
        later = [
            await _change(servers, file, good + BAD[end] * (number % 2))
            for number in range(changes)
        ]
        memory = _memory_mb()
        nursery.cancel_scope.cancel()
    return [
        Row(f"{definition.name}: the first change", "ms", (first,)),
        Row(f"{definition.name}: a later one", "ms", tuple(later)),
        Row(f"{definition.name}: memory", "MB", (memory,)),
    ]


async def _change(servers: LanguageServers, file: Path, text: str) -> float:
    began = time.monotonic()
    check = await servers.before_change(file.parent, [file])
    file.write_text(text)  # noqa: ASYNC240 - nobody waits yet
    assert check
    told = await check.new_errors()
    took_ms = (time.monotonic() - began) * 1000
    if ("New errors" in told) != text.endswith(BAD[file.suffix]):
        print(f"unexpected diagnostics for {file.name}: {told.strip() or 'none'}")
    return took_ms


def _memory_mb() -> float:
    """Return the resident memory of all processes that this benchmark has marked."""
    mark, pages = f"{DAEMON_MARKER}={MARK}".encode(), 0
    for process in Path("/proc").iterdir():
        try:
            if mark in (process / "environ").read_bytes():
                pages += int((process / "statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
