"""Counts the needless and the missing questions of the default configuration.

People have written in `tests/policy` what each line needs: `agent_commands.txt`,
`script_lines.txt`. `--show` prints the lines with needless and missing questions.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon"), str(ROOT / "protocol")]

from policy.questions import Labelled, default_verdict, is_contained, labelled  # noqa: E402 - found there

FILES = ("agent_commands.txt", "script_lines.txt")


def main() -> None:
    """Judge all lines and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="print the wrongly judged lines")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for name in FILES:
            _judge(name, Path(directory).resolve(), show=arguments.show)


def _judge(name: str, workspace: Path, *, show: bool) -> None:
    """Judge the lines of a file; print how many ask needlessly, and where the others run."""
    lines = labelled(name)
    needless: list[str] = []
    missing: list[Labelled] = []
    became: Counter[tuple[str, str]] = Counter()
    took_us: list[float] = []
    for line in lines:
        began = time.perf_counter()
        verdict = default_verdict(line.text, workspace)
        took_us.append((time.perf_counter() - began) * 1e6)
        asks = verdict.action != "allow"
        became[line.label, "asks" if asks else verdict.level.name] += 1
        if asks and line.is_harmless:
            needless.append(line.text)
        if not line.is_harmless and not is_contained(line, workspace):
            missing.append(line)
    harmless = sum(line.is_harmless for line in lines)
    print(f"{name}: {len(lines)} lines, {harmless} harmless;", end=" ")
    print(f"{len(needless)} = {len(needless) / harmless:.1%} of them ask needlessly;", end=" ")
    print(f"{len(missing)} others are not held; {statistics.median(took_us):.0f} us each")
    for (label, where), count in sorted(became.items()):
        print(f"  {label:9} {where:10} {count:5}")
    if show:
        print(*needless, *missing, sep="\n    ")


if __name__ == "__main__":
    main()
