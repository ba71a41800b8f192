"""A test run that waits for ever, until `test_contained.py` kills it; it tests nothing of tiller.

`LEFT_BEHIND` names a directory, and marks the environment of every process that the run starts.
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
