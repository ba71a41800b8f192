"""The places that enclosures know by name: what is of the system, what is secret, what is run.

They are lists because nobody can tell a secret by looking. How a path is hidden or kept from
writing is up to the mechanism (`bubblewrap`, `seatbelt`).
"""

import os
import stat
import sys
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

SYSTEM: Final = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/sys", "/nix",
    "/gnu", "/snap", "/run/current-system", "/run/opengl-driver",
)  # fmt: skip
"""What belongs to the system: programs, libraries and their configuration."""

VISIBLE_IN_RUN: Final = (
    "/run/systemd/resolve", "/run/current-system", "/run/opengl-driver", "/run/wrappers",
    "/run/resolvconf", "/run/NetworkManager/resolv.conf",
)  # fmt: skip
"""What is left of `/run` in every enclosure: how names are resolved, and programs of NixOS. The
rest of it are sockets and secrets of services."""

HIDDEN_OF_SYSTEM: Final = ("/var/lib/docker", "/var/lib/containerd", "/private/var/run/docker.sock")
"""What services keep elsewhere."""

SOCKET_VARIABLES: Final = ("SSH_AUTH_SOCK", "TMUX", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS")
"""Variables that say where a socket is, at which one could have something run."""

BOUND_SOCKETS: Final = Path("/proc/net/unix")
"""All sockets that have a path: a file system that is read-only does not keep from connecting."""

PROTECTED_FOLDERS: Final = (".tiller", ".claude", ".codex", ".vscode")
"""What makes tiller, other agents and editors run something: can't be written, and can't be made
where it is not there yet. What makes git run something is in `git_directories`."""

PROTECTED_IF_THERE: Final = (
    ".mcp.json", ".cursor", ".idea", ".zed", ".opencode", ".gemini", ".envrc",
)  # fmt: skip
"""Likewise, but a stand-in for what is not there would be in the way of other programs."""

_PROTECTED_NAMES: Final = frozenset((".git", *PROTECTED_FOLDERS, *PROTECTED_IF_THERE))


def is_protected(path: str) -> bool:
    """Whether a path leads to or through one of these names, at any depth and in any case."""
    return not _PROTECTED_NAMES.isdisjoint(path.casefold().split("/"))


def hidden_paths(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """What is to be hidden in every enclosure, be it there or not."""
    yield from (home / name for name in HIDDEN_IN_HOME)
    yield from map(Path, HIDDEN_OF_SYSTEM)
    for name in SOCKET_VARIABLES:
        # `unix:path=/run/user/1000/bus`, `unix:///run/docker.sock`, `/tmp/tmux-1000/default,1,0`
        text = environ.get(name, "").split(",")[0]
        path = "/" + text.partition("/")[2].lstrip("/")
        if text.startswith(("/", "unix:")) and len(path) > 1:
            yield Path(path)


def bound_sockets() -> Iterator[Path]:
    """The sockets that somebody listens at here, as the kernel lists them."""
    try:
        lines = BOUND_SOCKETS.read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        _, found, path = line.partition(b" /")
        if found:
            yield Path("/" + os.fsdecode(path))


def tool_directories(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where the user's own programs lie outside of the system: what PATH and this Python name.

    A directory such as `~/.cargo/bin` is named for its parent, where libraries are. Nothing that
    holds the home itself is named, nor what it holds directly.
    """
    named = [Path(sys.prefix), Path(sys.base_prefix)]
    for text in environ.get("PATH", "").split(os.pathsep):
        if text.startswith("/"):
            path = Path(os.path.realpath(text))
            named.append(path.parent if path.name in ("bin", "sbin", "shims") else path)
    named += [home / name for name in TOOLS_IN_HOME]
    closed = {home, *home.parents, home / ".local", home / "bin"}
    yield from (home / ".local" / name for name in ("bin", "lib"))
    for path in existing_paths(named):
        if path in closed and path != home / "bin":
            continue
        yield path


TOOLS_IN_HOME: Final = (
    ".cargo/bin", ".rustup", ".pyenv", ".nvm/versions", ".rbenv", ".asdf", ".volta", ".bun/bin",
    ".deno/bin", ".sdkman/candidates", ".local/share/mise", ".local/share/uv", ".local/share/pipx",
    ".local/share/pnpm", "go/bin", "bin", ".gitconfig", ".config/git/config", ".config/git/ignore",
    ".ripgreprc", ".config/ripgrep",
)  # fmt: skip
"""Programs in the user's home, and the configuration of those that read."""


def closed_system_files() -> Iterator[Path]:
    """Files of the system's configuration that not everybody may read: root could read them."""
    for folder, names, files in os.walk("/etc"):
        for name in list(names):
            path = Path(folder, name)
            if not path.is_symlink() and not path.stat().st_mode & stat.S_IROTH:
                names.remove(name)
                yield path
        for name in files:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and not path.stat().st_mode & stat.S_IROTH:
                yield path


def existing_paths(paths: Iterable[Path]) -> Iterator[Path]:
    """Those that are there, with links followed; each once."""
    seen: set[str] = set()
    for path in paths:
        if os.path.lexists(path):
            real = os.path.realpath(path)
            if real not in seen and os.path.lexists(real):
                seen.add(real)
                yield Path(real)


def enclosing_root(path: Path, roots: Iterable[Path]) -> Path | None:
    """The root that `path` is in, if it is in one and is not that root itself."""
    text = str(path)
    for root in roots:
        if root != path and text.startswith(str(root).rstrip("/") + "/"):
            return root
    return None


def directories_between(root: Path, path: Path) -> Iterator[Path]:
    """The directories that lead from `root` to `path`, without either."""
    for parent in path.parents:
        if parent == root:
            return
        yield parent
