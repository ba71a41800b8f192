"""While there is something to guard, a guard runs."""

import os
import signal
import sys
from pathlib import Path

import pytest

from support.daemon import guards
from support.fleet import wait_until
from tiller_client.fleet.guard import Guard, clock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the process in /proc")


@pytest.mark.filterwarnings("ignore:subprocess .* is still running")  # as a gateway ends
def test_a_guard_that_was_killed_is_started_again_with_a_renewal(tmp_path: Path) -> None:
    guard = Guard(tmp_path)

    def renewed_guard_but(*others: int) -> int:
        wait_until(lambda: guard.renewed(clock() + 600) or guards(str(tmp_path)).difference(others))
        (found,) = guards(str(tmp_path)).difference(others)
        return found

    guard.watch("interrupt", "session")
    first = renewed_guard_but()
    os.kill(first, signal.SIGKILL)
    second = renewed_guard_but(first)
    os.kill(second, signal.SIGKILL)
