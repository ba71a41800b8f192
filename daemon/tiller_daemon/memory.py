"""Sets how the allocator and the garbage collector use the process's memory."""

import ctypes
import gc
from contextlib import suppress

GC_THRESHOLDS = (20_000, 10, 500)
"""The garbage collector's thresholds.

All objects are collected rarely, because streams make many small objects but few cycles. A
collection of the middle generation stops everything for up to 0.5 us for each of its 200,000
objects. With a million objects it took 380 ms while sessions were loaded. With 50,000 objects, a
thousand turns at once took a tenth more CPU time.
"""

M_MMAP_THRESHOLD = -3
"""The number of the option in `malloc.h`."""

LARGE_BYTES = 1024 * 1024
"""Blocks of at least this size are mapped separately, and returned to the system when freed."""


def tune_memory() -> None:
    """Return large blocks to the system, and exclude permanent objects from garbage collection.

    With its default settings, glibc keeps freed blocks after the first large block was freed, and
    does so separately for each of nng's threads. This takes 80 MB and more.
    """
    with suppress(AttributeError):  # other C libraries do not have this function
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
