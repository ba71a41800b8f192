"""What all tests share: the daemon's own log lines go nowhere, so that a run reads quietly.

And which tests go to the same worker: those that judge one batch of simulated programs.
"""

import re

import pytest
import structlog
from structlog.typing import EventDict, WrappedLogger
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

JUDGES_A_BATCH = re.compile(r"tests/sim/test_guarantees\w*\.py::.*\[(\d+)\]$")


def _drop(_logger: WrappedLogger, _method: str, _event: EventDict) -> EventDict:
    raise structlog.DropEvent


structlog.configure(processors=[_drop], cache_logger_on_first_use=False)


class _Together(LoadScopeScheduling):
    """Gives each test to the next worker that is free, and a batch's tests to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        batch = JUDGES_A_BATCH.search(nodeid)
        return f"batch {batch[1]}" if batch else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Play each batch once; the marker `xdist_group` does nothing with pytest 9."""
    return _Together(config, log) if config.getvalue("dist") == "load" else None
