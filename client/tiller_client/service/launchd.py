"""The daemon as a launch agent of macOS: launchd.plist(5), launchctl(1)."""

import os
import plistlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tiller_client.service.definition import Definition, Service

STOP_S = 30
"""How long the daemon may take to end before it is killed; it gives its turns 5 s."""


def launch_agent(environ: Mapping[str, str], name: str) -> Service:
    """The agent with this name, which launchd calls a label."""
    file = Path(environ.get("HOME") or "/", "Library", "LaunchAgents", f"{name}.plist")
    domain = f"gui/{os.getuid()}"
    # launchd remembers an older version of the file until the agent is unloaded.
    script = 'launchctl bootout "$1/$2" 2>/dev/null; exec launchctl bootstrap "$1" "$3"'
    return Service(
        manager="launchd",
        program="launchctl",
        name=name,
        file=file,
        files=(file,),
        is_enabled=file.exists,  # at login, launchd reads all files in that directory
        enable=(),
        start=("/bin/sh", "-c", script, "sh", domain, name, str(file)),
        show=("launchctl", "list", name),
        disable=(("launchctl", "bootout", f"{domain}/{name}"),),
        forget=(),
        render=partial(_render, name),
    )


def _render(name: str, definition: Definition) -> bytes:
    output = str(definition.output)
    return plistlib.dumps(
        {
            "Label": name,
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
