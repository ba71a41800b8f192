"""Runs one of our scripts on data from outside, in a process of its own that the daemon survives.

The libraries that read HTML and PDF block the interpreter while they work, and hostile data may
make them take more time and memory, or crash.
"""

import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import trio

CONVERT_S: Final = 15.0
"""The largest page takes 2 s, a PDF of 1,000 pages 10 s."""


async def convert(script: str, data: bytes, variables: Mapping[str, str]) -> bytes | None:
    """Give `data` to the script at a path, and return what it prints; None if it failed.

    The script runs by its path, so it imports nothing of the daemon. It limits its own memory.
    `variables` are its environment.
    """
    with trio.move_on_after(CONVERT_S):
        done = await trio.run_process(
            [sys.executable, "-I", script],
            # Not in the arguments, which all users of the machine can see.
            stdin=data,
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            deliver_cancel=_kill,
            env=dict(variables),
        )
        return done.stdout if done.returncode == 0 else None
    return None


async def _kill(process: trio.Process) -> None:
    process.kill()
    await trio.lowlevel.checkpoint()
