"""Presses Esc while an answer streams, on a terminal that answers status requests and in tmux.

    .venv/bin/python scripts/soak/escape.py --rounds 50

Prints how long each interrupt took to be shown. It fails if one percent took longer than 0.3 s, or
if a text that was typed next did not arrive whole.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import trio  # noqa: E402

from support.chat import ChatTerminal  # noqa: E402 - found there
from support.daemon import Daemon  # noqa: E402
from support.escaping import interrupt_by_escape, streaming  # noqa: E402
from support.tmux import TmuxChat  # noqa: E402

LIMIT_S = 0.3


async def press(kind: type[ChatTerminal | TmuxChat], rounds: int) -> list[float]:
    """Interrupt so many answers in one chat; return the seconds that each took, the least first."""
    with tempfile.TemporaryDirectory() as home, Daemon(Path(home)) as daemon:
        workspace = Path(home) / "work"
        workspace.mkdir()
        model = daemon.script(streaming())
        chat = kind.start(daemon, "chat", "-C", str(workspace), "-m", model)
        try:
            took = [await interrupt_by_escape(chat, number) for number in range(rounds)]
        finally:
            chat.close()
    return sorted(took)


def main() -> int:
    """Read the arguments and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    is_slow = False
    for kind in (ChatTerminal, TmuxChat):
        took = trio.run(press, kind, rounds)
        most = took[(99 * rounds - 1) // 100]
        is_slow |= most > LIMIT_S
        median = took[rounds // 2]
        print(f"{kind.__name__}: {rounds} times, median {median:.3f} s, p99 {most:.3f} s")
    return int(is_slow)


if __name__ == "__main__":
    sys.exit(main())
