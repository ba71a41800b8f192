"""Plays many random programs, checks each for every guarantee, and prints the seeds that fail.

    .venv/bin/python scripts/soak/simulation.py --programs 10000 [--first SEED] [--workers 2]
    .venv/bin/python scripts/soak/simulation.py --replay SEED    # the smallest program that fails

Without `--first` the first seed is random. Exits with status 1 when a seed fails. A program that
does not end within two minutes of real time fails, too.
"""

import argparse
import gc
import secrets
import signal
import sys
import time
from collections.abc import Iterable
from multiprocessing import Pool
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from sim.batches import judge, must_end, play_seed  # noqa: E402 - not on the path before
from sim.judges import CHECKS  # noqa: E402
from tiller_daemon.memory import GC_THRESHOLDS  # noqa: E402

PROGRAM_S_MAX = 120
TOLD_EVERY = 500
SEEDS_MAX = 2**32


class Stuck(BaseException):
    """A program takes too long."""


def main() -> int:
    """Play the programs, print the failures, and return the exit status."""
    options = arguments()
    if options.replay is not None:
        return replay(options.replay)
    first = secrets.randbelow(SEEDS_MAX) if options.first is None else options.first
    seeds = range(first, first + options.programs)
    print(f"{options.programs:,} programs from seed {first}, {options.workers} at a time")
    failures: dict[int, list[str]] = {}
    began = time.monotonic()
    with Pool(options.workers, initializer=prepare) as pool:
        for number, (seed, failed) in enumerate(pool.imap_unordered(try_seed, seeds, 20), 1):
            if failed:
                failures[seed] = failed
                print(f"seed {seed} fails: {', '.join(failed)}", flush=True)
            if number % TOLD_EVERY == 0:
                rate = number / (time.monotonic() - began)
                print(f"{number:,} played, {rate:.1f} a second, {len(failures)} fail", flush=True)
    elapsed = time.monotonic() - began
    rate = options.programs / elapsed
    print(f"{options.programs:,} programs in {elapsed:.0f} s ({rate:.1f} a second)", end="; ")
    print(f"{len(failures)} fail: {sorted(failures)}" if failures else "none fails")
    return 1 if failures else 0


def arguments() -> argparse.Namespace:
    """Return the parsed arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=int, default=1_000)
    parser.add_argument("--first", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--replay", type=int, metavar="SEED")
    return parser.parse_args()


def prepare() -> None:
    """Give a worker the daemon's garbage collection, no log output, and a timeout."""
    import conftest

    assert conftest
    gc.set_threshold(*GC_THRESHOLDS)
    signal.signal(signal.SIGALRM, give_up)


def give_up(*_: object) -> NoReturn:
    """Abandon a program that hangs."""
    raise Stuck


def try_seed(seed: int) -> tuple[int, list[str]]:
    """Return the seed and the names of the guarantees that its program breaks."""
    signal.alarm(PROGRAM_S_MAX)
    try:
        return seed, list(broken_by(seed))
    except Stuck:
        return seed, ["it hangs"]
    finally:
        signal.alarm(0)


def broken_by(seed: int) -> Iterable[str]:
    """Play a program and yield the names of the guarantees that it breaks."""
    played = play_seed(seed)
    if played.seen is None:
        yield f"it does not end: {played.failure!r}"
        return
    for check in CHECKS:
        try:
            check(played.seen)
        except Exception:
            yield check.__name__


def replay(seed: int) -> int:
    """Play one program; if it fails, reduce it and print the smaller program."""
    prepare()
    played = play_seed(seed)
    try:
        must_end(played)
        for check in CHECKS:
            judge(check, played)
    except AssertionError as error:
        print(error)
        return 1
    print(f"The program of seed {seed} keeps every guarantee.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
