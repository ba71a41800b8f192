"""Checks the runtime directory (owner, mode, token, whether a daemon runs), and stdin.

Nothing here opens a socket or starts a process.
"""

import fcntl
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tiller_client.errors import NoDaemon, NotPrivate
from tiller_protocol.places import LOCK_FILE, TOKEN_FILE, Places, find_places

if TYPE_CHECKING:
    from tiller_client.connecting.remote import RemoteDaemon

TOKEN_BYTES_MAX = 4096
"""Far more than a token needs."""

STDIN = 0

FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of everyone but the owner."""

_chosen: list["RemoteDaemon"] = []
"""Holds the remote daemon that this process uses, if it uses one."""


def choose_remote(daemon: "RemoteDaemon") -> None:
    """From now on, let `my_places` return this daemon's places."""
    _chosen.append(daemon)


def chosen_remote() -> "RemoteDaemon | None":
    """The remote daemon that this process uses, or `None`."""
    return _chosen[0] if _chosen else None


def my_places() -> Places:
    """The user's directories, according to this process's environment.

    With a remote daemon, `runtime` is the directory to which its sockets are forwarded.
    """
    if _chosen:
        return _chosen[0].places
    return find_places(os.environ, sys.platform, os.getuid())


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


def has_crashed(runtime: Path) -> bool:
    """Whether the last daemon has ended and left its token; a stopped daemon removes the token."""
    # In this order: a daemon that stops removes its token before it releases the lock.
    return not lock_is_held(runtime) and bool(token_stamp(runtime))


def token_stamp(runtime: Path) -> str:
    """A stamp that differs for every daemon's token file; empty if the file was removed."""
    try:
        status = (runtime / TOKEN_FILE).lstat()
    except OSError:
        return ""
    return f"{status.st_ino}-{status.st_mtime_ns}"


def lock_is_held(runtime: Path) -> bool:
    """Whether a daemon is running; it holds the lock from its start to its end.

    To find out by connecting would cost the next frontend 100 ms, as nng then waits before it
    accepts again.
    """
    try:
        descriptor = os.open(runtime / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def stdin_is_piped() -> bool:
    """Whether stdin is a pipe, a file or a socket, not a terminal, /dev/null or closed."""
    try:
        mode = os.fstat(STDIN).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
