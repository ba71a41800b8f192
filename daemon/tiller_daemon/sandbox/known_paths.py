"""Paths with a known meaning for confinements: system files, secrets, and files that get executed.

These are lists because a program can't recognise a secret by its content. The sandboxes
(`bubblewrap`, `seatbelt`) hide and protect the paths.
"""

import os
import pwd
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

from tiller_daemon.stamps import look_along

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
"""Keys, tokens, passwords and browser sessions."""

SYSTEM: Final = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/sys", "/nix",
    "/gnu", "/snap", "/run/current-system", "/run/opengl-driver",
)  # fmt: skip
"""The system: programs, libraries and their configuration."""

VISIBLE_IN_RUN: Final = (
    "/run/systemd/resolve", "/run/current-system", "/run/opengl-driver", "/run/wrappers",
    "/run/resolvconf", "/run/NetworkManager/resolv.conf",
)  # fmt: skip
"""The parts of `/run` that every confinement shows: name resolution, and NixOS's programs. The rest
are sockets and secrets of services."""

HIDDEN_OF_SYSTEM: Final = ("/var/lib/docker", "/var/lib/containerd", "/private/var/run/docker.sock")
"""Services' data and sockets outside `/run`."""

SOCKET_VARIABLES: Final = ("SSH_AUTH_SOCK", "TMUX", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS")
"""Variables with the path of a socket through which a command could make others execute code."""

BOUND_SOCKETS: Final = Path("/proc/net/unix")
"""The list of all sockets with a path. Even on a read-only file system they accept connections."""

PROTECTED_FOLDERS: Final = (".tiller", ".claude", ".codex", ".vscode")
"""Directories that make tiller, other agents and editors execute something. They can't be written,
nor created if they are missing. `git_directories` finds the paths that git executes."""

PROTECTED_IF_THERE: Final = (
    ".mcp.json", ".cursor", ".idea", ".zed", ".opencode", ".gemini", ".envrc",
)  # fmt: skip
"""More such files and directories, which get no placeholders because these would disturb other
programs. If a build creates one, it is renamed when the build has ended."""

EXECUTED_NAMES: Final = frozenset((*PROTECTED_FOLDERS, *PROTECTED_IF_THERE))
"""All names of `PROTECTED_FOLDERS` and `PROTECTED_IF_THERE`. They count in subdirectories as well,
because users open those as projects too."""

EXECUTED_AT_HOME: Final = (
    ".ssh", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".xprofile", ".xsessionrc", ".gitconfig",
    ".config/git", ".config/fish", ".config/systemd", ".config/autostart", ".config/tiller",
    ".local/bin", ".local/share/applications", "Library/LaunchAgents",
)  # fmt: skip
"""Files that shells, desktops, git and service managers execute for a user. A workspace may be a
home, or contain the files for one (dotfiles)."""

_PROTECTED_NAMES: Final = EXECUTED_NAMES | {".git"}
_EXECUTED: Final = tuple(f"/{name.casefold()}/" for name in EXECUTED_AT_HOME)


def is_protected(path: str) -> bool:
    """Whether a path contains a protected name, at any depth and in upper or lower case."""
    folded = path.casefold()
    if not _PROTECTED_NAMES.isdisjoint(folded.split("/")):
        return True
    return any(name in f"/{folded}/" for name in _EXECUTED)


def hidden_paths(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths to hide in every confinement, whether they exist or not."""
    yield from (home / name for name in HIDDEN_IN_HOME)
    yield from map(Path, HIDDEN_OF_SYSTEM)
    for name in SOCKET_VARIABLES:
        # `unix:path=/run/user/1000/bus`, `unix:///run/docker.sock`, `/tmp/tmux-1000/default,1,0`
        text = environ.get(name, "").split(",")[0]
        path = "/" + text.partition("/")[2].lstrip("/")
        if text.startswith(("/", "unix:")) and len(path) > 1:
            yield Path(path)


def bound_sockets() -> Iterator[Path]:
    """Yield the paths of listening sockets, as the kernel lists them."""
    try:
        lines = BOUND_SOCKETS.read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        _, separator, path = line.partition(b" /")
        if separator:
            yield Path("/" + os.fsdecode(path))


def tool_directories(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the directories of the user's own programs, from PATH and from this Python.

    A directory such as `~/.cargo/bin` is replaced by its parent, which has the libraries. The home
    itself, its parents and some broad directories are left out.
    """
    named = [Path(sys.prefix), Path(sys.base_prefix)]
    for text in environ.get("PATH", "").split(os.pathsep):
        if text.startswith("/"):
            path = Path(os.path.realpath(text))
            named.append(path.parent if path.name in ("bin", "sbin", "shims") else path)
    named += [home / name for name in TOOLS_IN_HOME]
    closed = {home, *home.parents, home / ".local"}
    yield from (home / ".local" / name for name in ("bin", "lib"))
    yield from (path for path in existing(named) if path not in closed)


TOOLS_IN_HOME: Final = (
    ".cargo/bin", ".rustup", ".pyenv", ".nvm/versions", ".rbenv", ".asdf", ".volta", ".bun/bin",
    ".deno/bin", ".sdkman/candidates", ".local/share/mise", ".local/share/uv", ".local/share/pipx",
    ".local/share/pnpm", "go/bin", "bin", ".gitconfig", ".config/git/config", ".config/git/ignore",
    ".ripgreprc", ".config/ripgrep",
)  # fmt: skip
"""Programs in the user's home, and the configuration of programs that only read."""


def closed_system_files() -> Iterator[Path]:
    """Yield the paths in `/etc` that not everyone may read, but a command run as root could."""
    if os.geteuid() != 0:
        return  # Without root's rights the kernel protects these files.
    for folder, names, files in os.walk("/etc"):
        closed = [name for name in (*names, *files) if _is_closed(Path(folder, name))]
        names[:] = [name for name in names if name not in closed]
        yield from (Path(folder, name) for name in closed)


def _is_closed(path: Path) -> bool:
    """Whether a directory or regular file may not be read by everyone."""
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        return False
    return not path.stat().st_mode & stat.S_IROTH


HOMES: Final = (Path("/home"), Path("/Users"))
"""Directories whose subdirectories are homes."""

PERSON_UID_MIN: Final = 500 if sys.platform == "darwin" else 1000
"""The lowest user id of a person. Services have lower ones, and homes such as `/usr/sbin`."""


def other_homes(
    home: Path,
    users: Iterable[pwd.struct_passwd] | None = None,
    places: Sequence[Path] = HOMES,
) -> tuple[Path, ...]:
    """Return the home directories of other users, which a command run as root could read.

    These are the homes of root and of persons among `users` (default: the password database), and
    all directories in `places`. They exist, and links are resolved. A directory inside a system
    path or inside `home`, the daemon's user's own, is left out, and so is one that contains such a
    path. Blocks for as long as the password database takes.
    """
    users = pwd.getpwall() if users is None else users
    named = [one.pw_dir for one in users if one.pw_uid == 0 or one.pw_uid >= PERSON_UID_MIN]
    for place in places:
        with suppress(OSError), os.scandir(place) as entries:
            named += sorted(entry.path for entry in entries)
    system = tuple(existing((home, *map(Path, SYSTEM))))
    kept = (*system, *existing(places))
    return tuple(
        path
        for path in existing(Path(one) for one in named if one.startswith("/"))
        if path.is_dir()
        and not any(path.is_relative_to(one) for one in system)
        and not any(one.is_relative_to(path) for one in kept)
    )


def existing(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths that exist, with links resolved and without duplicates."""
    seen: set[str] = set()
    for path in paths:
        if is_there(path):
            real = os.path.realpath(path)
            if real not in seen and os.path.lexists(real):
                seen.add(real)
                yield Path(real)


def is_there(path: Path) -> bool:
    """Whether a path exists, even as a link that leads nowhere."""
    look_along(path)
    return os.path.lexists(path)


def in_place(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths, except those that are links or lead through one."""
    for path in paths:
        look_along(path)
        if os.path.realpath(path) == str(path):
            yield path


def first_missing(path: Path) -> Path:
    """Return the topmost missing directory on the way to a missing path, or the path itself."""
    while not os.path.lexists(path.parent):
        path = path.parent
    return path


def root_of(path: Path, roots: Iterable[Path]) -> Path | None:
    """Return the root that contains `path`, or None; a root does not contain itself."""
    text = str(path)
    for root in roots:
        if root != path and text.startswith(str(root).rstrip("/") + "/"):
            return root
    return None


def between(root: Path, path: Path) -> Iterator[Path]:
    """Return the directories between `root` and `path`, excluding both."""
    return takewhile(lambda parent: parent != root, path.parents)
