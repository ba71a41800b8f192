"""A real systemd that manages the services of one test, in a separate home.

systemd refuses to run on a machine that it has not started, such as a container. There, root gives
it a mount namespace in which the machine looks as if systemd had started it.
"""

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

START_S = 30.0
STOP_S = 30.0

PROGRAMS = (Path("/usr/lib/systemd/systemd"), Path("/lib/systemd/systemd"))

CGROUPS = Path("/sys/fs/cgroup")
HIERARCHIES = (CGROUPS / "systemd", CGROUPS / "unified", CGROUPS)
"""Where systemd keeps its groups: the first two with control groups version 1, else the last."""

LOOK_STARTED_BY_SYSTEMD = "mount -t tmpfs tmpfs /run/systemd && mkdir /run/systemd/system && "


class Systemd:
    """A manager that is ready; `variables` are the environment of its user."""

    def __init__(self, home: Path) -> None:
        self.home = home
        runtime = home / "run"
        runtime.mkdir(mode=0o700)
        self.variables = {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(runtime),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
        }

    def tiller(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command line in that environment."""
        command = [sys.executable, "-P", "-m", "tiller_client", *words]
        return subprocess.run(
            command,
            env=self.variables | variables,
            cwd=self.home,
            capture_output=True,
            check=False,
            text=True,
        )

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        command = ["systemctl", "--user", "show", "--value", f"--property={name}", unit]
        done = subprocess.run(
            command, env=self.variables, capture_output=True, check=True, text=True
        )
        return done.stdout.strip()

    def control(self, *words: str) -> None:
        """Run `systemctl`, which must succeed."""
        subprocess.run(
            ["systemctl", "--user", *words],
            env=self.variables,
            check=True,
            capture_output=True,
        )


@contextmanager
def running_systemd() -> Iterator[Systemd]:
    """Start a manager, and end it with all its services; skip the test where it can't run."""
    program = next((path for path in PROGRAMS if path.exists()), None)
    if program is None or shutil.which("systemctl") is None:
        pytest.skip("systemd is not installed")
    command = f"exec {program} --user --unit=basic.target"
    words = ["sh", "-c", command]
    if not Path("/run/systemd/system").exists():
        if os.geteuid() != 0:
            pytest.skip("systemd has not started this machine, and only root can pretend it has")
        words = ["unshare", "--mount", "sh", "-c", LOOK_STARTED_BY_SYSTEMD + command]
    with (
        tempfile.TemporaryDirectory(prefix="my home 100% ") as directory,
        _control_groups(Path(directory).name.split()[-1]) as groups,
    ):
        if os.geteuid() == 0 and not groups:
            pytest.skip(
                "no control group can be made, and systemd would take all processes of ours"
            )
        made = Systemd(Path(directory))
        join = "".join(f"echo $$ > '{group}/cgroup.procs' && " for group in groups)
        process = _started(made, ["sh", "-c", f'{join}exec "$@"', "sh", *words])
        try:
            yield made
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            finally:
                process.kill()
                process.wait()


@contextmanager
def _control_groups(name: str) -> Iterator[list[Path]]:
    """Yield groups for one manager, as two managers in a group would end each other's services.

    Ordinary users can't make groups, but have their own group already.
    """
    hierarchies = HIERARCHIES[:2] if HIERARCHIES[0].is_dir() else HIERARCHIES[2:]
    made = [path / f"tiller-{name}" for path in hierarchies if path.is_dir()]
    made = [group for group in made if _is_made(group)]
    yield made
    for group in made:
        for path, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()


def _is_made(group: Path) -> bool:
    try:
        group.mkdir()
    except OSError:
        return False
    return True


def _started(made: Systemd, words: list[str]) -> "subprocess.Popen[bytes]":
    """Start the manager and wait until it says that it is ready."""
    address, output = made.home / "notify", made.home / "output"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, output.open("wb") as said:
        ready.bind(str(address))
        variables = made.variables | {"NOTIFY_SOCKET": str(address)}
        process = subprocess.Popen(words, env=variables, stdout=said, stderr=said)
        ended = os.pidfd_open(process.pid)
        try:
            while ready in select.select([ready, ended], [], [], START_S)[0]:
                if b"READY=1" in ready.recv(4096):
                    return process
        finally:
            os.close(ended)
    process.kill()
    process.wait()
    pytest.skip(f"systemd does not run here: {output.read_text()[-300:]}")
