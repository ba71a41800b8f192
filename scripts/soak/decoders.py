"""Damages recorded streams at random and decodes them.

    .venv/bin/python scripts/soak/decoders.py --mutations 100000

Prints how the damaged streams ended, by wire, and each seed with which a decoder raised anything
but a `ModelError`; exits with status 1 if there was one. `--only SEED` replays a seed and shows the
traceback.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.damage import meet
from support.streams import STREAMS, wire_of


def main() -> int:
    """Run the requested mutations."""
    parser = argparse.ArgumentParser(description="Damages recorded streams and decodes them.")
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="SEED", help="replay the damage of one seed")
    arguments = parser.parse_args()
    if arguments.only:
        print(meet(arguments.only.split()[1], Random(arguments.only)))
        return 0
    ended: Counter[tuple[str, str]] = Counter()
    failed: list[str] = []
    begun = time.monotonic()
    names = list(STREAMS)
    for number in range(arguments.mutations):
        name = names[number % len(names)]
        seed = f"{arguments.seed} {name} {number}"
        try:
            ended[wire_of(name), meet(name, Random(seed))] += 1
        except Exception as error:
            failed.append(f"{seed}: {type(error).__name__}: {error}")
    for (wire, end), count in sorted(ended.items()):
        print(f"{wire:10} {end:18} {count}")
    for line in failed[:20]:
        print(line)
    seconds = time.monotonic() - begun
    print(f"{arguments.mutations} mutations, {len(failed)} unhandled, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
