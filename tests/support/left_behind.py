"""No test of tiller: what `test_contained.py` kills while it runs. It waits for ever.

`LEFT_BEHIND` is a directory, and the mark in the environment of all that it starts.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from support.daemon import Daemon

PLACE = Path(os.environ["LEFT_BEHIND"])
ORPHANS = "setsid sleep 1000 & ( sleep 1000 & ) ; sh -c 'trap \"\" TERM INT; sleep 1000' & wait"


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("d"))
    daemon.variables["LEFT_BEHIND"] = str(PLACE)
    with daemon:
        yield daemon
    (PLACE / "torn down").touch()


async def test_nothing_ends(daemon: Daemon) -> None:
    await trio.lowlevel.open_process(["bash", "-c", ORPHANS])
    (PLACE / f"ready {os.getpid()}").touch()
    await trio.sleep_forever()
