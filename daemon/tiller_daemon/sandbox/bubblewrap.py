"""Bubblewrap runs a command in its own namespaces, on a file system that is assembled for it.

Processes, network and shared memory have namespaces too. `--die-with-parent` is not used, because
it would kill processes that outlive the shell for a moment (the end of a pipeline, a trap). The
command's reaper ends the namespace and everything in it.
"""

import os
import platform
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from errno import ELOOP
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tiller_daemon.sandbox import launcher as sandbox_launcher
from tiller_daemon.sandbox.base import (
    ROOT_CAPABILITIES,
    TEMPORARY,
    Sandbox,
    SandboxError,
    SandboxProfile,
    WrappedCommand,
)
from tiller_daemon.sandbox.known_paths import bound_sockets, root_of
from tiller_daemon.sandbox.seccomp import filter_in_namespaces

NULL_DEVICE: Final = "/dev/null"
"""Mounted over hidden files: opening such a file fails, because the mount allows no devices."""

PYTHON: Final = Path(sys.executable).resolve()
"""The Python for the launcher. It is not the link in a virtual environment, which may be hidden
from commands; the launcher uses no packages."""

SCOPE_LAUNCHER: Final = (str(PYTHON), "-I", "-S", sandbox_launcher.__file__, "--scope", "--")
"""Keeps a command that can use the machine's network from other processes' abstract sockets."""

SCOPE_PATHS: Final = (Path(sys.base_prefix).resolve(), PYTHON, Path(sandbox_launcher.__file__))
"""The paths that the launcher needs inside the sandbox."""

