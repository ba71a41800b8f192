"""`--host`: a daemon on another machine, through OpenSSH.

Each host has one ssh master connection. Over it, `tiller` is run on the far machine, to start the
daemon and to learn where its sockets are. Then ssh forwards the two sockets to a private directory
here, so nothing listens on a network. The master connection stays open for a while after a verb, so
that the next verb is quick. If the connection breaks, the next use makes a new one.
"""

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from tiller_client.connecting.linked import Address, LinkedDaemon
from tiller_client.connecting.runtime import check_runtime
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


class _Asked(NamedTuple):
    """The user's home on the far machine, and the command that reads the token there."""

    home: str
    process: "subprocess.Popen[bytes]"


class RemoteDaemon(LinkedDaemon):
    """A daemon on another machine, through ssh."""

    kind = "ssh"

    def __init__(
        self, destination: str, local: Places, label: str = "", *, asks: bool = True
    ) -> None:
        """Unless it `asks`, ssh fails where it would ask for a password."""
        super().__init__(destination, local, label)
        self._asks = asks
        self.restart = (
            f"install the same version on both machines, then run: {self.program} daemon restart"
        )

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

    def _make_link(self, *, may_start: bool) -> Address:
        """Forward the far daemon's sockets; with `may_start`, start the daemon if needed."""
        action = "start" if may_start else "status"
        status = self._far_json(["daemon", action, "--json", "--link"])
        if status.get("type") == "rejected":
            raise TillerError(f"on {self.host}: {status.get('message')}")
        if status.get("type") == "unreachable":
            raise TillerError(f"on {self.host}: {status.get('problem')}")
        if "token_file" not in status:
            raise NotInstalled(f"the tiller on {self.host} is too old for --host: upgrade it there")
        if status.get("type") == "not_running":
            raise NoDaemon(
                f"no daemon is running on {self.host}; start one with: {self.program} daemon start"
            )
        far_ops, far_events = (
            str(status[name]).replace(":", r"\:") for name in ("ops_socket", "events_socket")
        )
        forwards = (
            f"-L{self.places.runtime / OPS_SOCKET}:{far_ops}",
            f"-L{self.places.runtime / EVENTS_SOCKET}:{far_events}",
        )
        self._run(["-O", "forward", *forwards, self.destination])
        far = {name: status[name] for name in ("home", "token_file")}
        known = self.places.runtime / KNOWN_FILE
        known.touch(mode=0o600)
        known.write_text(json.dumps(far), encoding="ascii")
        return Address(str(status["home"]), str(status["token"]))

    def _use_link(self, connect: Callable[[], bool]) -> bool:
        """Connect over a link that an earlier verb left, while ssh asks for the token."""
        asked = self._ask_token()
        if asked is None:
            return False
        is_connected = connect()
        self._take_token(asked)
        return is_connected and self._address is not None

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

    def _no_answer(self) -> TillerError:
        return NoAnswer(
            f"the daemon on {self.host} runs, but does not answer over ssh; check whether sshd "
            "there forbids forwarding (AllowStreamLocalForwarding or AllowTcpForwarding in its "
            "sshd_config)"
        )

    def _not_installed(self) -> str:
        return (
            f"tiller was not found on {self.host}, neither in the PATH of `ssh {self.destination}` "
            "nor in ~/.local/bin there; install it, or link it into that directory"
        )


def _far(words: Sequence[str]) -> str:
    """Quote the far `tiller` with these arguments for any login shell."""
    return shlex.join(["sh", "-c", FAR_COMMAND, "sh", *words])
