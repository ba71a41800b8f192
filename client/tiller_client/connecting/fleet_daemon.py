"""`--host fleet:box`: a daemon on another machine, over the fleet's NATS servers.

A process of its own, the link, connects to the servers and has the far daemon's sockets in a
private directory here (`fleet/link.py`). It serves all verbs of this user, and ends by itself some
minutes after the last one. So no verb imports the client for NATS.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tiller_client.connecting.linked import Address, LinkedDaemon
from tiller_client.connecting.runtime import check_runtime, lock_is_held, read_token
from tiller_client.errors import LinkLost, NoAnswer, NoDaemon, TillerError, UsageError
from tiller_protocol.places import FLEET_HOST, FLEET_PREFIX, Places

STATE_FILE = "link.json"
"""What a link tells verbs: a `LinkState`."""

OUTPUT_FILE = "link.log"

LINK_COMMAND = (sys.executable, "-P", "-m", "tiller_client.fleet.link_program")


class LinkState(NamedTuple):
    """What verbs need to know of a running link, or why it did not start."""

    home: str = ""
    """The user's home on the far machine; empty if the fleet does not know it."""
    problem: str = ""
    """Why the host can't be reached now; empty if it can."""
    is_usage: bool = False
    """Whether the user must change something first."""


class FleetDaemon(LinkedDaemon):
    """A daemon on another host of the fleet."""

    kind = "fleet"

    def __init__(self, destination: str, local: Places, label: str = "") -> None:
        """`destination` is `fleet:` and the host's name in the fleet; raises `UsageError`."""
        super().__init__(destination, local, label)
        self.name = destination.removeprefix(FLEET_PREFIX)
        """The host's name in the fleet."""
        if not re.search(FLEET_HOST, self.name):
            raise UsageError(
                f"{destination!r} names no host of a fleet: expected {FLEET_PREFIX} and a name of "
                "letters, digits, `-` and `_`"
            )
        self.restart = (
            "install the same version on both machines, then restart the daemon there: "
            "tiller daemon restart"
        )

    def run_there(self, words: Sequence[str]) -> int:
        """Refuse: a fleet carries sessions, not command lines."""
        raise UsageError(
            f"`tiller {words[0] if words else ''}` is about the machine itself, which can't be "
            f"managed over the fleet; log in to {self.name} and run it there"
        )

    def _use_link(self, connect: Callable[[], bool]) -> bool:
        state = self._running()
        if state is None or state.problem or not connect():
            return False
        self._address = self._address_of(state)
        return self._address is not None

    def _make_link(self, *, may_start: bool) -> Address:  # noqa: ARG002 - the gateway decides
        for find in (self._running, self._start):
            if state := find():
                if state.problem:
                    raise (UsageError if state.is_usage else LinkLost)(state.problem)
                if address := self._address_of(state):
                    return address
        raise LinkLost(f"the link to {self.name} has just ended")

    def _no_answer(self) -> TillerError:
        return NoAnswer(
            f"the link to {self.name} runs, but does not answer; see its log: "
            f"{self.places.runtime / OUTPUT_FILE}"
        )

    def _running(self) -> LinkState | None:
        """What a running link says, or `None` if none runs."""
        directory = self.places.runtime
        try:
            check_runtime(directory)
        except NoDaemon:
            return None
        return read_state(directory) if lock_is_held(directory) else None

    def _start(self) -> LinkState:
        """Start a link, and wait until it has reached the host or given up."""
        directory, quiet = self.places.runtime, subprocess.DEVNULL
        command = (*LINK_COMMAND, self.name, str(self.places.config), str(directory))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(directory / OUTPUT_FILE, flags, 0o600), "wb") as log:
            process = subprocess.Popen(
                command,
                stdin=quiet,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        # Python warns if a handle is dropped while its process is running.
        _started[:] = [one for one in _started if one.poll() is None] + [process]
        assert process.stdout
        with process.stdout as said:
            state = _decoded(said.readline())
        if state is None:
            raise LinkLost(
                f"the link to {self.name} could not start; see {directory / OUTPUT_FILE}"
            )
        return state

    def _address_of(self, state: LinkState) -> Address | None:
        """The address of a link, or `None` if it has just ended."""
        try:
            return Address(state.home, read_token(self.places.runtime))
        except NoDaemon:
            return None

    def home(self) -> str:
        """Return the user's home on the far machine; raises `UsageError` if it is not known."""
        if home := super().home():
            return home
        raise UsageError(
            f"the fleet does not say where your home directory on {self.name} is; name a directory "
            "there with an absolute path"
        )


_started: list["subprocess.Popen[bytes]"] = []
"""The links that this process has started."""


def read_state(directory: Path) -> LinkState | None:
    """Read what the link in a directory says, or return `None` if it says nothing yet."""
    try:
        return _decoded((directory / STATE_FILE).read_bytes())
    except OSError:
        return None


def encode_state(state: LinkState) -> bytes:
    """Encode a state as a line of JSON."""
    return json.dumps(state._asdict()).encode() + b"\n"


def _decoded(line: bytes) -> LinkState | None:
    try:
        return LinkState(**json.loads(line))
    except (ValueError, TypeError):
        return None
