"""Batches of simulated programs, each played once for all tests that judge it."""

import gc

import pytest

from sim.batches import Batch, batches, play_batch


@pytest.fixture(scope="session", params=batches())
def batch(request: pytest.FixtureRequest) -> Batch:
    """Return the outcome of a batch of programs."""
    # Free the previous batch, as its 85 MB would make each fork of this worker slower.
    gc.collect()
    return play_batch(request.param)
