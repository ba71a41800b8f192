"""Waits for the clock that stamps files, for tests of code that trusts stamps."""

import time
from pathlib import Path

from tiller_daemon import stamps


def wait_for_tick(place: Path) -> None:
    """Wait until the stamps of all files changed so far would be trusted.

    `place` is any directory on the filesystem in question.
    """
    scratch = place / ".clock"
    scratch.touch()
    changed_ns = scratch.stat().st_ctime_ns
    scratch.unlink()
    while time.time_ns() - changed_ns <= stamps.TICK_NS:
        time.sleep(0.001)
