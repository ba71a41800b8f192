"""Makes random HTTP responses, valid and invalid, and compares how tiller and h11 read them.

    .venv/bin/python scripts/soak/responses.py --responses 1000000

Prints how many responses were accepted and refused, and each seed whose response tiller and h11
read differently for no known reason, or that raised anything but `Broken`. Exits with status 1 if
there was such a seed.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.responses import differs_from_h11, make_response, parse_by_h11

CUTS_MAX = 5
PLACE_MAX = 200
SHOWN_MAX = 20


def main() -> int:
    """Read the requested number of responses."""
    parser = argparse.ArgumentParser(description="Reads responses made at random.")
    parser.add_argument("--responses", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    ended: Counter[str] = Counter()
    failed: list[str] = []
    begun = time.monotonic()
    for number in range(arguments.responses):
        seed = f"{arguments.seed} {number}"
        random = Random(seed)
        data = make_response(random)
        cuts = [random.randrange(PLACE_MAX) for _ in range(random.randrange(CUTS_MAX))]
        try:
            difference = differs_from_h11(data, cuts)
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
        if difference:
            failed.append(f"{seed}: {data!r}: {difference}")
        ended["taken" if parse_by_h11(data) else "refused"] += 1
    for line in failed[:SHOWN_MAX]:
        print(line)
    seconds = time.monotonic() - begun
    print(f"{dict(ended)} by h11, {len(failed)} read differently, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
