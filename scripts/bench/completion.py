#!/usr/bin/env python3
"""Measures how long completing `@file` takes in a large repository, key by key.

    .venv/bin/python scripts/bench/completion.py [--files 50000]

The counts say how many paths are ranked after a key; they are the same on every machine.
"""

import argparse
import asyncio
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from table import Row, print_rows

from tiller_client.chat.files import WorkspaceFiles

SYLLABLES = ("re", "con", "tro", "lle", "vi", "ew", "mo", "del", "te", "st", "a", "x")
WORDS, DIRECTORIES, SHOWN = 300, 2_000, 12
RUNS = 5
TYPED = ("r", "re", "rec", "reco", "retro", "rvm", "recontro/a", "recontro.p")


def main() -> None:
    """Make a repository, list its files, and complete what is typed."""
    parser = argparse.ArgumentParser(description="Measure the completion of file names.")
    parser.add_argument("--files", type=int, default=50_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        _fill(Path(place), options.files)
        files = WorkspaceFiles(Path(place))
        rows = [Row("list the files", "ms", _ms(lambda: asyncio.run(files.refresh()), times=3))]
        for typed in TYPED:
            before = files.scored
            took = _ms(partial(files.matches, typed, SHOWN), times=RUNS)
            rows.append(Row(f"matches of {typed}", "ms", took))
            ranked = (files.scored - before) // RUNS
            rows.append(Row(f"paths ranked for {typed}", "paths", (ranked,)))
        print_rows(rows)


def _ms(work: Callable[[], object], *, times: int) -> tuple[float, ...]:
    took: list[float] = []
    for _ in range(times):
        began = time.process_time()
        work()
        took.append((time.process_time() - began) * 1000)
    return tuple(took)


def _fill(place: Path, count: int) -> None:
    source = Random(5)
    words = ["".join(source.choices(SYLLABLES, k=3)) for _ in range(WORDS)]
    directories = ["/".join(source.choices(words, k=4)) for _ in range(DIRECTORIES)]
    for directory in directories:
        (place / directory).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (place / source.choice(directories) / f"{source.choice(words)}{number}.py").touch()
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)


if __name__ == "__main__":
    main()
