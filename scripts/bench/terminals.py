"""Compares `tiller chat` with codex, opencode and pi in one run with one model server.

    npm install --prefix P @openai/codex opencode-ai @mariozechner/pi-coding-agent
    .venv/bin/python scripts/bench/terminals.py --peers P/node_modules

Each round starts every agent once on a pseudo-terminal of 120 by 40, in a home that the agent has
used before. It measures the time from the start to the first key on the screen; from a key to the
screen while an answer streams 1,000 pieces a second; the CPU time of such an answer without typing;
and the memory of all processes afterwards. The terminal reads output at once. A key is a letter
that appears nowhere else, so it counts as shown when its bytes are written.

CPU time and memory include all processes that an agent has started, also its daemon. The daemons
of tiller and codex already run before the measurement, as in daily use.
"""

import argparse
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Self

from prose_server import BEGIN, END
from terminal_agents import Agent, agents_in, variables_of

ROOT = Path(__file__).parents[2]
ROUNDS = 3
PIECES, PER_SECOND = 5000, 1000
SIZE = (40, 120)
"""Rows and columns of the terminal."""

LETTERS = [chr(point) for point in (*range(0x3B1, 0x3CA), *range(0x561, 0x587))]
"""Small Greek and Armenian letters, each one column wide, which no agent's screen shows."""

PROBE_S, KEY_GAP_S, TYPING_S = 0.02, 0.03, 0.05
"""Seconds between two keys: before the first is seen, while an answer streams, in a prompt."""

SETTLE_S = 0.5
"""A pause before a prompt is sent, as some agents take fast keys for a paste."""

LOST_S, TIMEOUT_S = 2.0, 60.0
"""Seconds after which a key counts as lost, and an agent as broken."""

BACKSPACE = "\x7f"
ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
}
"""The queries of programs and a terminal's answers."""


@dataclass
class Figures:
    """One agent's figures: times in seconds, CPU for 1,000 pieces, memory in bytes."""

    starts: list[float] = field(default_factory=list)
    keys: list[float] = field(default_factory=list)
    lost: int = 0
    cpus: list[float] = field(default_factory=list)
    memories: list[int] = field(default_factory=list)


class Terminal:
    """A program on a pseudo-terminal that does not echo."""

    def __init__(self, command: list[str], cwd: Path, variables: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        modes = termios.tcgetattr(slave)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        termios.tcsetwinsize(slave, SIZE)
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=variables,
            start_new_session=True,
        )
        os.close(slave)
        self._tail = b""
        self.ended = False
        """Whether the end of the answer has been seen since the last prompt."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGHUP)
        try:
            self.process.wait(LOST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def read(self, until: float, *wanted: str) -> str | None:
        """Read until a wanted letter is written and return it; return None after `until`."""
        letters = {letter.encode(): letter for letter in wanted}
        while (left := until - time.perf_counter()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                break
            data = self._tail + os.read(self._master, 1 << 16)
            for query, answer in ANSWERS.items():
                if query in data:
                    os.write(self._master, answer)
            self.ended = self.ended or END.encode() in data
            found = next((letter for code, letter in letters.items() if code in data), None)
            self._tail = data[-1:] if data[-1] >= 0xC0 or data[-1] == 0x1B else b""
            if found:
                return found
        return None

    def see_end(self) -> None:
        """Wait for the end of the answer, unless it has been seen."""
        if not self.ended and not self.read(time.perf_counter() + TIMEOUT_S, END):
            raise SystemExit(f"{self.process.args}: no end of the answer in {TIMEOUT_S:.0f} s")

    def ask(self, prompt: str) -> None:
        """Type a prompt as a person does, send it, and return when the answer has begun.

        Press Enter again while nothing comes, as some agents take the first for part of a paste.
        """
        self.ended = False
        for key in prompt:
            self.press(key)
            self.read(time.perf_counter() + TYPING_S)
        self.read(time.perf_counter() + SETTLE_S)
        for _ in range(int(TIMEOUT_S / LOST_S)):
            self.press("\r")
            if self.read(time.perf_counter() + LOST_S, BEGIN):
                return
        raise SystemExit(f"{self.process.args}: no answer to {prompt!r}")


def _processes(home: Path) -> list[int]:
    """Return all processes that use a home, including those that have left their terminal."""
    wanted = f"HOME={home}".encode()
    found: list[int] = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def _cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def _memory(pids: list[int]) -> int:
    """Return the memory of the processes in bytes, and count shared memory once."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def _wait_for_first_key(terminal: Terminal) -> float:
    """Type until a key is seen, delete the keys, and return the seconds since the start."""
    for number in range(int(TIMEOUT_S / PROBE_S)):
        letters = LETTERS[: number % len(LETTERS) + 1]
        terminal.press(letters[-1])
        if terminal.read(time.perf_counter() + PROBE_S, *letters):
            took = time.perf_counter() - terminal.began
            terminal.read(time.perf_counter() + SETTLE_S)
            terminal.press(BACKSPACE * (number + 1))
            terminal.read(time.perf_counter() + SETTLE_S)
            return took
    raise SystemExit(f"{terminal.process.args}: shows no key")


