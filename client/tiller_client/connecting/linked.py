"""What daemons on other machines have in common: a private directory here has their sockets.

A subclass makes the link to these sockets, through ssh or over the fleet.
"""

import os
import posixpath
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from tiller_client.connecting.runtime import check_runtime
from tiller_client.connecting.silence import Silence
from tiller_client.errors import LinkLost, TillerError
from tiller_protocol.places import Places

GREETING_S = 5.0
"""Longest wait for the greeting on a socket here, where a link accepts before the daemon does."""

TOKEN_S = 10.0
"""Longest wait for the token of a daemon that listens."""

LINK_DEADLINE_S = 600.0
"""How long to retry after a connection was lost, as in a train's tunnel or during a reboot."""

RETRY_S = 1.0

DIRECTORY_BYTES_MAX = 70
"""Longest path of the directory: ssh's socket has a path that is 19 bytes longer, and macOS allows
103 bytes."""


class Address(NamedTuple):
    """The user's home on the far machine, and the token for the sockets here."""

    home: str
    token: str


class LinkedDaemon(ABC):
    """A daemon on another machine, with the methods of `LocalDaemon`; for any thread."""

    greeting_s = GREETING_S
    token_deadline_s = TOKEN_S
    is_remote = True

    kind: ClassVar[str]
    """The kind of link, for the name of the directory."""
    restart: str
    """The advice on how to start a daemon of the same version as this program."""

    def __init__(self, destination: str, local: Places, label: str) -> None:
        """Do not connect yet; `local` are the user's places on this machine.

        `label` is the user's name for the `destination`, if there is one.
        """
        self.destination = destination
        self.host = label or destination
        self.program = f"tiller --host {self.host}"
        # The state stays on that machine; the state here belongs to another daemon.
        directory = _directory(local, self.kind, destination)
        self.places = local._replace(state=directory, runtime=directory)
        self.was_greeted = False
        """Whether the daemon has answered this process before, so a failure may be a lost link."""
        self._address: Address | None = None
        self._is_token_used = False
        self._lock = threading.Lock()

    @abstractmethod
    def run_there(self, words: Sequence[str]) -> int:
        """Run a command line on the far machine, with this terminal; return its exit status."""

    @abstractmethod
    def _make_link(self, *, may_start: bool) -> Address:
        """Make the link if there is none; with `may_start`, start the daemon if needed.

        Raises `LinkLost` if it may be possible later, or another `TillerError`.
        """

    @abstractmethod
    def _use_link(self, connect: Callable[[], bool]) -> bool:
        """Connect over a link that an earlier verb left; return false if there is none.

        Sets the address.
        """

    def home(self) -> str:
        """Return the user's home on the far machine; first connects and starts the daemon there."""
        if self._address is None:
            self._link(may_start=True)
        assert self._address
        return self._address.home

    def path(self, argument: str) -> str:
        """Convert an argument to a path on the far machine; relative paths start at the home."""
        return posixpath.normpath(posixpath.join(self.home(), argument))

    def token(self) -> str:
        """Return the daemon's token; calls after the first read it again, as it may be new."""
        if self._address is None or self._is_token_used:
            self._link(may_start=False)
        assert self._address
        self._is_token_used = True
        return self._address.token

    def reach(
        self,
        connect: Callable[[], bool],
        *,
        may_start: bool,
        only_crashed: bool = False,  # noqa: ARG002 - the far daemon's token can't be seen
    ) -> None:
        """Return once `connect` succeeds; retry for some minutes if the daemon was once there.

        If an earlier verb has left a link, this process uses it.
        """
        was_said = False
        if self._address is None and self._use_link(connect):
            return
        deadline = time.monotonic() + LINK_DEADLINE_S
        while not connect():
            try:
                self._link(may_start=may_start)
                if connect():
                    break
                problem: TillerError = self._no_answer()
            except LinkLost as error:
                problem = error
            if not self.was_greeted or time.monotonic() > deadline:
                raise problem
            if not was_said and Silence.say is not None:
                Silence.say(f"{problem}; trying again")
                was_said = True
            time.sleep(RETRY_S)

    def _link(self, *, may_start: bool) -> None:
        with self._lock:
            self._make_directory()
            self._address = self._make_link(may_start=may_start)
            self._is_token_used = False

    def _make_directory(self) -> None:
        self.places.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_runtime(self.places.runtime)

    @abstractmethod
    def _no_answer(self) -> TillerError:
        """The error if there is a link, but no connection over it."""


def _directory(local: Places, kind: str, destination: str) -> Path:
    digest = zlib.crc32(os.fsencode(destination))
    directory = local.runtime.with_name(f"tiller-{kind}-{digest:08x}")
    if len(os.fsencode(directory)) > DIRECTORY_BYTES_MAX:
        digest = zlib.crc32(os.fsencode(directory))
        return Path(f"/tmp/tiller-{os.getuid()}-{kind}-{digest:08x}")  # noqa: S108 - its owner and mode are checked
    return directory