HIDE_INIT: Final = ("--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
"""Options that follow `--proc /proc`. They hide the memory, variables and descriptors of the
sandbox's own process; the seccomp filter forbids tracing that process."""

CACHE_OF_CHECKS: Final = ("RUFF_CACHE_DIR", f"{TEMPORARY[0]}/ruff")
"""The variable that gives ruff a cache where nothing else can be written, and its value."""

STATUS_BYTES_MAX: Final = 4096

WORDS_MAX: Final = 8_900
"""How long the command line of `bwrap` may be; it allows 9000 words."""

DESCRIPTORS_MAX: Final = 200
"""How many paths are mounted by descriptor; the kernel passes at most 253 in one message."""

_ROOT: Final = Path("/")
_PATH: Final = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC


class Mount(NamedTuple):
    """How a path is mounted.

    `new` mounts another directory, `empty` hides a directory, and `hide` hides a file.
    """

    kind: Literal["new", "empty", "hide", "read", "write"]
    options: tuple[str, ...]


class Bubblewrap(Sandbox):
    """The sandbox on Linux."""

    name = "bubblewrap"
    has_own_temporary = True

    def __init__(
        self,
        program: str,
        *,
        root: bool | None = None,
        scopes: bool = True,
        descriptors: bool = False,
    ) -> None:
        """Run commands with the program `bwrap` at this path.

        `root` tells whether the daemon runs as root; None detects it. `scopes` tells whether
        Landlock can keep commands from abstract sockets, and `descriptors` whether `bwrap` mounts
        open files.
        """
        self._program: Final = program
        self._root: Final = os.geteuid() == 0 if root is None else root
        self._scopes: Final = scopes
        self._descriptors: Final = descriptors

    @contextmanager
    def wrap(self, arguments: Sequence[str], profile: SandboxProfile) -> Generator[WrappedCommand]:
        """Yield the command to run instead of `arguments`; leave the context when it has ended."""
        with ExitStack() as stack:
            calls = filter_in_namespaces(
                platform.machine(),
                sockets=profile.writes and (self._scopes or not profile.network),
            )
            filters = (_readable(stack, calls),) if calls else ()
            status, status_end = _pipe(stack)
            sockets = tuple(_sockets(profile))
            opened: list[int] = []

            def open_one(path: Path) -> int:
                opened.append(_opened(path))
                stack.callback(os.close, opened[-1])
                return opened[-1]

            opener = open_one if self._descriptors else None
            chosen = options(profile, sockets, opener, root=self._root)
            if len(chosen) > WORDS_MAX:
                why = f"it would need more than {WORDS_MAX} words to describe what it hides"
                raise SandboxError(f"The command did not run in {profile.workspace}: {why}.")
            chosen += [word for one in filters for word in ("--seccomp", str(one))]
            chosen += ["--json-status-fd", str(status_end)]
            scoped = SCOPE_LAUNCHER if profile.network and self._scopes else ()
            yield WrappedCommand(
                (self._program, *chosen, "--", *scoped, *arguments),
                (*filters, *opened, status_end),
                # If nobody could read its status, bubblewrap would end before the process that it
                # has made, which would then wait for it for ever, deaf to all signals but SIGKILL.
                without_reaper=(status,),
                has_started=lambda: b"exit-code" in _read_status(status),
                helpers=2,
            )


def _opened(path: Path) -> int:
    """Open a path, none of whose parts may be a link. Raises `SandboxError`."""
    opened = os.open("/", _PATH)
    try:
        for name in path.parts[1:]:
            above, opened = opened, os.open(name, _PATH, dir_fd=opened)
            os.close(above)
        if not stat.S_ISLNK(os.fstat(opened).st_mode):
            return opened
        raise OSError(ELOOP, os.strerror(ELOOP))
    except OSError as error:
        os.close(opened)
        why = f"{path} has changed while its sandbox was set up ({error.strerror})"
        raise SandboxError(f"The command did not run: {why}.") from error


def _readable(stack: ExitStack, data: bytes) -> int:
    """Return a descriptor from which `data` can be read once, and which the stack closes.

    `data` must fit into a pipe.
    """
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    with os.fdopen(writing, "wb") as end:
        end.write(data)
    return reading


def _pipe(stack: ExitStack) -> tuple[int, int]:
    """Return both ends of a pipe, which the stack closes; reading from it never blocks."""
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    stack.callback(os.close, writing)
    os.set_blocking(reading, False)
    return reading, writing


def _read_status(status: int) -> bytes:
    """Return what bubblewrap reported: the exit status of the command, if it was started."""
    try:
        return os.read(status, STATUS_BYTES_MAX)
    except BlockingIOError:
        return b""


def options(
    profile: SandboxProfile,
    sockets: Sequence[Path] = (),
    open_one: Callable[[Path], int] | None = None,
    *,
    root: bool,
) -> list[str]:
    """Return the options for `bwrap`, which applies them in this order.

    `sockets` are hidden like the profile's hidden paths. `open_one` returns a descriptor for a
    path that another command could replace with a link.
    """
    mounts = _mounts(profile, sockets)
    whole = mounts.pop(_ROOT, None)
    words = [*(whole.options if whole else ()), "--dev", "/dev", "--proc", "/proc", *HIDE_INIT]
    if root:
        # Otherwise root could change every kernel setting in `/proc`.
        words += ["--remount-ro", "/proc"]
    descriptors = 0
    for path in sorted(mounts, key=lambda path: len(path.parts)):
        mount = mounts[path]
        # Paths that are shown in a hidden directory are mounted inside it, so it must be open.
        is_entered = mount.kind == "empty" and any(root_of(one, (path,)) for one in mounts)
        words += [*(("--perms", "0755" if is_entered else "0000") if mount.kind == "empty" else ())]
        is_own = mount in (_read(path), _write(path)) and root_of(path, profile.writable)
        if open_one and is_own and descriptors < DESCRIPTORS_MAX:
            descriptors += 1
            words += [f"{mount.options[0]}-fd", str(open_one(path)), str(path)]
        else:
            words += mount.options
    for path, mount in mounts.items():
        # Made read-only only now, after everything inside is mounted.
        if mount.kind == "empty":
            words += ["--remount-ro", str(path)]
    if whole is None:
        words += ["--remount-ro", "/"]
    # TMPDIR may name a directory that can't be written here; `/tmp` can.
    words += ["--unshare-pid", "--unshare-ipc", "--unsetenv", "TMPDIR"]
    if not profile.writes:
        words += ["--setenv", *CACHE_OF_CHECKS]
    if not profile.network:
        words.append("--unshare-net")
    if root:
        words += ["--cap-drop", "ALL"]
        if profile.writes:
            words += [word for name in ROOT_CAPABILITIES for word in ("--cap-add", name)]
    return [*words, "--chdir", str(profile.workspace)]


def _mounts(
    profile: SandboxProfile,
    sockets: Sequence[Path],
) -> dict[Path, Mount]:
    """Return how each path is mounted, parents before children."""
    mounts = {path: mount for name in profile.visible for path, mount in _visible(name)}
    for name in TEMPORARY:
        mounts[Path(name)] = _temporary(Path(name), profile.temporary)
    if home := profile.home:
        mounts[home] = Mount("new", ("--tmpfs", str(home)))
    if profile.network:
        hidden = (path for path in SCOPE_PATHS if not _is_visible(path, mounts))
        mounts |= {path: _read(path) for path in hidden}
    mounts[profile.workspace] = _read(profile.workspace)
    mounts |= {path: _write(path) for path in profile.writable}
    mounts |= {path: _read(path) for path in profile.read_only if not path.is_symlink()}
    shown = (path for path in profile.shown if path not in profile.writable)
    mounts |= {path: mount for name in shown for path, mount in _visible(name)}
    mounts |= {
        path: Mount("write", ("--bind", str(place), str(path)))
        for path, place in profile.caches
        if path.is_dir() or not _is_visible(path, mounts)
    }
    for path in (*profile.hidden, *sockets):
        is_own = path in (*profile.shown, *profile.writable, profile.workspace)
        if not is_own and _is_visible(path, mounts):
            mounts[path] = _hide(path, is_folder=path.is_dir())
            mounts |= _pins(path, mounts)
    for path in profile.read_only:
        mounts |= _pins(path, mounts)
    return mounts


def _pins(path: Path, mounts: Mapping[Path, Mount]) -> dict[Path, Mount]:
    """Return mounts of the writable directories above a path, which then can't be moved.

    A moved directory would take a hidden path to a place where later commands can see it, and a
    command could make another file at the place of a protected one.
    """
    return {
        parent: _write(parent)
        for parent in path.parents
        if parent not in mounts and (over := _mount_over(parent, mounts)) and over.kind == "write"
    }


def _visible(path: Path) -> Iterable[tuple[Path, Mount]]:
    """Return the mounts for a system path; a link stays a link, and its target is visible too."""
    if not path.is_symlink():
        return ((path, _read(path)),)
    real = Path(os.path.realpath(path))
    link = Mount("read", ("--symlink", os.readlink(path), str(path)))  # noqa: PTH115
    return ((real, _read(real)), (path, link)) if real.exists() else ()


def _read(path: Path) -> Mount:
    return Mount("read", ("--ro-bind", str(path), str(path)))


def _write(path: Path) -> Mount:
    return Mount("write", ("--bind", str(path), str(path)))


def _hide(path: Path, *, is_folder: bool) -> Mount:
    if is_folder:
        return Mount("empty", ("--tmpfs", str(path)))
    return Mount("hide", ("--ro-bind", NULL_DEVICE, str(path)))


def _temporary(path: Path, private: Path | None) -> Mount:
    if private is None:
        return Mount("new", ("--perms", "1777", "--tmpfs", str(path)))
    return Mount("new", ("--bind", str(private), str(path)))


def _sockets(profile: SandboxProfile) -> Iterable[Path]:
    """Return the listening sockets outside the workspace."""
    return (
        path
        for path in dict.fromkeys(bound_sockets())
        if not path.is_relative_to(profile.workspace) and _is_socket(path)
    )


def _is_socket(path: Path) -> bool:
    """Whether a path is a socket; False if this user, and so any command, can't access it."""
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _is_visible(path: Path, mounts: Mapping[Path, Mount]) -> bool:
    """Whether a path has the same content inside the sandbox as outside."""
    over = _mount_over(path, mounts)
    return over is not None and over.kind in ("read", "write")


def _mount_over(path: Path, mounts: Mapping[Path, Mount]) -> Mount | None:
    """Return the innermost mount that contains a path."""
    return next((mounts[one] for one in (path, *path.parents) if one in mounts), None)