def _type_while_streaming(terminal: Terminal, figures: Figures) -> None:
    """Type one key after the other until the answer's end is seen."""
    number = 0
    while not terminal.ended:
        letter = LETTERS[number % len(LETTERS)]
        began = time.perf_counter()
        terminal.press(letter)
        seen = terminal.read(began + LOST_S, letter)
        figures.keys.append(time.perf_counter() - began)
        figures.lost += seen is None
        number += 1
        if number % len(LETTERS) == 0:
            terminal.press(BACKSPACE * len(LETTERS))
        terminal.read(time.perf_counter() + KEY_GAP_S)
    terminal.read(time.perf_counter() + SETTLE_S)
    terminal.press(BACKSPACE * len(LETTERS))


def measure(agent: Agent, home: Path, work: Path, url: str, figures: Figures) -> None:
    """Measure one round of an agent."""
    variables = variables_of(home) | agent.prepare(home, url)
    with Terminal(agent.command, work, variables) as terminal:
        figures.starts.append(_wait_for_first_key(terminal))
        terminal.ask("go")
        _type_while_streaming(terminal, figures)
        terminal.read(time.perf_counter() + SETTLE_S)
        pids = _processes(home)
        before = _cpu_s(pids)
        terminal.ask("again")
        terminal.see_end()
        terminal.read(time.perf_counter() + SETTLE_S)
        figures.cpus.append((_cpu_s(pids) - before) * 1000 / PIECES)
        figures.memories.append(_memory(pids))


@contextmanager
def _model_server() -> Iterator[str]:
    script = Path(__file__).with_name("prose_server.py")
    command = [sys.executable, str(script), str(PIECES), str(PER_SECOND)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.terminate()


def _warm(agent: Agent, home: Path, work: Path, url: str) -> None:
    """Start an agent once before it is measured, as daily use is not a first start."""
    variables = variables_of(home) | agent.prepare(home, url)
    with Terminal(agent.command, work, variables) as terminal:
        _wait_for_first_key(terminal)
        terminal.ask("hello")
        terminal.see_end()


def _end(home: Path) -> None:
    """End the processes that an agent has left running."""
    for pid in _processes(home):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    end = time.perf_counter() + LOST_S
    while _processes(home):
        if time.perf_counter() > end:
            for pid in _processes(home):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(PROBE_S)


def _print(figures: dict[str, Figures]) -> None:
    print("| | start to first key | key to screen, median | p99 | lost | CPU of 1,000 | memory |")
    print("|---|---|---|---|---|---|---|")
    for name, of in figures.items():
        keys = sorted(of.keys)
        cells = [
            f"{median(of.starts) * 1000:.0f} ms",
            f"{median(keys) * 1000:.1f} ms ({len(keys)})",
            f"{keys[int(len(keys) * 0.99)] * 1000:.1f} ms",
            str(of.lost),
            f"{median(of.cpus):.2f} s",
            f"{median(of.memories) / 1e6:.0f} MB",
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=Path, help="node_modules with the other agents")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", help="names of agents, separated by commas")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else None
    agents = [a for a in agents_in(options.peers) if wanted is None or a.name in wanted]
    figures = {agent.name: Figures() for agent in agents}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, _model_server() as url:
        top = Path(directory)
        work = top / "work"
        work.mkdir()
        subprocess.run(["git", "init", "-q", str(work)], check=True)
        try:
            for agent in agents:
                _warm(agent, top / agent.name, work, url)
            for number in range(options.rounds):
                for agent in agents if number % 2 == 0 else reversed(agents):
                    measure(agent, top / agent.name, work, url, figures[agent.name])
                    print(f"# round {number + 1}, {agent.name}", file=sys.stderr)
        finally:
            for agent in agents:
                _end(top / agent.name)
    _print(figures)


if __name__ == "__main__":
    main()
