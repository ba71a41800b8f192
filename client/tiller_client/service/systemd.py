"""The daemon as a user unit of systemd: systemd.unit(5), systemd.service(5)."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tiller_client.service.definition import Definition, Service

WATCHDOG_S = 60
"""How long the daemon's event loop may be blocked. It usually answers within milliseconds, so after
this time it hangs. While the machine is suspended, this clock does not run."""

STOP_S = 30
"""How long the daemon may take to end; it gives its turns 5 s. A drain happens before."""

ABORT_S = 10
"""How long a hung daemon may take to print where it hangs."""

NOT_AGAIN = (2, 75)
"""Exit statuses after which a restart would fail, too: the configuration is wrong, or another
daemon is running."""

UNIT = """\
# Written by `tiller daemon install`, which also replaces it.
# Add your own settings with: systemctl --user edit {name}
[Unit]
Description=tiller, the daemon that owns coding-agent sessions

[Service]
Type=notify
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
WorkingDirectory=/
{variables}
EnvironmentFile=-{environment}
StandardOutput=append:{output}
StandardError=inherit
WatchdogSec={watchdog_s}
Restart=on-failure
RestartSec=1
RestartPreventExitStatus={not_again}
TimeoutStopSec={stop_s}
TimeoutAbortSec={abort_s}
KillMode=mixed
Delegate=yes
OOMPolicy=continue
NoNewPrivileges={no_new_privileges}

[Install]
WantedBy=default.target
"""


def systemd_unit(environ: Mapping[str, str], name: str) -> Service:
    """The unit with this name, without its suffix."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        base = str(Path(environ.get("HOME") or "/", ".config"))
    unit = f"{name}.service"
    file = Path(base, "systemd", "user", unit)
    # `systemctl enable` makes this link, and systemd looks for it at login.
    link = file.parent / "default.target.wants" / unit
    systemctl = ("systemctl", "--user")
    return Service(
        manager="systemd",
        program="systemctl",
        name=unit,
        file=file,
        files=(link, file),
        is_enabled=link.is_symlink,
        enable=((*systemctl, "daemon-reload"), (*systemctl, "enable", "--quiet", unit)),
        start=(*systemctl, "start", unit),  # waits until the daemon is ready
        show=(*systemctl, "show", "--property=MainPID", unit),
        disable=((*systemctl, "disable", "--now", "--quiet", unit),),
        forget=((*systemctl, "daemon-reload"),),
        render=partial(_render, unit),
    )


def _render(unit: str, definition: Definition) -> bytes:
    program, *words = map(_quoted, definition.command)
    # systemd expands variables in the arguments, but not in the name of the program.
    command = [program, *(word.replace("$", "$$") for word in words)]
    variables = (_quoted(f"{name}={value}") for name, value in definition.variables.items())
    return UNIT.format(
        name=unit,
        command=" ".join(command),
        variables="\n".join(f"Environment={variable}" for variable in variables),
        environment=_path(definition.environment),
        output=_path(definition.output),
        watchdog_s=WATCHDOG_S,
        not_again=" ".join(map(str, NOT_AGAIN)),
        stop_s=STOP_S,
        abort_s=ABORT_S,
        no_new_privileges="yes" if definition.no_new_privileges else "no",
    ).encode(errors="surrogateescape")


def _quoted(word: str) -> str:
    """Quote a word for a unit file; `%` is doubled, as it would begin a specifier."""
    return '"' + "".join(map(_escaped, os.fsencode(word))) + '"'


def _escaped(byte: int) -> str:
    character = chr(byte)
    if character in '"\\':
        return f"\\{character}"
    if not 0x20 <= byte < 0x7F:
        return f"\\x{byte:02x}"
    return "%%" if character == "%" else character


def _path(path: Path) -> str:
    """Escape a path for settings that take no quotes."""
    return str(path).replace("%", "%%")
