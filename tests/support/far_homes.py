"""A home on this machine from which a host of a fleet is used; its links end with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from support.daemon import gone
from tiller_client.connecting.fleet_daemon import FleetDaemon
from tiller_client.connecting.runtime import daemon_pid, lock_holder
from tiller_protocol.places import Places, find_places

TIMEOUT_S = 45.0

Done = subprocess.CompletedProcess[str]


def end_link(host: str, local: Places) -> None:
    """Kill the link to a host of the fleet that this home has, if it has one."""
    if pid := lock_holder(FleetDaemon(f"fleet:{host}", local).places.runtime):
        os.kill(pid, signal.SIGKILL)
        gone(pid, timeout_s=TIMEOUT_S)


class FarHome:
    """A user's home with a table `[fleet]`, and the host `box` in `[hosts]`; a context manager."""

    def __init__(self, home: Path, fleet: str) -> None:
        self.home = home
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TILLER_HOME": str(home / "t"),
            "LANG": "C.UTF-8",
        }
        self._local = find_places(self.variables, sys.platform, os.getuid())
        self._local.config.mkdir(parents=True)
        self.configure(fleet)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_link()
        if daemon_pid(self._local):  # `--all` has started it
            assert self.tiller("daemon", "stop").returncode == 0

    def configure(self, fleet: str) -> None:
        """Write `config.toml` with this table `[fleet]`."""
        text = f'{fleet}\n[hosts]\nbox = "fleet:box"\n'
        (self._local.config / "config.toml").write_text(text)

    @property
    def places(self) -> Places:
        """The places of the daemon on `box`, as verbs here use them."""
        return FleetDaemon("fleet:box", self._local).places

    @property
    def link(self) -> int:
        """The pid of the link to `box`; 0 if none runs."""
        return lock_holder(self.places.runtime) or 0

    def end_link(self) -> None:
        """Kill the link to `box`, if there is one."""
        end_link("box", self._local)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start `tiller` with these words."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tiller_client", *words],
            env=self.variables,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tiller(self, *words: str) -> Done:
        """Run `tiller` with these words."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
            return Done(words, process.returncode, out, err)
