"""Settings for all tests: the daemon's own log lines are dropped, so that the output stays short.

The tests of a file go to the same worker, so that they share its daemon. Nothing that a test has
started outlives the run, however the run ends.
"""

import gc
import os
import re
import signal
import sys
from types import FrameType

import hypothesis
import pytest
import structlog
from structlog.typing import EventDict, WrappedLogger
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from support import contained

JUDGES_A_BATCH = re.compile(r"tests/sim/test_guarantees\w*\.py::.*\[(\d+)\]$")

ASKS_VENDORS = re.compile(r".*/test_(\w+_sdk_agrees|hosted_tools|model_families)\.py")
"""Files that import the vendors' packages, which takes two seconds of CPU time in each worker."""


def _drop(_logger: WrappedLogger, _method: str, _event: EventDict) -> EventDict:
    raise structlog.DropEvent


structlog.configure(processors=[_drop], cache_logger_on_first_use=False)

# No test measures time, so a busy machine may take as long as it needs.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


class _Together(LoadScopeScheduling):
    """Gives each file to the next worker that is free, and a batch's tests to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        batch = JUDGES_A_BATCH.search(nodeid)
        if ASKS_VENDORS.match(nodeid):
            return "vendors"
        return f"batch {batch[1]}" if batch else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Start a file's daemon once, and play each batch once."""
    return _Together(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Restart the run below a process that kills, at its end, all that the tests have started."""
    if sys.platform == "linux" and contained.CONTAINED not in os.environ:
        os.environ[contained.CONTAINED] = "1"
        guard = [sys.executable, "-I", "-S", contained.__file__]
        os.execv(guard[0], [*guard, *sys.orig_argv])


def pytest_collection_finish() -> None:
    """Exempt the million objects that are loaded by now from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Let SIGTERM end the run as Ctrl-C does, so that fixtures can stop what they have started."""
    gc.disable()  # until the tests are loaded, of which nothing is garbage
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.raise_signal(signal.SIGINT)
