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
        """Return the agent with this name; its file need not exist."""
        agents = Path(environ.get("HOME") or "/", "Library", "LaunchAgents")
        return cls(name, agents / f"{name}.plist")

    @property
    def is_enabled(self) -> bool:
        """Whether launchd starts the agent: at login, it reads all files in that directory."""
        return self.file.exists()

    @property
    def enable(self) -> tuple[Command, ...]:
        """No commands, because launchd needs only the file."""
        return ()

    @property
    def start(self) -> Command:
        """Unload and load the agent, because launchd remembers an older version of the file."""
        script = 'launchctl bootout "$1/$2" 2>/dev/null; exec launchctl bootstrap "$1" "$3"'
        return ("/bin/sh", "-c", script, "sh", _domain(), self.name, str(self.file))

    @property
    def disable(self) -> tuple[Command, ...]:
        """Stop the agent."""
        return (("launchctl", "bootout", f"{_domain()}/{self.name}"),)

    @property
    def forget(self) -> tuple[Command, ...]:
        """No commands, because launchd has already forgotten a stopped agent."""
        return ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of an installed service."""
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
                # A daemon that was stopped or finds another one exits with 0: don't restart it.
                "KeepAlive": {"SuccessfulExit": False},
                "ExitTimeOut": STOP_S,
                # A session's builds and tests should run as fast as in a terminal.
                "ProcessType": "Interactive",
            }
        )


def _domain() -> str:
    return f"gui/{os.getuid()}"
