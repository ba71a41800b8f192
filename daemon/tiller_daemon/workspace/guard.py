"""The guard: a small child that ends every command's processes when the daemon is killed.

It holds the reading end of a pipe whose writing end only the daemon has. An orderly stop says so
through the pipe; the end of the file without a word means that the daemon is gone. What the guard
does not find (an orphan that cleared its environment) is left to the system.
"""

import os
import subprocess
from types import TracebackType
from typing import Final

from tiller_daemon.workspace.environment import DAEMON_MARKER
from tiller_daemon.workspace.tree import disown, own

ROUNDS_MAX: Final = 20
"""How often the guard looks again for processes that were born while it killed."""

_ORDERLY: Final = b"done\n"

_SCRIPT: Final = """
read -r word && exit 0
round=0
while [ "$round" -lt "$2" ]; do
    found=$(grep -lF -e "$1" /proc/[0-9]*/environ 2>/dev/null)
    [ -n "$found" ] || exit 0
    for file in $found; do
        pid=${file#/proc/}
        kill -9 "${pid%/environ}" 2>/dev/null
    done
    round=$((round + 1))
done
"""


class Guard:
    """A running guard; use it as a context manager around the life of the daemon.

    Without `/proc` (macOS) the guard finds nothing and ends; the next start's sweep has to do.
    """

    def __init__(self, log_id: str) -> None:
        """Start the guard for what carries the marker of `log_id`."""
        mark = f"{DAEMON_MARKER}={log_id}"
        self._process: Final = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "tiller-guard", mark, str(ROUNDS_MAX)],
            cwd="/",
            env={"PATH": os.defpath},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        own(self._process.pid)

    def __enter__(self) -> "Guard":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send the guard away; call when no command runs any more. Takes a millisecond."""
        self._process.communicate(_ORDERLY)
        disown(self._process.pid)
