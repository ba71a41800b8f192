"""The memory of the process: what the allocator and the garbage collector do with it."""

import ctypes
import gc
from contextlib import suppress

GC_THRESHOLDS = (20_000, 10, 500)
"""Rarely all objects, as streams make many small ones and few cycles; never very many at once.

A collection of the middle generation stops everything for up to 0.5 us for each of its 200,000
objects. With a million it took 380 ms while sessions were loaded. With 50,000 a thousand turns at
once took a tenth more CPU time.
"""

M_MMAP_THRESHOLD = -3
"""From `malloc.h`."""

LARGE_BYTES = 1024 * 1024
"""Blocks of this size or larger are mapped separately and returned to the system when freed."""


def tune_memory() -> None:
    """Return large blocks to the system, and exclude permanent objects from garbage collection.

    With its default settings glibc keeps freed blocks after the first large one, separately for
    each thread of nng: 80 MB and more.
    """
    with suppress(AttributeError):  # other C libraries do not have this function
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
