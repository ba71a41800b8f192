"""Measures where a `bash` call spends its time: judging, making its level, running in it.

The rows take turns in one process, so that other load on the machine affects them alike. A row with
a sandbox includes making it. To measure as an ordinary user: `setpriv --reuid 1000 --regid 1000
--clear-groups env HOME=/dev/shm/u TMPDIR=/dev/shm/u python scripts/bench/sandbox.py`.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "daemon"), str(ROOT / "protocol")]

from tiller_daemon.config import SandboxPolicy  # noqa: E402 - found there
from tiller_daemon.policy.rules import decide  # noqa: E402
from tiller_daemon.policy.shell.command_line import parse  # noqa: E402
from tiller_daemon.sandbox.base import WrappedCommand  # noqa: E402
from tiller_daemon.sandbox.detect import bubblewrap_program, find_sandbox  # noqa: E402
from tiller_daemon.sandbox.level import SandboxLevel  # noqa: E402
from tiller_daemon.sandbox.sandboxes import Sandboxes  # noqa: E402
from tiller_daemon.session.calls.command_paths import further_requirements  # noqa: E402
from tiller_daemon.tools.commands.bash import BASH, BashArguments  # noqa: E402

COMMAND = "git status --short && ls -la src | head -20"
NOTHING = ["bash", "-c", "true"]


def judged(text: str, workspace: Path) -> None:
    """Judge a call as the daemon does: find its requirements, then decide about them twice."""
    parse.cache_clear()
    requirements = BASH.requirements(BashArguments(text), workspace)
    requirements = (*requirements, *further_requirements(requirements, workspace, lambda _: False))
    decide(requirements, (), "ask")
    decide(requirements, (), "ask")


def timed(do: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time of `do`, and the CPU time of this process and its children, in ms."""
    before, began = _cpu_s(), time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1e3, (_cpu_s() - before) * 1e3


def _cpu_s() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def run(arguments: Sequence[str], descriptors: Sequence[int] = ()) -> None:
    """Run a command, which must succeed."""
    done = subprocess.run(
        [*arguments], stdin=subprocess.DEVNULL, check=False, pass_fds=tuple(descriptors)
    )
    if done.returncode:
        raise SystemExit(f"exit status {done.returncode} of {arguments}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    count = parser.parse_args().count
    found = find_sandbox(sys.platform)
    if found.sandbox is None:
        raise SystemExit(f"this machine has no sandbox to measure: {found.problem}")
    with tempfile.TemporaryDirectory() as directory:
        workspace, spill = Path(directory).resolve() / "w", Path(directory).resolve() / "spill"
        spill.mkdir()
        subprocess.run(["git", "init", "-q", str(workspace)], check=True)
        (workspace / "src").mkdir()
        sandboxes = Sandboxes(lambda: found, Path.home(), os.environ)

        def make(level: SandboxLevel, execute: Callable[[WrappedCommand], None]) -> None:
            sandbox = sandboxes.make(level, SandboxPolicy(), workspace, spill)
            assert sandbox is not None
            with sandbox.wrap(NOTHING) as wrapped:
                execute(wrapped)

        def run_in(level: SandboxLevel) -> Callable[[], None]:
            return lambda: make(level, lambda one: run(one.arguments, one.descriptors))

        program = bubblewrap_program() or "bwrap"
        least = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        least += ["--unshare-pid", "--unshare-ipc", "--unshare-net", "--", *NOTHING]
        rows: dict[str, Callable[[], object]] = {
            "judging the command": lambda: judged(COMMAND, workspace),
            "making the sandbox for builds": lambda: make(SandboxLevel.BUILD, lambda _: None),
            "bash alone": lambda: run(NOTHING),
            "bash in the least of sandboxes": lambda: run(least),
            "bash in the read-only sandbox": run_in(SandboxLevel.READ_ONLY),
            "bash in the sandbox for builds": run_in(SandboxLevel.BUILD),
            "bash in the session's": run_in(SandboxLevel.SESSION),
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        for _ in range(count):
            for name, do in rows.items():
                figures[name].append(timed(do))
    print(f"{found.sandbox.name}, uid {os.geteuid()}, load {os.getloadavg()[0]:.1f}")
    for name, taken in figures.items():
        wall, cpu = ([one[part] for one in taken] for part in (0, 1))
        print(f"{name:31} {statistics.median(wall):6.2f} ms", end=", ")
        print(f"best {min(wall):6.2f}, CPU {statistics.fmean(cpu):6.2f} ms (n = {count})")


if __name__ == "__main__":
    main()
