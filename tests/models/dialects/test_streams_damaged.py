"""Recorded streams of every wire with damage at random: an answer that makes sense, or an error.

`scripts/soak/decoders.py` does the same for long.
"""

import os
from random import Random

import pytest

from support.damage import meet
from support.each import each
from support.streams import STREAMS

MUTATIONS = 60
"""Of each stream; some three thousand in all."""

SEED = int(os.environ.get("TEST_SEED", "1"))


@each("name", STREAMS)
@pytest.mark.promise("B47")
def test_no_damage_makes_a_decoder_raise_anything_but_a_model_error(name: str) -> None:
    for number in range(MUTATIONS):
        seed = f"{SEED} {name} {number}"
        try:
            meet(name, Random(seed))
        except BaseException as error:
            raise AssertionError(f"damage of seed {seed!r}") from error
