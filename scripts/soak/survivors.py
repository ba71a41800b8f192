"""Measures how long a command's processes outlive it, whatever they do to escape (G8, T12).

Tries seven shapes of process at once, with seven endings, with and without a sandbox; each run has
its own daemon. A process that is alive after ten seconds counts as a survivor. Needs Linux.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import trio

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("tests", "daemon", "protocol", "client")]

from support.daemon import CONFIG, Daemon  # noqa: E402 - found there
from support.frontend import Frontend  # noqa: E402
from support.survivors import ENDINGS, SHAPES, Ending, Escape  # noqa: E402
from tiller_daemon.sandbox.detect import find_sandbox  # noqa: E402

MODES = {"sandbox": CONFIG.replace('sandbox = { mode = "full_access" }\n', ""), "none": CONFIG}

TIMEOUT_S = 10.0


async def end_once(config: str, ending: Ending) -> tuple[float, int]:
    """Return how long the last process lived, and how many shapes are still alive."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as workspace:
        async with trio.open_nursery() as nursery:
            with Daemon(Path(home), config) as daemon:
                frontend = await Frontend.connect(daemon, nursery)
                escape = Escape(Path(workspace))
                await ending(daemon, frontend, escape)
                took_s = escape.gone_after_s(TIMEOUT_S)
                survivors = len(escape.alive())
                escape.kill()
                await frontend.disconnect()
                if daemon.process is None:
                    daemon.start()
            nursery.cancel_scope.cancel()
    return took_s, survivors


def main() -> None:
    """Run every combination and print one line for each ending."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found = find_sandbox(sys.platform)
    late = survived = tried = 0
    for mode, config in MODES.items():
        if mode == "sandbox" and found.sandbox is None:
            print(f"skipped, no sandbox here: {found.problem}")
            continue
        for name, ending in ENDINGS.items():
            results = [trio.run(end_once, config, ending) for _ in range(rounds)]
            took_s = [took for took, _ in results]
            late += len(SHAPES) * sum(took > 1.0 for took in took_s)
            survived += sum(alive for _, alive in results)
            tried += len(SHAPES) * rounds
            print(f"{mode:8} {name:14} {max(took_s) * 1000:6.0f} ms at most", flush=True)
    print(f"{tried} escapes: {late} alive after a second, {survived} after {TIMEOUT_S:g} s")


if __name__ == "__main__":
    main()
