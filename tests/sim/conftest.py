"""The batches of programs, each played once for all tests that judge it."""

import pytest

from sim.batches import Batch, batches, play_batch


@pytest.fixture(scope="session", params=batches())
def batch(request: pytest.FixtureRequest) -> Batch:
    """What came of some programs."""
    return play_batch(request.param)
