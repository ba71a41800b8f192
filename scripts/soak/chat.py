"""Sends many chat messages while it kills the daemon, resizes the terminal and stops the chat.

    .venv/bin/python scripts/soak/chat.py --rounds 50 --seed 7
    .venv/bin/python scripts/soak/chat.py --tmux

In the end, all that was typed must be on the terminal, once and in order.
"""

import argparse
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import trio  # noqa: E402

from support.chat_chaos import play_disturbed  # noqa: E402 - found there
from support.daemon import Daemon  # noqa: E402


async def chat(rounds: int, seed: int, *, in_tmux: bool) -> None:
    """Play one chat with a new daemon and a new workspace."""
    with tempfile.TemporaryDirectory() as home, Daemon(Path(home)) as daemon:
        workspace = Path(home) / "work"
        workspace.mkdir()
        await trio.run_process(["git", "init", "-q", str(workspace)])
        await play_disturbed(daemon, workspace, seed, rounds, in_tmux=in_tmux)
    print(f"seed {seed}: {rounds} messages, all of them on the terminal")


def main() -> None:
    """Read the arguments and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--tmux", action="store_true", help="run the chat in a tmux pane")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    trio.run(partial(chat, arguments.rounds, arguments.seed, in_tmux=arguments.tmux))


if __name__ == "__main__":
    main()
