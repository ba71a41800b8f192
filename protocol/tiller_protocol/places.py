"""tiller's directories and file names, for the daemon and its frontends.

Pure: callers pass in the environment, platform and uid; no directory is created or read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SOCKET_PATH_BYTES_MAX = 100
"""Longest path of a socket; nng rejects more than 107 bytes (the size of `sun_path`)."""

OPS_SOCKET = "ops.sock"
EVENTS_SOCKET = "events.sock"
TOKEN_FILE = "token"  # noqa: S105 - a file name
LOCK_FILE = "daemon.lock"
STATE_LOCK_FILE = "state.lock"
"""File that the daemon locks in its state directory. The first line is the daemon's pid, or empty
after the daemon has ended. The second line is the path of the daemon's runtime directory."""

CONFIG_FILE = "config.toml"
ENVIRONMENT_FILE = "environment"
"""File next to `CONFIG_FILE`: variables, such as keys, for a daemon that runs as a service."""

SET_ASIDE = "TILLERD_SET_ASIDE_"
"""Prefix of variables that the daemon itself must not see, and that its commands get without it."""

LOG_FILE = "tiller.db"
DAEMON_OUTPUT_FILE = "daemon.log"

HOST_LABEL = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}\Z"
HOST_LABEL_EXPECTED = (
    "expected a name of 1 to 32 letters, digits, `.`, `-` and `_` that begins with a letter or a "
    "digit, for ids such as `box:8K2Q`"
)
"""The name of a host. Without a colon, because a colon stands between it and an id."""

FLEET_PREFIX = "fleet:"
"""Begins a destination that is a host of the fleet; its name follows."""

FLEET_HOST = HOST_LABEL.replace("_.-", "_-")
"""The name of a host of the fleet. It is one token of a NATS subject, so it has no dot."""

DESTINATION = rf"^(?!-)(?!{FLEET_PREFIX}(?!{FLEET_HOST[1:]}))[^\s\x00-\x1f\x7f]+\Z"
DESTINATION_EXPECTED = (
    'expected a destination for ssh, such as "me@box", that is not empty, has no spaces and does '
    'not begin with `-`, or a host of the fleet, such as "fleet:box"'
)
"""What ssh gets as its destination. One that begins with `-` would be an option for ssh."""


class Places(NamedTuple):
    """The three directories; `runtime` contains sockets, token and lock."""

    config: Path
    state: Path
    runtime: Path


def find_places(
    environ: Mapping[str, str],
    platform: str,
    uid: int,
    *,
    state: Path | None = None,
    runtime: Path | None = None,
) -> Places:
    """Find the directories by `TILLER_HOME`, or by the platform's convention (XDG on Linux).

    `platform` is `sys.platform`. `state` and `runtime` override the environment. If the sockets'
    paths in `runtime` would be too long, a short path below `/tmp` is used instead.
    """
    home = Path(environ.get("HOME") or "/")
    if tiller_home := environ.get("TILLER_HOME"):
        root = Path(tiller_home).absolute()
        defaults = Places(Path(root, "config"), Path(root, "state"), Path(root, "runtime"))
    elif platform == "darwin":
        support = home / "Library" / "Application Support" / "tiller"
        defaults = Places(support, support / "state", support / "runtime")
    else:
        config_base = _base(environ, "XDG_CONFIG_HOME", home / ".config")
        state_base = _base(environ, "XDG_STATE_HOME", home / ".local" / "state")
        runtime_base = _base(environ, "XDG_RUNTIME_DIR", state_base / "tiller")
        defaults = Places(config_base / "tiller", state_base / "tiller", runtime_base / "tiller")
    chosen = runtime or defaults.runtime
    return Places(
        defaults.config, (state or defaults.state).absolute(), _short_enough(chosen.absolute(), uid)
    )


def _base(environ: Mapping[str, str], name: str, otherwise: Path) -> Path:
    value = environ.get(name, "")
    return Path(value) if value.startswith("/") else otherwise


def _short_enough(runtime: Path, uid: int) -> Path:
    if len(bytes(runtime / EVENTS_SOCKET)) <= SOCKET_PATH_BYTES_MAX:
        return runtime
    import hashlib  # this loads OpenSSL, and few runtime directories need it

    digest = hashlib.sha256(bytes(runtime)).hexdigest()[:16]
    return Path(f"/tmp/tiller-{uid}-{digest}")  # noqa: S108 - owner and mode are checked at start
