"""Starts the daemon in the background, with its output in a file, and waits until it listens.

If several frontends start one at the same time, the daemon's lock lets one win. The other daemons
exit at once, and every frontend connects to the winner.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tiller_client.errors import StartFailed
from tiller_client.runtime import is_listening
from tiller_protocol.places import DAEMON_OUTPUT_FILE, Places

START_DEADLINE_S = 15.0
"""Longest wait for a new daemon; it usually takes about half a second."""

POLL_S = 0.02
SPAWN_AGAIN_S = 1.0
"""The loser of a race exits with status 0. If no daemon listens after this, start another."""

OUTPUT_LINES_SHOWN = 8
OUTPUT_TAIL_BYTES = 16 * 1024

DAEMON_COMMAND = (sys.executable, "-P", "-m", "tiller_daemon")
"""`-P` keeps Python from running a directory of that name in the current directory instead."""

_children: list[subprocess.Popen[bytes]] = []
"""The daemons that this process started. Python warns if a handle is dropped while its process is
running, as a daemon is meant to be."""


def start_daemon(places: Places, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a daemon and return once one listens on its socket.

    Raises `StartFailed` with the last lines of its output. The process has its own process session
    and outlives this one; it need not be waited for.
    """
    output = places.state / DAEMON_OUTPUT_FILE
    for directory in (*reversed(places.state.parents), places.state):
        directory.mkdir(exist_ok=True, mode=0o700)
    offset = output.stat().st_size if output.exists() else 0
    deadline = time.monotonic() + START_DEADLINE_S
    process = _spawn(output, environ)
    ended_at: float | None = None
    while not is_listening(places.runtime):
        now = time.monotonic()
        if now > deadline:
            raise StartFailed(
                f"the daemon did not start within {START_DEADLINE_S:g} s; "
                f"the end of {output}:\n{_tail(output, offset)}"
            )
        if process.poll():
            raise StartFailed(f"the daemon could not start; its output:\n{_tail(output, offset)}")
        if process.returncode == 0:
            ended_at = ended_at or now
            if now - ended_at > SPAWN_AGAIN_S:
                process, ended_at = _spawn(output, environ), None
        time.sleep(POLL_S)
    return process


def last_lines(path: Path, count: int, offset: int = 0) -> str:
    """The last `count` lines of a file after byte `offset`; empty if there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - OUTPUT_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-count:])


def _spawn(output: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    variables = dict(environ)
    if home := variables.get("TILLER_HOME"):
        variables["TILLER_HOME"] = str(Path(home).absolute())
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            DAEMON_COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env=variables,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    _children[:] = [child for child in _children if child.poll() is None] + [process]
    return process


def _tail(output: Path, offset: int) -> str:
    return last_lines(output, OUTPUT_LINES_SHOWN, offset) or "(nothing)"
