"""Sends many chat messages while it kills the daemon, resizes the terminal and stops the chat.

    .venv/bin/python scripts/soak/chat.py --rounds 50 --seed 7
    .venv/bin/python scripts/soak/chat.py --tmux
    .venv/bin/python scripts/soak/chat.py --escape --rounds 50

In the end, all that was typed must be on the terminal, once and in order. With `--escape`, it
presses Esc while answers stream, on a terminal that answers status requests and in tmux. Then one
percent at most may take longer than 0.3 s, and what is typed next must arrive whole.
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

from support.chat import ChatTerminal  # noqa: E402 - found there
from support.chat_chaos import play_disturbed  # noqa: E402
from support.daemon import Daemon  # noqa: E402
from support.escaping import interrupt_by_escape, streaming  # noqa: E402
from support.tmux import TmuxChat  # noqa: E402

ESCAPE_S_MAX = 0.3


async def chat(rounds: int, seed: int, *, in_tmux: bool) -> None:
    """Play one chat with a new daemon and a new workspace."""
    with tempfile.TemporaryDirectory() as home, Daemon(Path(home)) as daemon:
        workspace = Path(home) / "work"
        workspace.mkdir()
        await trio.run_process(["git", "init", "-q", str(workspace)])
        await play_disturbed(daemon, workspace, seed, rounds, in_tmux=in_tmux)
    print(f"seed {seed}: {rounds} messages, all of them on the terminal")


async def escape(kind: type[ChatTerminal | TmuxChat], rounds: int) -> None:
    """Interrupt so many answers in one chat; exit if that takes too long."""
    with tempfile.TemporaryDirectory() as home, Daemon(Path(home)) as daemon:
        (workspace := Path(home, "work")).mkdir()
        model = daemon.script(streaming())
        chat = kind.start(daemon, "chat", "-C", str(workspace), "-m", model)
        try:
            took = sorted([await interrupt_by_escape(chat, number) for number in range(rounds)])
        finally:
            chat.close()
    most = took[(99 * rounds - 1) // 100]
    print(f"{kind.__name__}: {rounds} times, median {took[rounds // 2]:.3f} s, p99 {most:.3f} s")
    if most > ESCAPE_S_MAX:
        sys.exit(f"more than {ESCAPE_S_MAX} s")


def main() -> None:
    """Read the arguments and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--tmux", action="store_true", help="run the chat in a tmux pane")
    parser.add_argument("--escape", action="store_true", help="press Esc while answers stream")
    arguments = parser.parse_args()
    if arguments.escape:
        for kind in (ChatTerminal, TmuxChat):
            trio.run(escape, kind, arguments.rounds)
        return
    print(f"seed {arguments.seed}")
    trio.run(partial(chat, arguments.rounds, arguments.seed, in_tmux=arguments.tmux))


if __name__ == "__main__":
    main()
