"""Finds the runtime directory and checks it (owner, mode, token, whether a daemon runs); and stdin.

Nothing here opens a socket or starts a process.
"""

import fcntl
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tiller_client.errors import NoDaemon, NotPrivate
from tiller_client.program_name import use_host
from tiller_protocol.places import LOCK_FILE, STATE_LOCK_FILE, TOKEN_FILE, Places, find_places

if TYPE_CHECKING:
    from tiller_client.connecting.linked import LinkedDaemon

TOKEN_BYTES_MAX = 4096
"""Far more than a token needs."""

RECORD_BYTES_MAX = 8192
"""Far more than a pid and a path need."""

STDIN = 0

FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of everyone but the owner."""

_chosen: list["LinkedDaemon"] = []
"""Holds the remote daemon that this process uses by default, if it uses one."""

_known: dict[Places, "LinkedDaemon"] = {}
"""The remote daemons that this process may connect to, by their places."""


def choose_remote(daemon: "LinkedDaemon") -> None:
    """From now on, let `my_places` return this daemon's places."""
    know_remote(daemon)
    _chosen.append(daemon)
    use_host(daemon.host)


def know_remote(daemon: "LinkedDaemon") -> None:
    """From now on, let connections to this daemon's places use it."""
    _known[daemon.places] = daemon


def known_remote(places: Places) -> "LinkedDaemon | None":
    """The remote daemon with these places, or `None` if they are on this machine."""
    return _known.get(places)


def chosen_remote() -> "LinkedDaemon | None":
    """The remote daemon that this process uses, or `None`."""
    return _chosen[0] if _chosen else None


def my_places() -> Places:
    """The user's directories, according to this process's environment.

    With a remote daemon, `runtime` is the directory to which its sockets are forwarded.
    """
    if _chosen:
        return _chosen[0].places
    return find_places(os.environ, sys.platform, os.getuid())


class _Record(NamedTuple):
    """What the last daemon has written into the lock of its state directory."""

    pid: int | None
    version: str
    """Empty if the daemon has not written it."""
    runtime: Path
    is_locked: bool
    """Whether this daemon is still running."""


def runtime_of(places: Places) -> Path:
    """The runtime directory of the running daemon.

    The daemon that has locked `places.state` counts, wherever its sockets are. If there is none,
    this is `places.runtime`.
    """
    record = _read_record(places.state)
    return record.runtime if record and record.is_locked else places.runtime


def is_running(places: Places) -> bool:
    """Whether a daemon has locked the state directory or the runtime directory."""
    return _is_locked(places.state / STATE_LOCK_FILE) or lock_is_held(places.runtime)


def daemon_pid(places: Places) -> int | None:
    """The pid of the daemon, which may end at any moment, or `None` if no daemon is running."""
    record = _read_record(places.state)
    return record.pid if record and record.is_locked else lock_holder(places.runtime)


def daemon_version(places: Places) -> str:
    """The version of the running daemon, whatever protocol it speaks; empty if unknown."""
    record = _read_record(places.state)
    return record.version if record and record.is_locked else ""


def crash_stamp(places: Places) -> str:
    """The stamp of the token that the last daemon has left; empty if it was stopped."""
    record = _read_record(places.state)
    return token_stamp(record.runtime if record else places.runtime)


def _read_record(state: Path) -> _Record | None:
    """Read the lock of the state directory; raises `NotPrivate` if others can write it."""
    path = state / STATE_LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or status.st_mode & FOR_OTHERS:
            raise NotPrivate(
                f"{path} belongs to another user or is open to other users, so tiller does not "
                "trust it; check who owns it, then remove it"
            )
        first, _, runtime = file.read(RECORD_BYTES_MAX).partition(b"\n")
        if not runtime.endswith(b"\n"):  # a daemon is just writing it
            return None
        pid, version, *_ = (*first.split(b" "), b"")
        return _Record(
            int(pid) if pid.isdigit() else None,
            version.decode("ascii", errors="replace"),
            Path(os.fsdecode(runtime[:-1])),
            _is_locked_by_other(descriptor),
        )


def check_runtime(directory: Path) -> None:
    """Raise `NotPrivate` if other users can access `directory`, `NoDaemon` if it is missing."""
    try:
        status = directory.lstat()
    except FileNotFoundError:
        raise NoDaemon("no daemon has run here yet; start one with: tiller daemon start") from None
    if not stat.S_ISDIR(status.st_mode):
        raise NotPrivate(f"{directory} is not a directory; move it away and try again")
    if status.st_uid != os.getuid():
        raise NotPrivate(
            f"{directory} belongs to uid {status.st_uid}, not to you; set TILLER_HOME to a "
            "directory of your own"
        )
    if status.st_mode & FOR_OTHERS:
        raise NotPrivate(f"other users can access {directory}; fix it with: chmod 700 {directory}")


def read_token(runtime: Path) -> str:
    """Read the token of the running daemon; raises `NoDaemon` or `NotPrivate`."""
    check_runtime(runtime)
    path = runtime / TOKEN_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoDaemon("no daemon is running; start one with: tiller daemon start") from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise NotPrivate(f"{path} can't be read: {reason}; check its owner and mode") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or status.st_mode & FOR_OTHERS:
            raise NotPrivate(
                f"other users can read {path}; restart the daemon: tiller daemon restart"
            )
        return file.read(TOKEN_BYTES_MAX).decode("ascii", errors="replace").strip()


def lock_holder(runtime: Path) -> int | None:
    """The pid of the daemon, which may end at any moment, or `None` if no daemon is running.

    The daemon writes its pid once it has the lock, which it holds until it ends.
    """
    try:
        text = (runtime / LOCK_FILE).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() and lock_is_held(runtime) else None


def has_crashed(places: Places) -> bool:
    """Whether the last daemon has ended and left its token; a stopped daemon removes the token."""
    # In this order: a daemon that stops removes its token before it releases the lock.
    return not is_running(places) and bool(crash_stamp(places))


def token_stamp(runtime: Path) -> str:
    """A stamp that differs for every daemon's token file; empty if the file was removed."""
    try:
        status = (runtime / TOKEN_FILE).lstat()
    except OSError:
        return ""
    return f"{status.st_ino}-{status.st_mtime_ns}"


def lock_is_held(runtime: Path) -> bool:
    """Whether a daemon runs in this directory; it holds the lock from its start to its end.

    To find out by connecting would cost the next frontend 100 ms, as nng then waits before it
    accepts again.
    """
    return _is_locked(runtime / LOCK_FILE)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_locked_by_other(descriptor)
    finally:
        os.close(descriptor)


def _is_locked_by_other(descriptor: int) -> bool:
    """Whether a daemon has locked the file; if not, this locks it until `descriptor` is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def stdin_is_piped() -> bool:
    """Whether stdin is a pipe, a file or a socket, not a terminal, /dev/null or closed."""
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
