"""A real OpenSSH server on this machine, for one test, with its own keys and its own port."""

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

START_TRIES = 200

SERVER = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {root}/host
AuthorizedKeysFile {root}/client.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
AllowStreamLocalForwarding {forwarding}
SetEnv {variables}
"""

HOST = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {root}/client
  IdentitiesOnly yes
  UserKnownHostsFile {root}/known
  StrictHostKeyChecking yes
"""

GONE = """\
Host gone
  HostName 127.0.0.1
  Port 1
"""


class SshServer:
    """A server that is listening; the command `ssh` reaches it as the host `box`."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.port = root, port
        self.ssh = f"ssh -F {root}/client.conf"

    def host(self, name: str, port: int) -> str:
        """The client's configuration of a host by which this server is reached at a port."""
        known = self.root / "known"
        key = (self.root / "host.pub").read_text()
        with known.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {key}")
        user = pwd.getpwuid(os.getuid()).pw_name
        return HOST.format(name=name, port=port, root=self.root, user=user)


@contextmanager
def running_sshd(
    root: Path, variables: Mapping[str, str], forwarding: str = "yes"
) -> Iterator[SshServer]:
    """Start a server whose sessions have these variables; skip the test without OpenSSH."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh") is None:
        pytest.skip("no sshd: apt install openssh-server")
    for name in ("host", "client"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)]
        subprocess.run(command, check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = " ".join(f'"{name}={value}"' for name, value in variables.items())
    (root / "server.conf").write_text(
        SERVER.format(port=port, root=root, variables=words, forwarding=forwarding)
    )
    sshd = SshServer(root, port)
    (root / "client.conf").write_text(sshd.host("box", port) + GONE)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd confines itself, as root
    command = [program, "-D", "-E", str(root / "server.log"), "-f", str(root / "server.conf")]
    server = subprocess.Popen(command)
    try:
        _await_listening(server, port, root)
        yield sshd
    finally:
        server.terminate()
        server.wait()


def _await_listening(server: "subprocess.Popen[bytes]", port: int, root: Path) -> None:
    for _ in range(START_TRIES):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        try:
            server.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        break
    pytest.skip(f"sshd does not run here: {(root / 'server.log').read_text()[-300:]}")


def link_to_tiller(directory: Path) -> None:
    """Make a program `tiller` in `directory` that runs the code under test."""
    program = directory / "tiller"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m tiller_client "$@"\n')
    program.chmod(0o755)
