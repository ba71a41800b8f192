"""API keys from an environment variable, a command, a file or the keyring.

A key is sent in a request header and must not appear anywhere else. `Key.secrets` lists the values
to redact from other text; `Key.advice` is safe to show to the user.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import trio

from tiller_daemon.config import KeyPlaces
from tiller_daemon.isolation import why_missing
from tiller_daemon.service_manager import has_service_manager

FETCH_TIMEOUT_S = 60.0
"""Limit for a command or the keyring. It is long because both may ask for a passphrase."""

KEY_BYTES_MAX = 64 * 1024
"""How much of a file or of a command's output is read. Cloud tokens have a few thousand bytes."""

KEYS_REMEMBERED_MAX = 32
"""How many keys of one provider are remembered for redaction; some are replaced every hour."""

KEYRING_SERVICE = "tiller"

_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyUnavailable(Exception):
    """There is no key. The message says why and what to do, in whole sentences."""


class Key:
    """One provider's key, fetched when it is first needed.

    `fetch` returns the key or raises `KeyUnavailable`.
    """

    noun = "key"
    """What this is, in messages."""
    forbidden_advice = ""
    """What to do if a server permits no request with this key; empty if the key may be wrong."""
    quota_advice = "Check your plan and billing there."
    """What to do if the quota is used up."""
    variable: str = ""
    """The environment variable that holds the key, if the key comes from a variable."""

    def __init__(
        self, source: str, fetch: Callable[[], Awaitable[str]], problem: Callable[[], str]
    ) -> None:
        self.source = source
        """The name of the key's source in messages; empty for `NoKey`."""
        self.problem = problem
        """Says why there is no key, as far as known without fetching it; empty if all is well."""
        self._fetch = fetch
        self._values: list[str] = []
        self._fetching = trio.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The current key and the keys that it replaced, without empty ones."""
        return tuple(filter(None, self._values))

    @property
    def advice(self) -> str:
        """A sentence that says what to do if a server rejects the key or demands a key."""
        return f"{'Check' if self._values else 'Set'} {self.source}."

    async def read(self) -> str:
        """Return the key, fetching it the first time. Raises `KeyUnavailable`."""
        async with self._fetching:
            if not self._values:
                self._values.append(await self._fetch())
            return self._values[-1]

    async def refresh(self, refused: str) -> bool:
        """Fetch the key again after a server rejected `refused`. Return whether it has changed."""
        async with self._fetching:
            # Another request may have refreshed the key while this one waited for the lock.
            if self._values and self._values[-1] == refused:
                try:
                    fetched = await self._fetch()
                except KeyUnavailable:
                    return False
                if fetched != refused:
                    self._values = [*self._values[-KEYS_REMEMBERED_MAX:], fetched]
            return self._values[-1] != refused if self._values else False


class NoKey(Key):
    """An empty key, for servers that need no key."""

    @property
    def advice(self) -> str:
        """A sentence that says what to do if the server demands a key after all."""
        return "Set `api_key_env` to the name of the variable that holds the key."

    def __init__(self) -> None:
        async def nothing() -> str:
            await trio.lowlevel.checkpoint()
            return ""

        super().__init__("", nothing, str)


class EnvironmentKey(Key):
    """A key from the daemon's environment, which does not change."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        key = environ.get(name, "").strip()
        # A service does not get the variables of the user's shell.
        where = " in the file `environment` beside config.toml" if has_service_manager() else ""
        problem = (
            f"The key is expected in the variable {name}, which is not set in the daemon's "
            f"environment. Set it{where}, then run `tiller daemon restart`."
        )

        async def fetch() -> str:
            await trio.lowlevel.checkpoint()
            if not key:
                raise KeyUnavailable(problem)
            return key

        super().__init__(f"the variable {name}", fetch, lambda: "" if key else problem)
        self.variable = name
        # Redacted from the start, because commands and servers may know the variable too.
        self._values += [key] if key else []


def find_key(
    settings: KeyPlaces, environ: Mapping[str, str], secret_names: Collection[str]
) -> Key | None:
    """Return the key that `settings` name, or None if they name no key.

    A command that prints a key runs without the variables in `secret_names`.
    """
    if settings.api_key_env:
        return EnvironmentKey(settings.api_key_env, environ)
    if settings.api_key_command:
        return key_from_command(settings.api_key_command, environ, secret_names)
    if settings.api_key_file:
        return key_from_file(Path(settings.api_key_file))
    if settings.api_key_keyring:
        return key_from_keyring(settings.api_key_keyring)
    return None


