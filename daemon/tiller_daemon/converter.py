"""Runs one of our scripts on data from outside, in a separate process that may fail or crash.

The libraries that read HTML and PDF block the interpreter while they work. With hostile data they
may take much time and memory, or crash.
"""

import subprocess
import sys
from collections.abc import Mapping
from typing import Final

import trio

from tiller_daemon.isolation import isolated

CONVERT_S: Final = 15.0
"""How long a script may run. The largest page takes 2 s, and a PDF with 1,000 pages takes 10 s."""


async def convert(script: str, data: bytes, variables: Mapping[str, str]) -> bytes | None:
    """Run the script at a path with `data` as its input; return its output, or None if it failed.

    The script runs by its path, so it imports nothing of the daemon. It limits its own memory.
    It gets the `variables` that make no program load code.
    """
    with trio.move_on_after(CONVERT_S):
        done = await trio.run_process(
            [sys.executable, "-I", script],
            # The data is not in the arguments, because all users of the machine can see those.
            stdin=data,
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            deliver_cancel=_kill,
            env=isolated(variables),
        )
        return done.stdout if done.returncode == 0 else None
    return None


async def _kill(process: trio.Process) -> None:
    process.kill()
    await trio.lowlevel.checkpoint()
