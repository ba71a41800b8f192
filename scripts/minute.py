"""Records docs/minute.svg, the terminal picture in README.md, from a real run.

    .venv/bin/python scripts/minute.py

A scripted model repairs the bug of `tiller demo` in a temporary home. Daemon, log, tools and git
are real. Two shells are typed into as `play` says; what both show becomes the picture. Long pauses
are cut. An argument names another file for the picture.
"""

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from pyte.screens import Char  # noqa: E402

from support.chat import cells_of  # noqa: E402 - found there
from support.screens.film import Frame, film  # noqa: E402
from support.screens.normal import replaced  # noqa: E402
from tiller_client.demo_play import NEW_LINE, OLD_LINE, PROJECT, configuration  # noqa: E402

SIZE = (92, 16)
"""Columns and lines of each of the two terminals."""

SHOWN_AS = "/home/charlie"
"""The home in the picture; the real path is as long, so that lines break alike."""

KEY_S, FRAME_S, TIMEOUT_S = 0.03, 0.1, 30.0
"""Seconds between two keys, between two frames at least, and after which the run has failed."""

PAUSE_MAX_S, LOOK_S = 2.5, 2.0
"""The longest pause in the picture, and the time to look at what a command has shown."""

PROMPT = "$ "
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)")

TITLES = ("one terminal", "another terminal")

TASK = "A test has failed since we added the discount. Find out why and fix it."
THOUGHT = (
    "The test expects 849 cents and gets 850. `total` rounds the discount down before it subtracts "
    "it, so a customer pays up to one cent too much. The sum has to be rounded once, at the end, "
    "and in whole numbers: half a cent is added before the division."
)


def script() -> dict[str, object]:
    """Return the model's answers."""
    words = [
        ({"type": "text", "text": f"{word} "}, {"type": "wait", "seconds": 0.16})
        for word in THOUGHT.split()
    ]
    return {
        "title": {"parts": [_says("Round discounts to the nearest cent")]},
        "steps": [
            {
                "parts": [
                    _says("I'll read the code and its test."),
                    _calls("read", path="shop/prices.py"),
                    _calls("read", path="tests/test_prices.py"),
                ]
            },
            {"parts": [part for pair in words for part in pair]},
            {
                "parts": [
                    _says("I was cut off. I'll look again, and round once, at the end."),
                    _calls("read", path="shop/prices.py"),
                ]
            },
            {
                "parts": [
                    _calls("edit", path="shop/prices.py", old=OLD_LINE, new=NEW_LINE),
                    _calls("bash", command="python3 -m unittest -q"),
                ]
            },
            {"parts": [_says("Fixed: both tests pass.")]},
        ],
    }


def _says(text: str) -> dict[str, object]:
    return {"type": "text", "text": text, "pieces": 6}


def _calls(name: str, **arguments: str) -> dict[str, object]:
    return {"type": "tool_call", "name": name, "arguments": arguments}


class Shell:
    """A shell on a terminal."""

    def __init__(self, home: Path) -> None:
        self.written = ""
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (SIZE[1], SIZE[0]))
        self.variables = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "TILLER_THEME": "dark",
            "GIT_PAGER": "cat",
            "PS1": r"\[\e[1;32m\]$\[\e[0m\] ",
        }
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            cwd=home / "shop",
            env=self.variables,
        )
        os.close(slave)

    @property
    def text(self) -> str:
        """What was written to the terminal, without control sequences."""
        return CONTROL.sub("", self.written)

    @property
    def cells(self) -> list[list[Char]]:
        """What the terminal shows."""
        return cells_of(self.written, SIZE)