def key_from_command(
    command: Sequence[str], environ: Mapping[str, str], secret_names: Collection[str]
) -> Key:
    """Return a key that a command prints as its first line.

    The command runs without a shell, in the daemon's environment without the variables in
    `secret_names`. Processes that it leaves running, such as a gpg agent, are not stopped.
    """
    described = f"command `{command[0]}` that prints the key"
    variables = {key: value for key, value in environ.items() if key not in secret_names}

    def problem() -> str:
        if shutil.which(command[0], path=environ.get("PATH")):
            return ""
        return f"The {described} can't be started. {why_missing(command[0])}"

    async def fetch() -> str:
        try:
            with trio.fail_after(FETCH_TIMEOUT_S):
                status, printed = await _run(command, variables)
        except OSError as error:
            raise KeyUnavailable(f"The {described} can't be started: {error.strerror}.") from None
        except trio.TooSlowError:
            message = f"The {described} took longer than {FETCH_TIMEOUT_S:g} seconds."
            raise KeyUnavailable(message) from None
        if status != 0:
            message = f"The {described} failed with status {status}. Run it yourself to see why."
            raise KeyUnavailable(message)
        nothing = f"The command `{command[0]}` should print the key, but printed nothing."
        return _first_line(printed, nothing)

    return Key(f"the {described}", fetch, problem)


def key_from_file(path: Path) -> Key:
    """Return a key on the first line of a file, which other users must not be able to access."""

    def problem() -> str:
        try:
            os.close(_open_private(path))
        except KeyUnavailable as error:
            return str(error)
        return ""

    async def fetch() -> str:
        await trio.lowlevel.checkpoint()
        with open(_open_private(path), "rb") as opened:  # noqa: ASYNC230 - reads one line
            return _first_line(opened.read(KEY_BYTES_MAX), f"The file {path} contains no key.")

    return Key(f"the file {path}", fetch, problem)


def key_from_keyring(entry: str) -> Key:
    """Return a key in the desktop keyring, under the service `tiller`."""
    described = f"entry `{entry}` of the service `{KEYRING_SERVICE}` in the keyring"

    def problem() -> str:
        if find_spec("keyring"):
            return ""
        return "The key is in the keyring. Reading it needs `pip install 'tillerd[keyring]'`."

    def look() -> str | None:
        import keyring

        return keyring.get_password(KEYRING_SERVICE, entry)

    async def fetch() -> str:
        try:
            with trio.fail_after(FETCH_TIMEOUT_S):
                # The keyring may ask for a passphrase and can't be cancelled.
                found = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
        except trio.TooSlowError:
            raise KeyUnavailable(
                f"The keyring did not answer within {FETCH_TIMEOUT_S:g} seconds."
            ) from None
        except Exception as error:
            raise KeyUnavailable(
                f"The keyring can't be read ({type(error).__name__}). To see why, run "
                f"`keyring get {KEYRING_SERVICE} {entry}`."
            ) from None
        missing = (
            f"The {described} does not exist. Create it with "
            f"`keyring set {KEYRING_SERVICE} {entry}`."
        )
        return _first_line((found or "").encode(), missing)

    return Key(f"the {described}", fetch, problem)


async def _run(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, bytes]:
    """Return the exit status and stdout of a command. stderr is discarded."""
    printed = b""
    async with trio.open_nursery() as nursery:
        start = partial(
            trio.run_process,
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            env=variables,
        )
        process: trio.Process = await nursery.start(start)
        assert process.stdout
        async for piece in process.stdout:
            printed += piece
            # A program that prints without end must not fill the daemon's memory.
            if len(printed) > KEY_BYTES_MAX:
                nursery.cancel_scope.cancel()
    return process.returncode or 0, printed


def _open_private(path: Path) -> int:
    """Open a file that no other user can access. Raises `KeyUnavailable`."""
    try:
        # Without O_NONBLOCK, opening a FIFO would block until it has a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyUnavailable(f"The file {path} can't be read: {error.strerror}.") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and not mode & _GROUP_AND_OTHERS:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(mode):
        raise KeyUnavailable(
            f"Other users can read {path}, which contains the key. Run `chmod 600 {path}`."
        )
    raise KeyUnavailable(f"{path} is not a regular file, so it can't contain a key.")


def _first_line(data: bytes, otherwise: str) -> str:
    lines = data.decode(errors="replace").strip().splitlines()
    if not lines or not lines[0].strip():
        raise KeyUnavailable(otherwise)
    return lines[0].strip()
