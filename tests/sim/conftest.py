"""The batches of programs, each played once for all tests that judge it."""

import gc

import pytest

from sim.batches import Batch, batches, play_batch


@pytest.fixture(scope="session", params=batches())
def batch(request: pytest.FixtureRequest) -> Batch:
    """What came of some programs."""
    # The batch before is garbage by now: 85 MB, which would make each fork of this worker slower.
    gc.collect()
    return play_batch(request.param)
