"""The clock by which the kernel stamps files, for tests of what trusts stamps."""

import time
from pathlib import Path

from tiller_daemon import stamps


def wait_for_tick(place: Path) -> None:
    """Wait until a stamp of everything that has changed so far would be trusted.

    `place` is any directory on the filesystem in question.
    """
    scratch = place / ".clock"
    scratch.touch()
    changed_ns = scratch.stat().st_ctime_ns
    scratch.unlink()
    while time.time_ns() - changed_ns <= stamps.TICK_NS:
        time.sleep(0.001)
