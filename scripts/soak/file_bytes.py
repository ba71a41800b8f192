"""Changes a line of random files in every encoding and compares all bytes.

    .venv/bin/python scripts/soak/file_bytes.py --cases 20000 [--directory DIR]

Files are UTF-8 (some with a byte order mark or stray bytes), UTF-16 or Windows-1252. Lines end in
LF, CRLF or both; some contain lone CRs, and the last may lack its line end. File modes vary.
`read`, `edit`, `apply_patch` and `write` must keep all that they were not asked to change. Prints
the number of cases of each kind. A case that fails is reduced, and the exit status is 1.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.written_files import Case, case, meet


def main() -> int:
    """Try random cases and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=20_000)
    memory = Path("/dev/shm")
    parser.add_argument("--directory", type=Path, default=memory if memory.is_dir() else None)
    options = parser.parse_args()
    met: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.directory) as root:

        @settings(
            max_examples=options.cases, deadline=None, database=None, report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
        @given(case())
        def every(one: Case) -> None:
            meet(one, Path(root))
            met[one.encoding.name, one.way] += 1

        try:
            every()
            failed = 0
        except AssertionError as error:
            failed = 1
            print("".join(getattr(error, "__notes__", [])), error)
    for (encoding, way), count in sorted(met.items()):
        print(f"{encoding:24} {way:26} {count:6}")
    print(f"{met.total():,} cases, {failed} failed, {time.monotonic() - began:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main())