class Recorder:
    """Types into two shells and keeps what both show."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.shells = (Shell(home), Shell(home))
        self.frames: list[Frame] = []

    def watch(self, seconds: float, until: Callable[[], object] = lambda: False) -> bool:
        """Read from both shells until something is true, or for a time; return whether it was."""
        end = time.monotonic() + seconds
        while not until() and (left := end - time.monotonic()) > 0:
            masters = [shell.master for shell in self.shells]
            ready = select.select(masters, [], [], min(left, FRAME_S))[0]
            for shell in self.shells:
                if shell.master in ready:
                    shell.written += os.read(shell.master, 65536).decode(errors="replace")
            self._keep()
        return bool(until())

    def close(self) -> None:
        """End the daemon and both shells."""
        end = ["tiller", "daemon", "stop", "--yes"]
        subprocess.run(end, env=self.shells[0].variables, stdout=subprocess.DEVNULL, check=False)
        for shell in self.shells:
            shell.process.kill()
            shell.process.wait()
            os.close(shell.master)

    def _keep(self) -> None:
        now = time.monotonic()
        if self.frames and now - self.frames[-1].at < FRAME_S:
            return
        rows = [
            [replaced(row, re.compile(re.escape(str(self.home))), SHOWN_AS) for row in shell.cells]
            for shell in self.shells
        ]
        if not self.frames or rows != self.frames[-1].screens:
            self.frames.append(Frame(now, rows))

    def type(self, number: int, line: str, prompt: str = PROMPT) -> None:
        """Type a line into a shell once it shows a prompt."""
        shell = self.shells[number]
        assert self.watch(TIMEOUT_S, lambda: shell.text.endswith(prompt)), shell.text
        for key in f"{line}\r":
            os.write(self.shells[number].master, key.encode())
            self.watch(KEY_S)

    def sees(self, number: int, text: str) -> None:
        """Watch until a shell has shown a text since its last line was typed."""
        shell = self.shells[number]
        begin = len(shell.text)
        assert self.watch(TIMEOUT_S, lambda: text in shell.text[begin:]), shell.text


def play(one: Recorder) -> None:
    """Play the minute."""
    assert one.watch(TIMEOUT_S, lambda: all(shell.text.endswith(PROMPT) for shell in one.shells))
    one.frames.clear()  # the picture begins with both prompts
    one.type(0, f'tiller exec "{TASK}"')
    one.sees(0, "The test expects")
    one.type(1, "tiller daemon status | head -1")
    one.sees(1, "pid")
    [pid] = re.findall(r"pid (\d+)", one.shells[1].text)
    one.type(1, f"kill -9 {pid}")
    one.watch(LOOK_S)
    one.type(1, "tiller attach last")
    one.sees(1, "n reject")
    one.watch(2 * LOOK_S)
    one.type(1, "once", "» ")
    one.sees(1, "next task")
    one.watch(LOOK_S)
    os.write(one.shells[1].master, b"\x03")  # leaves `attach`
    for line in (
        "git diff --stat",
        "tiller revert last",
        "git status --short",
        "tiller unrevert last",
        "git diff --stat",
    ):
        one.type(1, line)
        one.watch(LOOK_S)


def main(picture: Path) -> None:
    """Record, and write the picture."""
    with tempfile.TemporaryDirectory(prefix="", dir="/tmp") as name:
        assert len(name) == len(SHOWN_AS)
        _prepare(Path(name))
        one = Recorder(Path(name))
        try:
            play(one)
        finally:
            one.close()
    picture.write_text(film(one.frames, TITLES, PAUSE_MAX_S), encoding="utf-8")


def _prepare(home: Path) -> None:
    """Make a repository, the model's script and the configuration."""
    for name, text in PROJECT.items():
        path = home / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (home / "scripts").mkdir()
    (home / "scripts/repair.json").write_text(json.dumps(script()))
    config = home / ".config/tiller/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'resume = "auto"\n{configuration(str(home / "scripts"))}')
    git = ("git", "-c", "user.name=Charlie", "-c", "user.email=charlie@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "Add a discount")):
        subprocess.run([*git, *words], cwd=home / "shop", check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/minute.svg")
