"""Hosts, gateways and the broker fail at random moments, from a seed."""

import os

import pytest

from fleet.world import World, check, play, simulate

FLEETS = int(os.environ.get("TILLER_FLEETS", "20"))
"""How many fleets are simulated."""


@pytest.mark.parametrize("seed", range(FLEETS))
def test_each_task_has_one_outcome_and_never_runs_twice_at_once(seed: int) -> None:
    async def main() -> None:
        world = World(seed)
        await play(world, tasks=12, faults=12)
        check(world)

    simulate(main())
