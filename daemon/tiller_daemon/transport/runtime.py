"""The runtime directory: its owner, its lock, and the token in it.

A daemon is alive if the lock file is locked; socket files may be leftovers. This module opens no
sockets.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Self

from tiller_daemon.private import make_directory, open_private
from tiller_daemon.transport.lock_file import LockFile, LockTaken
from tiller_protocol.places import (
    EVENTS_SOCKET,
    LOCK_FILE,
    OPS_SOCKET,
    SOCKET_PATH_BYTES_MAX,
    TOKEN_FILE,
)

SOCKETS = (OPS_SOCKET, EVENTS_SOCKET)

TOKEN_BYTES = 32
"""How many random bytes the token has; it is written as 43 characters of URL-safe base64."""


class RuntimeDirectoryError(Exception):
    """The runtime directory can't be used; the message says why and what to do."""


class AlreadyRunning(RuntimeDirectoryError):
    """Another daemon has locked the directory; `pid` is None if it has not written its pid yet.

    `option` names the option with which a daemon gets another directory.
    """

    def __init__(self, path: Path, pid: int | None, option: str = "--runtime") -> None:
        who = "another tillerd" if pid is None else f"tillerd with pid {pid}"
        super().__init__(
            f"{who} is running in {path}: use it, stop it, or give another {option} directory"
        )


class NotNeeded(RuntimeDirectoryError):
    """The crashed daemon was already replaced by another one, which has ended since."""


class RuntimeDirectory:
    """A locked runtime directory, as a context manager; enter it before any socket listens.

    Entering creates the directory (0700) if necessary, locks it, removes a dead daemon's sockets
    and writes a new token (0600). Leaving unlocks the directory; leave it after every socket is
    closed. So at most one daemon uses the directory at a time.

    `after_crash` is the stamp of the token that a crashed daemon has left in `previous`, by default
    in `path`. If the token has another stamp or is gone, the daemon was replaced since, so entering
    raises `NotNeeded`.
    """

    def __init__(self, path: Path, after_crash: str = "", previous: Path | None = None) -> None:
        self.path = path
        self._after_crash = after_crash
        self._previous = previous or path
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self._lock = LockFile(path / LOCK_FILE)
        self._sockets: dict[str, tuple[int, int] | None] = {}

    def __enter__(self) -> Self:
        """Lock the directory; raises `RuntimeDirectoryError` or its subclass `AlreadyRunning`."""
        _check_length(self.path)
        try:
            _make_directory(self.path)
            self._lock.take()
            try:
                self._initialize()
            except BaseException:
                self._lock.release()
                raise
        except LockTaken as taken:
            raise AlreadyRunning(self.path, taken.pid) from None
        except OSError as error:
            raise RuntimeDirectoryError(
                f"cannot use the runtime directory {self.path}: {error.strerror};"
                " give another --runtime directory"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the token and unlock the directory."""
        with suppress(OSError):
            (self.path / TOKEN_FILE).unlink(missing_ok=True)
        self._lock.release()

    def note_sockets(self) -> None:
        """Remember the sockets for `missing`; call this when both are listening."""
        self._sockets = {name: _identity(self.path / name) for name in SOCKETS}

    def missing(self) -> str:
        """Return the name of a missing file that frontends need to find this daemon, or "".

        A missing token is written again.
        """
        if not self._lock.is_current():
            return LOCK_FILE
        for name, identity in self._sockets.items():
            if _identity(self.path / name) != identity:
                return name
        if _identity(self.path / TOKEN_FILE) is None:
            with suppress(OSError):
                _write_token(self.path / TOKEN_FILE, self.token)
        return ""

    def _initialize(self) -> None:
        if self._after_crash and _stamp(self._previous / TOKEN_FILE) != self._after_crash:
            raise NotNeeded(
                f"the daemon of {self._previous} crashed, and another took its place; that one has"
                " ended, too; there is nothing left to replace, so this daemon does not start"
            )
        for name in SOCKETS:
            _remove_stale_socket(self.path / name)
        _write_token(self.path / TOKEN_FILE, self.token)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it does not exist."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _stamp(token: Path) -> str:
    """Return a text that identifies a token file, as frontends make it; empty if it is missing."""
    try:
        status = token.lstat()
    except OSError:
        return ""
    return f"{status.st_ino}-{status.st_mtime_ns}"


def _check_length(path: Path) -> None:
    longest = len(os.fsencode(path / EVENTS_SOCKET))
    if longest > SOCKET_PATH_BYTES_MAX:
        raise RuntimeDirectoryError(
            f"the path of the runtime directory {path} is too long: its sockets' paths have"
            f" {longest} bytes, and only {SOCKET_PATH_BYTES_MAX} are possible; give a shorter"
            " --runtime directory"
        )


def _make_directory(path: Path) -> None:
    with suppress(FileExistsError):
        make_directory(path)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise RuntimeDirectoryError(f"{path} is a link or a file, not a directory: remove it")
    if status.st_uid != os.geteuid():
        raise RuntimeDirectoryError(
            f"{path} belongs to uid {status.st_uid}, not to you: give another --runtime directory"
        )
    if status.st_mode & 0o022:
        raise RuntimeDirectoryError(
            f"other users can write to {path}: check its content, then run chmod 700 {path}"
        )
    if status.st_mode & 0o077:
        path.chmod(0o700)


def _remove_stale_socket(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):  # nng would silently delete it
        raise RuntimeDirectoryError(f"{path} exists but is not a socket: move it away")
    path.unlink()


def _write_token(path: Path, token: str) -> None:
    # Written under another name first, so that no frontend reads an incomplete token.
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with open(draft, "x", opener=open_private) as file:
        file.write(token)
    draft.replace(path)
