"""What no command in a sandbox may read or write, whatever the rules say: lists of names.

They are lists because nobody can tell a secret by looking. How a path is hidden or kept from
writing is up to the mechanism (`sandbox_bubblewrap`, `sandbox_seatbelt`).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

HIDDEN_IN_HOME: Final = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".netrc", "_netrc", ".pgpass", ".my.cnf",
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
    ".config/gcloud", ".config/op", ".config/doctl", ".config/rclone", ".config/sops",
    ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".mozilla",
    ".thunderbird", ".docker/config.json", ".config/containers/auth.json", ".npmrc", ".pypirc",
    ".yarnrc.yml", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".terraform.d/credentials.tfrc.json", ".vault-token", ".password-store",
    ".local/share/keyrings", ".local/share/kwalletd", ".claude/.credentials.json",
    ".claude.json", ".codex/auth.json", ".local/share/opencode/auth.json", ".gemini", ".s3cfg",
    ".boto", ".databrickscfg", ".oci", ".fly", ".config/fly", "Library/Keychains",
    "Library/Cookies", "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox",
)  # fmt: skip
"""Where keys, tokens, passwords and sessions of browsers are kept."""

HIDDEN_OF_SYSTEM: Final = (
    "/run/user", "/run/dbus", "/run/docker.sock", "/run/docker", "/run/podman", "/run/containerd",
    "/run/crio", "/run/libvirt", "/run/snapd.socket", "/run/snapd-snap.socket", "/run/screen",
    "/run/systemd/private", "/run/systemd/io.system.ManagedOOM", "/run/incus", "/run/lxd",
    "/var/lib/incus/unix.socket", "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket", "/private/var/run/docker.sock",
    "/run/secrets", "/run/credentials",
)  # fmt: skip
"""Sockets of services that would run something outside for whoever connects: a file system that
can't be written to does not keep from connecting. And what containers and services are handed."""

HIDDEN_IN_TEMPORARY: Final = (".X11-unix", ".ICE-unix", "tmux-{uid}", "screens", "uscreens")
"""Likewise, in `/tmp`: one can type into other windows and terminals there."""

SOCKET_VARIABLES: Final = ("SSH_AUTH_SOCK", "TMUX", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS")
"""Variables that say where such a socket is."""

PROTECTED_FOLDERS: Final = (".tiller", ".claude", ".codex", ".vscode")
"""What makes tiller, other agents and editors run something: can't be written, and can't be made
where it is not there yet. What makes git run something is in `sandbox_repository`."""

PROTECTED_IF_THERE: Final = (
    ".mcp.json", ".cursor", ".idea", ".zed", ".opencode", ".gemini", ".envrc",
)  # fmt: skip
"""Likewise, but a stand-in for what is not there would be in the way of other programs."""

_PROTECTED_NAMES: Final = frozenset((".git", *PROTECTED_FOLDERS, *PROTECTED_IF_THERE))


def is_protected(path: str) -> bool:
    """Whether a path leads to or through one of these names, at any depth and in any case."""
    return not _PROTECTED_NAMES.isdisjoint(path.casefold().split("/"))


def hidden_paths(home: Path, environ: Mapping[str, str], uid: int) -> Iterator[Path]:
    """What is to be hidden, be it there or not."""
    yield from (home / name for name in HIDDEN_IN_HOME)
    yield from map(Path, HIDDEN_OF_SYSTEM)
    yield from (Path("/tmp", name.format(uid=uid)) for name in HIDDEN_IN_TEMPORARY)  # noqa: S108
    for name in SOCKET_VARIABLES:
        # `unix:path=/run/user/1000/bus`, `unix:///run/docker.sock`, `/tmp/tmux-1000/default,1,0`
        text = environ.get(name, "").split(",")[0]
        path = "/" + text.partition("/")[2].lstrip("/")
        if text.startswith(("/", "unix:")) and len(path) > 1:
            yield Path(path)


def there(paths: Iterable[Path]) -> Iterator[Path]:
    """Those that are there, with links followed; each once."""
    seen: set[str] = set()
    for path in paths:
        if os.path.lexists(path):
            real = os.path.realpath(path)
            if real not in seen and os.path.lexists(real):
                seen.add(real)
                yield Path(real)


def holds_only_sockets(path: Path) -> bool:
    """Whether it is a socket, or a directory of sockets: nothing in there can be read."""
    try:
        if path.is_socket():
            return True
        inner = list(path.iterdir()) if path.is_dir() else []
    except OSError:
        return False
    return bool(inner) and all(one.is_socket() for one in inner)


def within(path: Path, roots: Iterable[Path]) -> Path | None:
    """The root that `path` is in, if it is in one and is not that root itself."""
    text = str(path)
    for root in roots:
        if root != path and text.startswith(str(root).rstrip("/") + "/"):
            return root
    return None


def between(root: Path, path: Path) -> Iterator[Path]:
    """The directories that lead from `root` to `path`, without either."""
    for parent in path.parents:
        if parent == root:
            return
        yield parent
