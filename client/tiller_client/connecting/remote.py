"""`--host`: a daemon on another machine, through OpenSSH.

Each host has one ssh master connection. Over it, `tiller` is run on the far machine, to start the
daemon and to learn where its sockets are. Then ssh forwards the two sockets to a private directory
here, so nothing listens on a network. The master connection stays open for a while after a verb, so
that the next verb is quick. If the connection breaks, the next use makes a new one.
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
from tiller_client.connecting.silence import Silence
from tiller_client.errors import (
    HostKeyRefused,
    LinkLost,
    NoAnswer,
    NoDaemon,
    NotInstalled,
    TillerError,
)
from tiller_client.variables import command_in
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET, Places

PERSIST_S = 120
"""How long a master connection stays open after its last use."""

ALIVE_S, ALIVE_MAX = 5, 3
"""Seconds between ssh's probes, and how many may go unanswered before the connection is lost."""

CONNECT_S = 10
"""Longest wait until the other machine accepts the connection."""

GREETING_S = 5.0
"""Longest wait for the greeting on a forwarded socket, where ssh accepts before the daemon does."""

LINK_DEADLINE_S = 600.0
"""How long to retry after a connection was lost, as in a train's tunnel or during a reboot."""

RETRY_S = 1.0

DIRECTORY_BYTES_MAX = 70
"""Longest path of the directory: ssh's socket has a path that is 19 bytes longer, and macOS allows
103 bytes."""

CONTROL_SOCKET = "c"
KNOWN_FILE = "far.json"
"""The names of ssh's socket, and of the file with what the next verb needs to know: no secrets."""

TOKEN_MARK = "the token of tiller:"  # noqa: S105 - comes before the token
"""A line that the start-up files of a shell do not print."""

SSH_FAILED = 255
NOT_FOUND = 127

KEY_REFUSED, KEY_OFFENDS = "Host key verification failed", "Offending "
LOGIN_REFUSED = "Permission denied"
"""What lines of ssh contain, or how they begin."""

FAR_COMMAND = 'PATH="$PATH:$HOME/.local/bin"; exec tiller "$@"'
"""Runs `tiller`, also from the directory of pipx, uv and `pip install --user`: the PATH of a shell
without a login may lack it."""

SSH_VARIABLE = "TILLER_SSH"
"""The command to use instead of `ssh`, with its options, like git's GIT_SSH_COMMAND."""


class Address(NamedTuple):
    """The user's home on the far machine, and the far daemon's token."""

    home: str
    token: str


class _Asked(NamedTuple):
    """The user's home on the far machine, and the command that reads the token there."""

    home: str
    process: "subprocess.Popen[bytes]"


