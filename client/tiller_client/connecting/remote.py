"""`--host`: a daemon on another machine, through OpenSSH.

One master connection for each host carries everything: the far `tiller` is run over it to start the
daemon and to learn where its sockets are, and then the two sockets are forwarded into a private
directory here. Nothing listens on a network. The master stays for a while after a verb, so that
the next one is quick. If it breaks, the next use makes another.
"""

import contextlib
import json
import os
import posixpath
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from tiller_client.connecting.runtime import check_runtime
from tiller_client.errors import LinkLost, NoAnswer, NoDaemon, TillerError
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET, Places

PERSIST_S = 120
"""How long a master connection stays after its last use."""

ALIVE_S, ALIVE_MAX = 5, 3
"""A network that has gone is noticed after this time, this many times."""

CONNECT_S = 10
"""Longest wait for the other machine to take the connection."""

GREETING_S = 5.0
"""Longest wait for the daemon behind a forwarded socket, which ssh accepts before it asks."""

LINK_DEADLINE_S = 600.0
"""How long to try to get a lost connection back: a train's tunnel, or a machine that restarts."""

RETRY_S = 1.0

DIRECTORY_BYTES_MAX = 70
"""Longest path of the directory: ssh makes its socket under a name that is 19 bytes longer, and
macOS allows 103."""

SSH_FAILED = 255
NOT_FOUND = 127

FAR_COMMAND = 'PATH="$PATH:$HOME/.local/bin"; exec tiller "$@"'
"""Where pipx, uv and `pip install --user` put programs; a shell without a login may not look."""

SSH_VARIABLE = "TILLER_SSH"
"""The command to use instead of `ssh`, with its options, like git's GIT_SSH_COMMAND."""


class Address(NamedTuple):
    """Where the far daemon is."""

    home: str
    token: str


