"""Exchanges two names again and again until its input ends; prints how often. Linux only."""

import ctypes
import os
import select
import sys

AT_FDCWD, RENAME_EXCHANGE = -100, 2
ROUND = 100

exchange = ctypes.CDLL(None, use_errno=True).renameat2
one, other = (os.fsencode(path) for path in sys.argv[1:])
swaps = 0
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(ROUND):
        if exchange(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE):
            raise OSError(ctypes.get_errno(), "renameat2")
    swaps += ROUND
print(swaps)
