"""Sets up the user's configured sandbox, for the daemon and for `tillerd --sandboxed`.

`sandbox` confines a command; the session decides which calls run in the sandbox.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from tiller_daemon.config import Configuration, KeyPlaces
from tiller_daemon.isolation import environment_of_commands, installation_paths, set_inside
from tiller_daemon.policy.shell.levels import git_use
from tiller_daemon.processes.environment import child_environment
from tiller_daemon.sandbox.base import SandboxError
from tiller_daemon.sandbox.detect import find_sandbox
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import Sandboxes
from tiller_daemon.worktrees.records import WORKTREES_FOLDER, Records
from tiller_protocol.places import ENVIRONMENT_FILE, Places

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""The exit statuses of a shell for a command that it can't run."""

NO_SANDBOX = 1
"""The exit status if there is no sandbox for the command."""


def make_sandboxes(
    places: Places,
    configuration: Configuration,
    worktrees: Records,
    records: Path | None = None,
) -> Sandboxes:
    """Return the sandboxes, which hide the daemons' own files: logs, sockets, tokens, keys.

    `records` is the directory for records of running commands, which only the daemon may have.
    """
    sandboxes = Sandboxes(
        lambda: find_sandbox(sys.platform),
        home(),
        environment_of_commands(),
        private=(places.runtime, places.state, places.config / ENVIRONMENT_FILE),
        protected=lambda: (*configuration_places(places.config), *installation_paths()),
        records=records,
        worktrees=worktrees,
    )
    sandboxes.hide(key_files(configuration))
    return sandboxes


def configuration_places(directory: Path) -> Iterator[Path]:
    """Yield the configuration directory, and the targets of its path and of the links in it.

    People keep these files in a repository, in which an agent may work.
    """
    yield from (directory, directory.resolve())
    with suppress(OSError):
        yield from (entry.resolve() for entry in directory.iterdir() if entry.is_symlink())


def key_files(configuration: Configuration) -> tuple[Path, ...]:
    """Return the files that contain keys and the secrets of OAuth clients."""
    files = (places.api_key_file for places in _key_places(configuration))
    return tuple(Path(file) for file in files if file)


def key_variables(configuration: Configuration) -> frozenset[str]:
    """Return the variables that contain keys and the secrets of OAuth clients."""
    names = (places.api_key_env for places in _key_places(configuration))
    return frozenset(name for name in names if name)


def _key_places(configuration: Configuration) -> Iterator[KeyPlaces]:
    """Yield the place of every key and client secret in the configuration."""
    yield from configuration.providers.values()
    for server in configuration.mcp.values():
        yield server
        if server.oauth:
            yield server.oauth.secret_places
    yield configuration.sourcegraph
    yield configuration.web_search
    yield from configuration.notify


def home() -> Path:
    """Return the user's home, with links resolved."""
    return Path(os.environ.get("HOME") or "/").resolve()


def run_sandboxed(places: Places, configuration: Configuration, command: Sequence[str]) -> int:
    """Run a command in the sandbox for models' commands; without a command, describe the sandbox.

    Returns the exit status, as a shell would.
    """
    # No records, which only the daemon may have.
    sandboxes = make_sandboxes(places, configuration, Records(places.state / WORKTREES_FOLDER))
    if problem := _problem(configuration, sandboxes):
        sys.stderr.write(f"tillerd: {problem}\n")
        return NO_SANDBOX
    if not command:
        print(_level(configuration, sandboxes))
        return 0
    here = Path.cwd()
    hidden = key_variables(configuration)
    variables = child_environment(environment_of_commands(), hidden, "", "", configuration.env_keep)
    # Checked here, because the sandbox's program would report it in its own name and with another
    # status.
    if not shutil.which(command[0], path=variables.get("PATH")):
        there = os.sep in command[0] and Path(command[0]).exists()
        why = "is not executable" if there else "was not found"
        sys.stderr.write(f"tiller: {command[0]} {why}\n")
        return NOT_EXECUTABLE if there else NOT_FOUND
    # Ctrl-C ends the command; this program then returns its status.
    signal.signal(signal.SIGINT, _ignore_signal)
    try:
        with tempfile.TemporaryDirectory() as spill:
            sandbox = sandboxes.make(
                SandboxLevel.SESSION,
                configuration.sandbox,
                here,
                Path(spill),
                git_use=git_use(shlex.join(command)),
            )
            assert sandbox
            arguments, outside = set_inside(command, variables)
            with sandbox.wrap(arguments) as wrapped:
                descriptors = (*wrapped.descriptors, *wrapped.without_reaper)
                status = subprocess.run(
                    wrapped.arguments, check=False, env=outside, pass_fds=descriptors
                ).returncode
    except (SandboxError, OSError) as error:
        sys.stderr.write(f"tillerd: {error}\n")
        return NO_SANDBOX
    for text in sandbox.notices:
        sys.stderr.write(f"tillerd: {text}\n")
    return status if status >= 0 else 128 - status


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing; the command inherits SIG_IGN, but not a handler."""


def _problem(configuration: Configuration, sandboxes: Sandboxes) -> str:
    if configuration.sandbox.mode == "full_access":
        return "with full_access there is no sandbox: commands can do all that you can"
    found = sandboxes.search_result()
    if found.sandbox is None:
        return f"there is no sandbox, so every command needs approval. {found.problem}"
    return ""


def _level(configuration: Configuration, sandboxes: Sandboxes) -> str:
    found = sandboxes.search_result()
    assert found.sandbox
    network = "with network" if configuration.sandbox.network else "no network"
    level = f"{configuration.sandbox.mode}, {network}, by {found.sandbox.name}"
    if not found.sandbox.limits:
        return level
    return f"{level}. {found.instead} Limits: {found.sandbox.limits}"