class RemoteDaemon:
    """The daemon of a user on another machine; used like `LocalDaemon`. For any thread."""

    greeting_s = GREETING_S
    token_deadline_s = float(CONNECT_S)
    is_remote = True

    def __init__(self, host: str, local: Places) -> None:
        """Do not connect yet; `local` are the places of this machine's user."""
        self.host = host
        self.program = f"tiller --host {host}"
        self.restart = (
            f"install the same version on both machines, then run: {self.program} daemon restart"
        )
        directory = local.runtime.with_name(f"tiller-ssh-{zlib.crc32(os.fsencode(host)):08x}")
        if len(os.fsencode(directory)) > DIRECTORY_BYTES_MAX:
            digest = zlib.crc32(os.fsencode(directory))
            directory = Path(f"/tmp/tiller-{os.getuid()}-ssh-{digest:08x}")  # noqa: S108 - its owner and mode are checked
        self.places = local._replace(runtime=directory)
        self._address: Address | None = None
        self._is_token_used = False
        self._lock = threading.Lock()

    def home(self) -> str:
        """The far user's home; connects, and starts the daemon, if that was not done yet."""
        if self._address is None:
            self._link(may_start=True)
        assert self._address
        return self._address.home

    def path(self, argument: str) -> str:
        """A path on the other machine; a relative one is below the home."""
        return posixpath.normpath(posixpath.join(self.home(), argument))

    def token(self) -> str:
        """Return the token; after the first call the current one, as the daemon may be new."""
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
        only_crashed: bool = False,  # noqa: ARG002 - the far one's token can't be seen
    ) -> None:
        """Return once `connect` succeeds; a connection that was there before is tried again."""
        deadline = time.monotonic() + LINK_DEADLINE_S
        was_linked, was_said = self._address is not None, False
        while not connect():
            try:
                self._link(may_start=may_start)
                if connect():
                    break
                problem: TillerError = NoAnswer(
                    f"the daemon on {self.host} runs, but does not answer over ssh; its sshd may "
                    "forbid forwarding (AllowStreamLocalForwarding or AllowTcpForwarding in its "
                    "sshd_config)"
                )
            except LinkLost as error:
                problem = error
            if not was_linked or time.monotonic() > deadline:
                raise problem
            if not was_said:
                from tiller_client.console import complain

                complain(f"{problem}; trying again")
                was_said = True
            time.sleep(RETRY_S)

    def run_there(self, words: Sequence[str]) -> int:
        """Run a command line on the other machine, with this terminal; returns its status."""
        # This starts the master. If the command did, a reader of its output would wait for both.
        self._make_directory()
        self._run([self.host, "exit"])
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        command = [*self._ssh(), "-t" if is_terminal else "-T", self.host, _far(words)]
        status = subprocess.run(command, check=False).returncode
        if status == NOT_FOUND:
            raise TillerError(self._not_installed())
        return status

    def _link(self, *, may_start: bool) -> None:
        """Start the daemon there, if it may be, and forward its sockets."""
        with self._lock:
            self._make_directory()
            action = "start" if may_start else "status"
            status = self._far_json(["daemon", action, "--json"])
            if status.get("type") == "rejected":
                raise TillerError(f"on {self.host}: {status.get('message')}")
            if "token_file" not in status:
                raise TillerError(
                    f"the tiller on {self.host} is too old for --host: upgrade it there"
                )
            if status.get("type") == "not_running":
                raise NoDaemon(
                    f"no daemon is running on {self.host}; start one with: "
                    f"{self.program} daemon start"
                )
            told = self._run([self.host, f"pwd && cat {shlex.quote(str(status['token_file']))}"])
            home, _, token = told.partition("\n")
            far_ops, far_events = (
                str(status[name]).replace(":", r"\:") for name in ("ops_socket", "events_socket")
            )
            forwards = (
                f"-L{self.places.runtime / OPS_SOCKET}:{far_ops}",
                f"-L{self.places.runtime / EVENTS_SOCKET}:{far_events}",
            )
            self._run(["-O", "forward", *forwards, self.host])
            self._address, self._is_token_used = Address(home, token.strip()), False

    def _far_json(self, words: Sequence[str]) -> dict[str, object]:
        """What the far `tiller` prints; the last line, as a shell may say something before."""
        said = self._run([self.host, _far(words)], accepted=(0, 1))
        with contextlib.suppress(ValueError, IndexError):
            value: object = json.loads(said.splitlines()[-1])
            if isinstance(value, dict):
                return cast("dict[str, object]", value)
        said = said.strip()
        raise TillerError(f"`tiller` on {self.host} did not answer in JSON: {said}")

    def _run(self, words: Sequence[str], accepted: Sequence[int] = (0,)) -> str:
        """Run ssh; returns what it printed, and raises with its last words."""
        is_again = ["-o", "BatchMode=yes"] if self._address else []
        # The master keeps its stderr open, so a pipe would never end.
        with tempfile.TemporaryFile() as errors:
            done = subprocess.run(
                [*self._ssh(), *is_again, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                check=False,
            )
            errors.seek(0)
            lines = errors.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if done.returncode == SSH_FAILED:
            raise LinkLost(f"ssh can't reach {self.host}: {said or 'it gives no reason'}")
        if done.returncode == NOT_FOUND:
            raise TillerError(self._not_installed())
        text = done.stdout.decode(errors="replace")
        if done.returncode not in accepted or (done.returncode and not text.strip()):
            raise TillerError(f"on {self.host}: {said.removeprefix('tiller: ')}")
        return text

    def _ssh(self) -> list[str]:
        options = {
            "ControlMaster": "auto",
            "ControlPath": str(self.places.runtime / "c").replace("%", "%%"),
            "ControlPersist": str(PERSIST_S),
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": str(ALIVE_S),
            "ServerAliveCountMax": str(ALIVE_MAX),
            "StreamLocalBindUnlink": "yes",
            "StreamLocalBindMask": "0177",
        }
        words = shlex.split(os.environ.get(SSH_VARIABLE, "")) or ["ssh"]
        return [
            *words,
            *(word for name, text in options.items() for word in ("-o", f"{name}={text}")),
        ]

    def _make_directory(self) -> None:
        self.places.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_runtime(self.places.runtime)

    def _not_installed(self) -> str:
        return (
            f"tiller was not found on {self.host}, neither in the PATH of `ssh {self.host}` nor in "
            "~/.local/bin there: install it, or link it there"
        )


def _far(words: Sequence[str]) -> str:
    """A command line of the far `tiller`, for any login shell."""
    return shlex.join(["sh", "-c", FAR_COMMAND, "sh", *words])
