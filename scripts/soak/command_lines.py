"""Judges the command lines of the shell scripts that are installed on this machine.

Nobody wrote them for this: they show how much of what people write is understood, and how fast.
What is judged to only read is printed with `--reads`, for somebody to look for what does not; with
`--run` it is run in a sandbox, and what it has changed there is printed.
"""

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "daemon"))

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.policy.shell_commands import parse_command
from tiller_daemon.workspace.sandbox import Confiner
from tiller_daemon.workspace.sandbox_search import find_sandbox

PLACES = ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/share", "/etc", "/var/lib/dpkg/info")
SHEBANG = re.compile(rb"#! ?/(?:usr/)?bin/(?:env )?(?:ba|da)?sh\b")
CHARS_MIN, CHARS_MAX = 3, 400
PIECE = re.compile(
    r"\b(?:then|do|else|in)$|[|&\\({]$|^(?:fi|done|else|esac|elif|then|do)\b|^[|&})]"
)
"""Lines that are a piece of a statement."""


def command_lines(places: tuple[str, ...] = PLACES) -> Iterator[str]:
    """Every line of every script that can stand for itself, each once."""
    seen: set[str] = set()
    for place in places:
        for parent, _, names in os.walk(place):
            for name in sorted(names):
                for line in _lines(Path(parent, name)):
                    if line not in seen:
                        seen.add(line)
                        yield line


def _lines(path: Path) -> Iterator[str]:
    try:
        if path.is_symlink() or not path.is_file():
            return
        with path.open("rb") as stream:
            data = stream.read(64)
            if not SHEBANG.match(data):
                return
            data += stream.read(1 << 20)
    except OSError:
        return
    for line in data.decode(errors="replace").splitlines():
        text = line.strip()
        if CHARS_MIN <= len(text) <= CHARS_MAX and text[0] != "#" and not PIECE.search(text):
            yield text


def is_valid(text: str) -> bool:
    """Whether bash takes it for whole statements."""
    done = subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False)
    return done.returncode == 0 and not done.stderr


def run_all(lines: list[str]) -> list[str]:
    """Run lines one after the other in a sandbox; returns those that changed something there."""
    found = find_sandbox(sys.platform)
    if found.sandbox is None:
        raise SystemExit(f"no sandbox: {found.problem}")
    changing: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory).resolve()
        confiner = Confiner(lambda: found, Path.home(), {}, temporary=())
        confined = confiner.confined(SandboxPolicy(), workspace, workspace / "none")
        assert confined is not None
        (workspace / "f").write_text("text\n")
        for line in lines:
            before = _state(workspace)
            with confined.around(["timeout", "2", "bash", "-c", line]) as enclosed:
                subprocess.run(
                    enclosed.arguments,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                    pass_fds=enclosed.descriptors,
                )
            if _state(workspace) != before:
                changing.append(line)
    return changing


def _state(workspace: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(path), path.lstat().st_size, path.lstat().st_mode) for path in workspace.rglob("*")
    )


def main() -> None:
    """Judge and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reads", action="store_true", help="print what only reads")
    parser.add_argument("--doubts", action="store_true", help="print why others are uncertain")
    parser.add_argument("--run", action="store_true", help="run what only reads in a sandbox")
    arguments = parser.parse_args()
    lines = sorted(command_lines())
    random.Random(arguments.seed).shuffle(lines)
    chosen: list[str] = []
    for line in lines:
        if is_valid(line):
            chosen.append(line)
        if len(chosen) == arguments.count:
            break
    took_us: list[float] = []
    certain = 0
    reads: list[str] = []
    doubts: dict[str, int] = {}
    for line in chosen:
        began = time.perf_counter()
        parsed = parse_command(line)
        took_us.append((time.perf_counter() - began) * 1e6)
        certain += parsed.certain
        if parsed.only_reads:
            reads.append(line)
        if not parsed.certain:
            doubts[parsed.doubt] = doubts.get(parsed.doubt, 0) + 1
    if arguments.reads:
        print("\n".join(reads))
    if arguments.run:
        changing = run_all(reads)
        print(f"{len(reads)} were run, {len(changing)} changed something", *changing, sep="\n  ")
    count = len(chosen)
    print(f"{count} of {len(lines)} lines: {certain} taken apart ({certain / count:.0%}), of which")
    print(f"{len(reads)} only read; the others are asked about.")
    print(f"{statistics.median(took_us):.0f} us each")
    if arguments.doubts:
        for doubt, number in sorted(doubts.items(), key=lambda one: -one[1])[:20]:
            print(f"{number:6} {doubt}")


if __name__ == "__main__":
    main()