class RemoteDaemon:
    """A daemon on another machine, with the methods of `LocalDaemon`; for any thread."""

    greeting_s = GREETING_S
    token_deadline_s = float(CONNECT_S)
    is_remote = True

    def __init__(
        self, destination: str, local: Places, label: str = "", *, asks: bool = True
    ) -> None:
        """Do not connect yet; `local` are the user's places on this machine.

        `label` is the user's name for the `destination`. Unless it `asks`, ssh fails where it would
        ask for a password.
        """
        self.destination = destination
        self.host = label or destination
        self._asks = asks
        self.program = f"tiller --host {self.host}"
        self.restart = (
            f"install the same version on both machines, then run: {self.program} daemon restart"
        )
        directory = local.runtime.with_name(
            f"tiller-ssh-{zlib.crc32(os.fsencode(destination)):08x}"
        )
        if len(os.fsencode(directory)) > DIRECTORY_BYTES_MAX:
            digest = zlib.crc32(os.fsencode(directory))
            directory = Path(f"/tmp/tiller-{os.getuid()}-ssh-{digest:08x}")  # noqa: S108 - its owner and mode are checked
        # The state stays on that machine; the state here belongs to another daemon.
        self.places = local._replace(state=directory, runtime=directory)
        self._address: Address | None = None
        self._is_token_used = False
        self._lock = threading.Lock()

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
        """Return once `connect` succeeds; retry for some minutes if a connection was lost.

        If an earlier verb has left a link, this process connects while it asks for the token.
        """
        was_linked, was_said = self._address is not None, False
        if not was_linked and (asked := self._ask_token()):
            is_connected = connect()
            self._take_token(asked)
            if is_connected and self._address:
                return
        deadline = time.monotonic() + LINK_DEADLINE_S
        while not connect():
            try:
                self._link(may_start=may_start)
                if connect():
                    break
                problem: TillerError = NoAnswer(
                    f"the daemon on {self.host} runs, but does not answer over ssh; check whether "
                    "sshd there forbids forwarding (AllowStreamLocalForwarding or "
                    "AllowTcpForwarding in its sshd_config)"
                )
            except LinkLost as error:
                problem = error
            if not was_linked or time.monotonic() > deadline:
                raise problem
            if not was_said and Silence.say is not None:
                Silence.say(f"{problem}; trying again")
                was_said = True
            time.sleep(RETRY_S)

    def run_there(self, words: Sequence[str]) -> int:
        """Run a command line on the far machine, with this terminal; return its exit status."""
        # Starts the master connection: if the command did, the master would keep its output open.
        self._make_directory()
        self._run([self.destination, "exit"])
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        command = [*self._ssh(), "-t" if is_terminal else "-T", self.destination, _far(words)]
        status = subprocess.run(command, check=False).returncode
        if status == NOT_FOUND:
            raise NotInstalled(self._not_installed())
        return status

    def _link(self, *, may_start: bool) -> None:
        """Forward the far daemon's sockets; with `may_start`, start the daemon if needed."""
        with self._lock:
            self._make_directory()
            action = "start" if may_start else "status"
            status = self._far_json(["daemon", action, "--json", "--link"])
            if status.get("type") == "rejected":
                raise TillerError(f"on {self.host}: {status.get('message')}")
            if status.get("type") == "unreachable":
                raise TillerError(f"on {self.host}: {status.get('problem')}")
            if "token_file" not in status:
                raise NotInstalled(
                    f"the tiller on {self.host} is too old for --host: upgrade it there"
                )
            if status.get("type") == "not_running":
                raise NoDaemon(
                    f"no daemon is running on {self.host}; start one with: "
                    f"{self.program} daemon start"
                )
            far_ops, far_events = (
                str(status[name]).replace(":", r"\:") for name in ("ops_socket", "events_socket")
            )
            forwards = (
                f"-L{self.places.runtime / OPS_SOCKET}:{far_ops}",
                f"-L{self.places.runtime / EVENTS_SOCKET}:{far_events}",
            )
            self._run(["-O", "forward", *forwards, self.destination])
            self._address = Address(str(status["home"]), str(status["token"]))
            self._is_token_used = False
            far = {name: status[name] for name in ("home", "token_file")}
            known = self.places.runtime / KNOWN_FILE
            known.touch(mode=0o600)
            known.write_text(json.dumps(far), encoding="ascii")

    def _ask_token(self) -> _Asked | None:
        """Ask for the token over a link that an earlier verb left, or return `None`.

        This needs no Python there, which over a slow link takes a third of the time of a verb.
        """
        try:
            check_runtime(self.places.runtime)
            far = json.loads((self.places.runtime / KNOWN_FILE).read_text(encoding="ascii"))
        except (OSError, ValueError, NoDaemon):
            return None
        if not (self.places.runtime / CONTROL_SOCKET).exists():
            return None
        command = f"echo; echo {TOKEN_MARK}; cat {shlex.quote(far['token_file'])}"
        words = [*self._ssh(), "-o", "BatchMode=yes", self.destination, command]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(words, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)
        return _Asked(far["home"], process)

    def _take_token(self, asked: _Asked) -> None:
        """Wait for the answer to `_ask_token`; without a token, there is no address yet."""
        with asked.process as process:
            said, _ = process.communicate()
        lines = said.decode(errors="replace").splitlines()
        if not process.returncode and TOKEN_MARK in lines[:-1]:
            token = lines[lines.index(TOKEN_MARK) + 1]
            self._address, self._is_token_used = Address(asked.home, token), False

    def _far_json(self, words: Sequence[str]) -> dict[str, object]:
        """Decode the line of JSON that the far `tiller` prints.

        The start-up files of the shell there may print lines, too.
        """
        status, said, problem = self._try([self.destination, _far(words)])
        for line in reversed(said.splitlines()):
            with contextlib.suppress(ValueError):
                value: object = json.loads(line)
                if isinstance(value, dict) and "type" in value:
                    return cast("dict[str, object]", value)
        if status:
            raise TillerError(f"on {self.host}: {problem.removeprefix('tiller: ')}")
        raise TillerError(
            f"`tiller` did not run on {self.host}: check whether a start-up file of your shell "
            "there, such as .bashrc, ends the shell; compare: "
            f"ssh {self.destination} tiller --version"
        )

    def _run(self, words: Sequence[str]) -> None:
        """Run ssh; raises an error with the last line of its stderr if it fails."""
        status, _, problem = self._try(words)
        if status:
            raise TillerError(f"on {self.host}: {problem}")

    def _try(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run ssh and return its exit status, its output and the last line of its stderr."""
        is_quiet = ["-o", "BatchMode=yes"] if self._address or not self._asks else []
        # The master connection keeps stderr open, so a pipe would never end.
        with tempfile.TemporaryFile() as errors:
            done = subprocess.run(
                [*self._ssh(), *is_quiet, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                check=False,
            )
            errors.seek(0)
            lines = errors.read().decode(errors="replace").split("\n")
        problem = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if done.returncode == SSH_FAILED:
            raise self._not_reached(lines, problem or "it gives no reason")
        if done.returncode == NOT_FOUND:
            raise NotInstalled(self._not_installed())
        return done.returncode, done.stdout.decode(errors="replace"), problem

    def _not_reached(self, lines: Sequence[str], problem: str) -> TillerError:
        """The error about an ssh that has failed, from the lines of its stderr and the last one."""
        again = f"connect once with: {self.program} ls"
        if KEY_REFUSED in problem:
            old = next((line.strip() for line in lines if line.startswith(KEY_OFFENDS)), "")
            if not old:
                return HostKeyRefused(f"ssh does not know the host key of {self.host} yet; {again}")
            return HostKeyRefused(
                f"the host key of {self.host} has changed ({old}): somebody may intercept the "
                f"connection; if the machine was set up anew, remove that line, then {again}"
            )
        reason = problem.removeprefix("ssh: ").removesuffix(".")
        advice = f"; to log in, {again}" if LOGIN_REFUSED in problem and not self._asks else ""
        return LinkLost(f"ssh can't reach {self.host}: {reason}{advice}")

    def _ssh(self) -> list[str]:
        options = {
            "ControlMaster": "auto",
            "ControlPath": str(self.places.runtime / CONTROL_SOCKET).replace("%", "%%"),
            "ControlPersist": str(PERSIST_S),
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": str(ALIVE_S),
            "ServerAliveCountMax": str(ALIVE_MAX),
            "StreamLocalBindUnlink": "yes",
            "StreamLocalBindMask": "0177",
        }
        words = command_in(SSH_VARIABLE) or ["ssh"]
        return [
            *words,
            *(word for name, text in options.items() for word in ("-o", f"{name}={text}")),
        ]

    def _make_directory(self) -> None:
        self.places.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_runtime(self.places.runtime)

    def _not_installed(self) -> str:
        return (
            f"tiller was not found on {self.host}, neither in the PATH of `ssh {self.destination}` "
            "nor in ~/.local/bin there; install it, or link it into that directory"
        )


def _far(words: Sequence[str]) -> str:
    """Quote the far `tiller` with these arguments for any login shell."""
    return shlex.join(["sh", "-c", FAR_COMMAND, "sh", *words])
