"""Nothing that a test started outlives a run of the tests that is ended by a signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.contained import CONTAINED
from support.daemon import marked

LEFT_BEHIND = Path(__file__).parent / "support" / "left_behind.py"
TIMEOUT_S = 60.0
STARTED_MIN = 5
"""Two shells and three that sleep; the daemon has helpers too."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
    pytest.mark.nightly,
]


class Run:
    """A run of tests that started processes and then hangs. `pytest` is the process of the test."""

    def __init__(self, place: Path, *options: str) -> None:
        self.place = place
        self.mark = f"LEFT_BEHIND={place}"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        variables = {**os.environ, "LEFT_BEHIND": str(place)}
        variables.pop(CONTAINED, None)
        for name in list(variables):
            if name.startswith("PYTEST_"):
                del variables[name]
        with (place / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [*command, LEFT_BEHIND],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=variables,
                cwd=LEFT_BEHIND.parents[2],
            )
        self.pytest = 0
        self.until(self._is_ready)

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait until something has happened: nobody reports it."""
        deadline = time.monotonic() + TIMEOUT_S
        while not happened():
            assert time.monotonic() < deadline, (self.place / "output").read_text()
            time.sleep(0.02)

    def alive(self) -> set[int]:
        """What runs of all that it has started, and itself."""
        return marked(self.mark)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, (self.place / "output").read_text()
        for ready in self.place.glob("ready *"):
            self.pytest = int(ready.name.removeprefix("ready "))
        return bool(self.pytest) and len(self.alive()) > STARTED_MIN


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a run of tests; what is left of it is killed."""
    made: list[Run] = []

    def make(*options: str) -> Run:
        made.append(Run(tmp_path, *options))
        return made[-1]

    yield make
    for pid in set[int]().union(*(run.alive() for run in made)):
        os.kill(pid, signal.SIGKILL)
    for run in made:
        run.process.wait()


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGTERM, "0"),
        (signal.SIGINT, "0"),
        (signal.SIGKILL, "0"),
        (signal.SIGTERM, "1"),
        (signal.SIGKILL, "1"),
    ],
)
def test_a_signal_ends_the_run_and_all_that_its_tests_started(
    new_run: Callable[..., Run], number: signal.Signals, workers: str
) -> None:
    run = new_run("-n", workers)
    run.process.send_signal(number)
    run.process.wait(TIMEOUT_S)
    run.until(lambda: not run.alive())
    if number != signal.SIGKILL and workers == "0":
        assert (run.place / "torn down").exists(), (run.place / "output").read_text()


def test_a_kill_of_the_very_process_that_runs_the_test_leaves_nothing_either(
    new_run: Callable[..., Run],
) -> None:
    run = new_run("-n", "0")
    assert run.pytest != run.process.pid
    os.kill(run.pytest, signal.SIGKILL)
    assert run.process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
    run.until(lambda: not run.alive())
