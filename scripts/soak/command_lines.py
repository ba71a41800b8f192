"""Judges the command lines of the shell scripts that are installed on this machine.

As nobody wrote these lines for tiller, they show how much real shell it understands, and how fast.
`--unasked` prints the lines that would run without a question. `--run` runs those lines and all of
`tests/policy`, each in its level in a hostile workspace, and prints what escapes.
"""

import argparse
import collections
import itertools
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "daemon"), str(ROOT / "protocol")]

import trio  # noqa: E402

from policy.questions import labelled  # noqa: E402
from policy.shell.attack_lines import ATTACKS  # noqa: E402 - found there
from policy.shell.bypasses_of_working import HELD_BYPASSES  # noqa: E402
from policy.shell.command_lines import BYPASSES, HONEST  # noqa: E402
from support.jail import bubblewrap_for, jail_of  # noqa: E402
from support.unasked_lines import Line, Watch, make_hostile, unasked  # noqa: E402
from tiller_daemon.policy.shell.command_line import parse  # noqa: E402

PLACES = ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/share", "/etc", "/var/lib/dpkg/info")
SHEBANG = re.compile(rb"#! ?/(?:usr/)?bin/(?:env )?(?:ba|da)?sh\b")
CHARS_MIN, CHARS_MAX = 3, 400
PIECE = re.compile(
    r"\b(?:then|do|else|in)$|[|&\\({]$|^(?:fi|done|else|esac|elif|then|do)\b|^[|&})]"
)
"""Matches lines that are only part of a statement."""


def command_lines(places: tuple[str, ...] = PLACES) -> Iterator[str]:
    """Yield each different line of the scripts that can stand by itself."""
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
    """Whether bash accepts the text as complete statements."""
    done = subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False)
    return done.returncode == 0 and not done.stderr


def all_lines_of_tests() -> Iterator[str]:
    """Yield the lines that the tests take from people and attackers."""
    for name in ("agent_commands.txt", "script_lines.txt"):
        yield from (line.text for line in labelled(name))
    yield from (*BYPASSES, *HELD_BYPASSES, *HONEST, *(attack.text for attack in ATTACKS))


async def run_all(lines: list[Line], who: str) -> int:
    """Run each line in its level, and return how many lines let something escape."""
    escaped = 0
    with jail_of() as jail:
        make_hostile(jail, lines)
        found = bubblewrap_for(jail.as_user(who), jail.root)
        if found.sandbox is None:
            raise SystemExit(f"no sandbox to run the lines in: {found.problem}")
        watch = Watch(jail, found)
        for line in lines:
            if got_out := await watch.run(line):
                escaped += 1
                print(f"{line.level.name} {line.text!r}: {', '.join(got_out)}", flush=True)
    return escaped


def main() -> None:
    """Judge the lines and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unasked", action="store_true", help="print lines that would run unasked")
    parser.add_argument(
        "--problems", action="store_true", help="print why lines were not understood"
    )
    parser.add_argument("--run", action="store_true", help="run lines that would run unasked")
    parser.add_argument("--who", choices=("root", "ordinary"), default="root", help="run as")
    arguments = parser.parse_args()
    lines = sorted(command_lines())
    random.Random(arguments.seed).shuffle(lines)
    chosen = list(itertools.islice(filter(is_valid, lines), arguments.count))
    took_us: list[float] = []
    plain = 0
    problems: collections.Counter[str] = collections.Counter()
    for line in chosen:
        began = time.perf_counter()
        parsed = parse(line)
        took_us.append((time.perf_counter() - began) * 1e6)
        plain += parsed.plain
        problems[parsed.problem] += 1
    free = unasked(chosen)
    understood = problems.pop("", 0)
    if arguments.unasked:
        print(*(f"{line.level.name:9} {line.text}" for line in free), sep="\n")
    if arguments.problems:
        print(*(f"{number:6} {problem}" for problem, number in problems.most_common()), sep="\n")
    count = len(chosen)
    print(f"{count} of {len(lines)} lines: {understood} understood, {plain} plain,", end=" ")
    print(f"{len(free)} run unasked; {statistics.median(took_us):.0f} us each")
    if arguments.run:
        free = unasked([*all_lines_of_tests(), *chosen])
        escaped = trio.run(run_all, free, arguments.who)
        print(f"{len(free)} were run as {arguments.who}, {escaped} let something escape")
        sys.exit(escaped > 0)


if __name__ == "__main__":
    main()
