"""Keeps each login in a private file, and the id of this installation in another.

A file is written whole, and is on disk when `write` returns. Whoever changes a login holds its
lock, which other processes of the user respect, too.
"""

import fcntl
import os
import re
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio
from msgspec import Struct

from tiller_daemon.config.constraints import ACCOUNT_NAME
from tiller_daemon.models.accounts.chatgpt import HOST_ID_PREFIX, PLAN_SCOPE
from tiller_daemon.private import make_directory, open_private, replace_private

log = structlog.get_logger()

LOCK_POLL_S: Final = 0.05
"""How often a lock is tried that another process holds, for the second of its request."""

TOKENS_REMEMBERED_MAX: Final = 64
"""How many tokens are remembered for redaction; they are replaced every hour."""

ACCOUNTS_MAX: Final = 32

HOST_FILE: Final = "host"

is_account_name = re.compile(ACCOUNT_NAME).match


class Login(Struct, frozen=True, omit_defaults=True):
    """A registration of tiller by one user, and the tokens of the login, if there is one."""

    issuer: str
    """Who has issued the tokens; they are used only there."""
    client_id: str
    """The id that the issuer gave to tiller for this account."""
    subject: str = ""
    """The account's id at the issuer, from a verified ID token; empty until the first login."""
    email: str = ""
    """The account's address, to recognize it."""
    scopes: tuple[str, ...] = ()
    """The permissions that the user has granted."""
    access_token: str = ""
    """The current token; empty after a logout, or when the issuer has ended the login."""
    refresh_token: str = ""
    """The token for the next renewal, which replaces it. Each is valid once."""
    expires_at: float = 0.0
    """When the access token ends, in Unix seconds by this machine's clock."""
    renewable_at: float = 0.0
    """Before this time, the issuer refuses a renewal; Unix seconds by the issuer's clock."""
    model: str = ""
    """The first model of the account's list, by the provider's name."""
    ended: str = ""
    """The error with which the issuer ended the login."""

    @property
    def may_use_plan(self) -> bool:
        """Whether the user has granted the use of the plan."""
        return PLAN_SCOPE in self.scopes

    @property
    def secrets(self) -> tuple[str, ...]:
        """The tokens."""
        return tuple(filter(None, (self.access_token, self.refresh_token)))


class LoginFiles:
    """The logins by account name, each in a file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._logins: dict[str, Login] = {}
        self._tokens: list[str] = []
        for file in sorted(directory.glob("*.json")):
            if is_account_name(file.stem):
                self.reread(file.stem)

    @property
    def secrets(self) -> tuple[str, ...]:
        """All tokens that this process has used, to be redacted."""
        return tuple(self._tokens)

    def names(self) -> tuple[str, ...]:
        """Return the accounts' names in order."""
        return tuple(sorted(self._logins))

    def get(self, name: str) -> Login | None:
        """Return the login as this process last saw it."""
        return self._logins.get(name)

    def reread(self, name: str) -> Login | None:
        """Return the login as it is on disk; another process may have renewed it."""
        try:
            login = msgspec.json.decode(self._file(name).read_bytes(), type=Login)
        except FileNotFoundError:
            self._logins.pop(name, None)
            return None
        except (OSError, msgspec.MsgspecError) as error:
            # The message of a decoding error has no values in it.
            log.warning("login_unreadable", account=name, reason=str(error))
            return self._logins.get(name)
        self._remember(name, login)
        return login

    async def write(self, name: str, login: Login) -> None:
        """Store a login on disk, then use it; also if cancelled before. Raises `OSError`."""

        def store() -> None:
            make_directory(self._directory)
            replace_private(self._file(name), msgspec.json.encode(login))
            _sync(self._directory)

        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(store)
        self._remember(name, login)

    @asynccontextmanager
    async def locked(self, name: str) -> AsyncGenerator[None]:
        """Hold the account's lock. No other task or process holds it at the same time."""
        make_directory(self._directory)
        file = self._file(name).with_suffix(".lock")
        with open(file, "ab", opener=open_private) as opened:  # noqa: ASYNC230 - opens only
            while True:
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await trio.sleep(LOCK_POLL_S)
            yield

    async def host_id(self) -> str:
        """Return the id of this installation, made and stored at the first login."""
        async with self.locked(HOST_FILE):
            file = self._directory / HOST_FILE
            try:
                return file.read_text()
            except FileNotFoundError:
                made = f"{HOST_ID_PREFIX}{uuid.uuid4()}"
                await trio.to_thread.run_sync(replace_private, file, made.encode())
                return made

    def _remember(self, name: str, login: Login) -> None:
        self._logins[name] = login
        new = [token for token in login.secrets if token not in self._tokens]
        self._tokens = [*self._tokens, *new][-TOKENS_REMEMBERED_MAX:]

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _sync(directory: Path) -> None:
    """Make a new name in a directory survive a power failure."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
