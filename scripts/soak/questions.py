"""Says how many questions of the default configuration are needless, and how many are missing.

What each line needs is said by people, in `tests/policy`: `agent_commands.txt`, `script_lines.txt`.
`--show` prints the lines that are asked about needlessly.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon"), str(ROOT / "protocol")]

from policy.bypasses_of_working import HELD_BYPASSES  # noqa: E402 - found there
from policy.command_lines import BYPASSES  # noqa: E402
from policy.questions import asks, labelled  # noqa: E402

FILES = ("agent_commands.txt", "script_lines.txt")


def main() -> None:
    """Judge all lines and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="print what is asked needlessly")
    arguments = parser.parse_args()
    took_us: list[float] = []
    lines = needless = 0
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory).resolve()
        for name in FILES:
            count, found = _judge(name, workspace, took_us, show=arguments.show)
            lines += count
            needless += found
        print(f"together: {needless} of {lines} = {needless / lines:.1%} are asked needlessly")
        bypasses = list(dict.fromkeys((*BYPASSES, *HELD_BYPASSES)))
        allowed = [text for text in bypasses if not asks(text, workspace)]
        print(f"ways around the rules: {len(bypasses)}, allowed: {len(allowed)}")
    print(f"{statistics.median(took_us):.0f} us each")


def _judge(name: str, workspace: Path, took_us: list[float], *, show: bool) -> tuple[int, int]:
    """Judge the lines of a file; returns how many there are, and how many asked needlessly."""
    lines = labelled(name)
    needless: list[str] = []
    missing: list[str] = []
    for line in lines:
        began = time.perf_counter()
        asked = asks(line.text, workspace)
        took_us.append((time.perf_counter() - began) * 1e6)
        if asked and line.is_harmless:
            needless.append(line.text)
        if not asked and not line.is_harmless:
            missing.append(line.text)
    harmless = sum(line.is_harmless for line in lines)
    of_all, of_harmless = len(needless) / len(lines), len(needless) / harmless
    print(f"{name}: {len(lines)} lines, {harmless} of them harmless; needless questions:")
    print(f"  {len(needless)} = {of_all:.1%} of all, {of_harmless:.1%} of the harmless;", end=" ")
    print(f"missing ones: {len(missing)}")
    if show:
        print(*needless, *missing, sep="\n    ")
    return len(lines), len(needless)


if __name__ == "__main__":
    main()
