"""The sandbox as this user's configuration has it: for the daemon, and for one command to try it.

How a command is held is in `workspace/sandbox`; which calls run in it is the session's business.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tiller_daemon.config import Configuration, McpServer, Provider, Sourcegraph
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.sandbox.confinement import NotConfined
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.daemon_registry import registered
from tiller_daemon.sandbox.detect import find_sandbox
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_protocol.places import Places

NO_SANDBOX = 1
"""Exit status when there is none to run a command in."""


def make_confiner(places: Places, configuration: Configuration) -> Confiner:
    """The maker of sandboxes; they hide what is the daemon's own: log, sockets, token, keys."""
    confiner = Confiner(
        lambda: find_sandbox(sys.platform),
        home(),
        os.environ,
        private=(places.runtime, places.state),
        protected=(places.config,),
        current_private=lambda: registered(home()),
    )
    confiner.hide(key_files(configuration))
    return confiner


def key_files(configuration: Configuration) -> tuple[Path, ...]:
    """The files that keys are read from."""
    return tuple(Path(owner.api_key_file) for owner in _owners(configuration) if owner.api_key_file)


def _owners(configuration: Configuration) -> tuple[Provider | McpServer | Sourcegraph, ...]:
    """Whoever has a key."""
    owners = (*configuration.providers.values(), *configuration.mcp.values())
    return (*owners, configuration.sourcegraph)


def home() -> Path:
    """The user's own directory, with links followed."""
    return Path(os.environ.get("HOME") or "/").resolve()


def run_confined(places: Places, configuration: Configuration, command: Sequence[str]) -> int:
    """Run a command here as one of a model would be; without one, say what would hold it.

    Returns the exit status: that of the command, as a shell tells it.
    """
    confiner = make_confiner(places, configuration)
    if problem := _problem(configuration, confiner):
        sys.stderr.write(f"tillerd: {problem}\n")
        return NO_SANDBOX
    if not command:
        print(_level(configuration, confiner))
        return 0
    here = Path.cwd()
    names = [owner.api_key_env for owner in _owners(configuration) if owner.api_key_env]
    variables = child_environment(os.environ, names, "", "", configuration.env_keep)
    # What is typed to end the command ends it; this program then tells how.
    signal.signal(signal.SIGINT, _ignore_signal)
    try:
        with tempfile.TemporaryDirectory() as spill:
            confined = confiner.confined(
                Enclosure.SESSION, configuration.sandbox, here, Path(spill)
            )
            assert confined
            with confined.wrap(command) as enclosed:
                status = subprocess.run(
                    enclosed.arguments, check=False, env=variables, pass_fds=enclosed.descriptors
                ).returncode
    except (NotConfined, OSError) as error:
        sys.stderr.write(f"tillerd: {error}\n")
        return NO_SANDBOX
    for text in confined.notices:
        sys.stderr.write(f"tillerd: {text}\n")
    return status if status >= 0 else 128 - status


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing; unlike what is ignored, it is not handed down to the command."""


def _problem(configuration: Configuration, confiner: Confiner) -> str:
    if configuration.sandbox.mode == "full_access":
        return "with full_access there is no sandbox: commands may do what you may"
    if confiner.search_result().sandbox is None:
        return f"there is no sandbox, so that each command is asked about: {confiner.search_result().problem}"
    return ""


def _level(configuration: Configuration, confiner: Confiner) -> str:
    found = confiner.search_result()
    assert found.sandbox
    network = "with network" if configuration.sandbox.network else "no network"
    level = f"{configuration.sandbox.mode}, {network}, by {found.sandbox.name}"
    if not found.sandbox.limits:
        return level
    return f"{level}, as {found.instead}. Less than it could be: {found.sandbox.limits}"
