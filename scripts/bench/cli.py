#!/usr/bin/env python3
"""Measures how long runs of the thin client take: `--help`, one request, one empty turn.

Run it with the project's Python. It first compiles the modules, as an installation does, and starts
its own daemons with a scripted model in a directory that it removes. For each command it prints the
median, best and worst time, and the median CPU time of all processes that have ended, which a busy
machine hardly changes. All are in milliseconds. The target for `--help` is 100 ms.
"""

import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 20
ROOT = Path(__file__).parents[2]
TILLER = (sys.executable, "-m", "tiller_client")
STOP = [*TILLER, "daemon", "stop"]
SCRIPT = {"steps": [{"parts": [{"type": "text", "text": "Hello."}], "repeat": True}]}
CONFIGURATION = 'model = "bench/hello"\n[providers.bench]\napi = "scripted"\nscripts = "{}"\n'


def main() -> None:
    """Measure each command and print a table."""
    compile_project()
    with tempfile.TemporaryDirectory(prefix="tiller-bench-") as directory:
        root = Path(directory)
        (root / "config").mkdir()
        (root / "hello.json").write_text(json.dumps(SCRIPT))
        (root / "config" / "config.toml").write_text(CONFIGURATION.format(root))
        environment = os.environ | {"TILLER_HOME": str(root)}
        print(f"{'command':<28}{'median':>8}{'best':>8}{'worst':>8}{'cpu':>8}  ms, n = {ROUNDS}")
        measure("python -c pass", [sys.executable, "-c", "pass"], environment)
        measure("tiller --help", [*TILLER, "--help"], environment)
        measure("tiller exec --help", [*TILLER, "exec", "--help"], environment)
        begun = time.perf_counter()
        run([*TILLER, "daemon", "start"], environment)
        print(f"{'tiller daemon start (once)':<28}{(time.perf_counter() - begun) * 1000:8.0f}")
        try:
            measure("tiller ls", [*TILLER, "ls"], environment)
            measure("tiller exec (one answer)", [*TILLER, "exec", "hello"], environment)
        finally:
            run(STOP, environment)
        measure("the same, with no daemon", [*TILLER, "exec", "hello"], environment, STOP)


def compile_project() -> None:
    """Compile the project's modules, even where Python is told not to write bytecode."""
    for name in ("client", "daemon", "protocol"):
        compileall.compile_dir(ROOT / name, quiet=1)


def measure(
    name: str, command: list[str], environment: dict[str, str], after: list[str] | None = None
) -> None:
    """Run `command` `ROUNDS` times and print its times; run `after`, unmeasured, after each."""
    taken_ms: list[float] = []
    cpu_ms: list[float] = []
    for _ in range(ROUNDS):
        begun, cpu_begun = time.perf_counter(), children_cpu_s()
        run(command, environment)
        taken_ms.append((time.perf_counter() - begun) * 1000)
        cpu_ms.append((children_cpu_s() - cpu_begun) * 1000)
        if after:
            run(after, environment)
    median = statistics.median(taken_ms)
    spread = f"{median:8.0f}{min(taken_ms):8.0f}{max(taken_ms):8.0f}"
    print(f"{name:<28}{spread}{statistics.median(cpu_ms):8.0f}")


def children_cpu_s() -> float:
    """Return the CPU seconds of all child processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: list[str], environment: dict[str, str]) -> None:
    """Run one process, which must succeed, and hide its output."""
    subprocess.run(command, env=environment, cwd="/", check=True, capture_output=True)


if __name__ == "__main__":
    main()
