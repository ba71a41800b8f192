"""What all tests share: the daemon's own log lines go nowhere, so that a run reads quietly.

Which tests go to the same worker: those that judge one batch of simulated programs. And that
nothing which a test started outlives the run, however it ends.
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


def _drop(_logger: WrappedLogger, _method: str, _event: EventDict) -> EventDict:
    raise structlog.DropEvent


structlog.configure(processors=[_drop], cache_logger_on_first_use=False)

# No test is about time: a machine with too much to do takes as long as it takes.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


class _Together(LoadScopeScheduling):
    """Gives each test to the next worker that is free, and a batch's tests to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        batch = JUDGES_A_BATCH.search(nodeid)
        return f"batch {batch[1]}" if batch else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Play each batch once; the marker `xdist_group` does nothing with pytest 9."""
    return _Together(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Begin again below a process that ends with the run whatever its tests have started."""
    if sys.platform == "linux" and contained.CONTAINED not in os.environ:
        os.environ[contained.CONTAINED] = "1"
        guard = [sys.executable, "-I", "-S", contained.__file__]
        os.execv(guard[0], [*guard, *sys.orig_argv])


def pytest_collection_finish() -> None:
    """Leave what is loaded by now, a million objects, to no collection of garbage any more."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Let SIGTERM end the run as Ctrl-C does, so that fixtures can stop what they have started."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.raise_signal(signal.SIGINT)
