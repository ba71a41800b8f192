"""Kills the file tools, or fills the disk, at each system call, and counts damaged files.

    .venv/bin/python scripts/soak/edits.py [--sizes 1,2,3,5,10,20] [--directory DIR]

Each point runs in a new process; then the daemon's recovery runs, which is killed as well. Counts
files that are at any moment neither the old nor the new version, calls that are half done after
the recovery, and leftover files. Exits with status 1 if there were any.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.interrupted_edits import FAULTS, cases, faults_of


def main() -> int:
    """Try every fault, print a table, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="1,2,3,5,10,20", help="numbers of files in a patch")
    memory = Path("/dev/shm")
    parser.add_argument("--directory", type=Path, default=memory if memory.is_dir() else None)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    began, points, harm = time.monotonic(), 0, 0
    print(f"{'call':14} {'fault':18} {'points':>6} {'old':>5} {'new':>5} {'harm':>5}")
    with tempfile.TemporaryDirectory(dir=options.directory) as root:
        for case in cases(*sizes):
            for fault in FAULTS:
                left: Counter[str] = Counter()
                harmed: list[str] = []
                for number, one in faults_of(case, fault, Path(root)):
                    left[one.tree] += 1
                    if one.complaints:
                        harmed.append(f"  at call {number}: {'; '.join(one.complaints)}")
                points += left.total()
                harm += len(harmed)
                print(
                    f"{case.name:14} {fault:18} {left.total():6} {left['old']:5} {left['new']:5} "
                    f"{len(harmed):5}",
                    flush=True,
                )
                print("".join(f"{line}\n" for line in harmed), end="")
    seconds = time.monotonic() - began
    print(f"{points:,} points, {harm} with harm, {seconds:.0f} s")
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
