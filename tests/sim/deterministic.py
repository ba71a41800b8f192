"""trio from a seed: a clock that jumps, and a scheduler whose order the seed decides (T18)."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import trio
import trio.testing
from trio._core import _run

T = TypeVar("T")


def run_from_seed(main: Callable[[], Awaitable[T]], seed: int) -> T:
    """Run `main` so that the same seed gives the same interleaving.

    Uses two private names of trio; `test_replay` shows that they still do what they did.
    """
    before, before_random = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r
    _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r = True, Random(seed)
    try:
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r = before, before_random
