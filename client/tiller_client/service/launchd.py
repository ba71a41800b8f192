"""The daemon as a launch agent of macOS: launchd.plist(5), launchctl(1)."""

import os
import plistlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from tiller_client.service.definition import Command, Definition

STOP_S = 30
"""How long the daemon may take to end before it is killed; it gives its turns 5 s."""


class LaunchAgent(NamedTuple):
    """A launch agent: its `name`, which launchd calls a label, and its `file`."""

    name: str
    file: Path

    manager = "launchd"
    program = "launchctl"

    @classmethod
    def find(cls, environ: Mapping[str, str], name: str) -> Self:
        """Return the agent of that name; its file need not exist."""
        agents = Path(environ.get("HOME") or "/", "Library", "LaunchAgents")
        return cls(name, agents / f"{name}.plist")

    @property
    def is_enabled(self) -> bool:
        """Whether launchd starts it: at the login it reads all files of that directory."""
        return self.file.exists()

    @property
    def enable(self) -> tuple[Command, ...]:
        """Nothing: the file is enough."""
        return ()

    @property
    def start(self) -> Command:
        """Start it anew, as launchd keeps what it has read before."""
        script = 'launchctl bootout "$1/$2" 2>/dev/null; exec launchctl bootstrap "$1" "$3"'
        return ("/bin/sh", "-c", script, "sh", _domain(), self.name, str(self.file))

    @property
    def disable(self) -> tuple[Command, ...]:
        """Stop it."""
        return (("launchctl", "bootout", f"{_domain()}/{self.name}"),)

    @property
    def forget(self) -> tuple[Command, ...]:
        """Do nothing: launchd has forgotten it already."""
        return ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Everything that an installed service consists of."""
        return (self.file,)

    def render(self, definition: Definition) -> bytes:
        """Return the content of the file."""
        output = str(definition.output)
        return plistlib.dumps(
            {
                "Label": self.name,
                "ProgramArguments": list(definition.command),
                "EnvironmentVariables": dict(definition.variables),
                "WorkingDirectory": "/",
                "StandardOutPath": output,
                "StandardErrorPath": output,
                "RunAtLoad": True,
                # A daemon that was told to stop, or finds another one, ends with 0 and stays away.
                "KeepAlive": {"SuccessfulExit": False},
                "ExitTimeOut": STOP_S,
                # Builds and tests of a session should run as fast as in a terminal.
                "ProcessType": "Interactive",
            }
        )


def _domain() -> str:
    return f"gui/{os.getuid()}"
