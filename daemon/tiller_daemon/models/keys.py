"""Where a provider's key comes from: a variable, a command, a file or the keyring.

The key itself goes into a header and nowhere else. A `Key` says what may be told to people
(`advice`), and holds what must never be told (`secrets`). Who takes that out of a server's words is
`http_failure`.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

import trio

FETCH_TIMEOUT_S = 60.0
"""How long a command or the keyring may take: it may ask a person for a passphrase."""

KEY_BYTES_MAX = 64 * 1024
"""Longest output or file in which a key is looked for; tokens of clouds have some thousands."""

KEYS_REMEMBERED_MAX = 32
"""Keys of one provider that are remembered, so as never to be told; some are new every hour."""

KEYRING_SERVICE = "tiller"

_FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyUnavailable(Exception):
    """There is no key; the message is half a sentence that says why and what to do."""


class KeySource(NamedTuple):
    """Where a key comes from."""

    name: str
    """The source as messages name it."""

    fetch: Callable[[], Awaitable[str]]
    """Returns the key or raises `KeyUnavailable`."""

    problem: Callable[[], str]
    """Why there is no key, as far as can be seen without fetching it; empty if all is well."""


class Key:
    """One provider's key, got when it is first needed."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._seen: list[str] = []
        self._fetching = trio.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, and those it had before."""
        return tuple(self._seen)

    @property
    def advice(self) -> str:
        """A sentence for when a server does not accept the key, or the lack of one."""
        return f"{'Check' if self._seen else 'Set'} {self._source.name}."

    def problem(self) -> str:
        """Why there is no key, as far as can be seen at once; empty when nothing is wrong."""
        return self._source.problem()

    async def read(self) -> str:
        """The key; raises `KeyUnavailable`."""
        async with self._fetching:
            if not self._seen:
                self._seen.append(await self._source.fetch())
            return self._seen[-1]

    async def refresh(self, refused: str) -> bool:
        """Get the key again after `refused` was not accepted; returns whether there is another."""
        async with self._fetching:
            if self._seen and self._seen[-1] == refused:
                try:
                    fetched = await self._source.fetch()
                except KeyUnavailable:
                    return False
                if fetched != refused:
                    self._seen = [*self._seen[-KEYS_REMEMBERED_MAX:], fetched]
            return self._seen[-1] != refused if self._seen else False


class NoKey(Key):
    """For servers that want none."""

    @property
    def advice(self) -> str:
        """What a server that wants one after all asks for."""
        return "Name the variable that holds its key with `api_key_env`."

    def __init__(self) -> None:
        async def nothing() -> str:
            await trio.lowlevel.checkpoint()
            return ""

        super().__init__(KeySource("", nothing, str))


class EnvironmentKey(Key):
    """A key in the environment of the daemon, which never changes."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        key = environ.get(name, "").strip()
        problem = f"its key is expected in the variable {name}, which is not set where the daemon"
        problem += " was started; set it and run `tiller daemon restart`"

        async def fetch() -> str:
            await trio.lowlevel.checkpoint()
            if not key:
                raise KeyUnavailable(problem)
            return key

        super().__init__(KeySource(f"the variable {name}", fetch, lambda: "" if key else problem))
        self._seen += [key] if key else []


class KeySettings(Protocol):
    """Who names a place for a key: a provider, an MCP server."""

    @property
    def api_key_env(self) -> str | None:
        """The variable that it is in."""
        ...

    @property
    def api_key_command(self) -> Sequence[str] | None:
        """The command that prints it."""
        ...

    @property
    def api_key_file(self) -> str | None:
        """The file that it is in."""
        ...

    @property
    def api_key_keyring(self) -> str | None:
        """Its entry in the keyring."""
        ...


def find_key(
    places: KeySettings, environ: Mapping[str, str], secret_names: Collection[str]
) -> Key | None:
    """The key in the place that is named; `None` if none is."""
    if places.api_key_env:
        return EnvironmentKey(places.api_key_env, environ)
    if places.api_key_command:
        return key_from_command(places.api_key_command, environ, secret_names)
    if places.api_key_file:
        return key_from_file(Path(places.api_key_file))
    if places.api_key_keyring:
        return key_from_keyring(places.api_key_keyring)
    return None


def key_from_command(
    command: Sequence[str], environ: Mapping[str, str], secret_names: Collection[str]
) -> Key:
    """A key that a command prints as its first line.

    It is run without a shell and in the daemon's environment, but without the variables in
    `secret_names`. What it leaves running, such as an agent of gpg, is let be.
    """
    name = f"the command `{command[0]}` of `api_key_command`"
    variables = {key: value for key, value in environ.items() if key not in secret_names}

    def problem() -> str:
        if shutil.which(command[0], path=environ.get("PATH")):
            return ""
        return f"{name} is not found"

    async def fetch() -> str:
        try:
            with trio.fail_after(FETCH_TIMEOUT_S):
                status, printed = await _run(command, variables)
        except OSError as error:
            raise KeyUnavailable(f"{name} can't be run: {error.strerror}") from None
        except trio.TooSlowError:
            raise KeyUnavailable(f"{name} took longer than {FETCH_TIMEOUT_S:g} seconds") from None
        if status != 0:
            raise KeyUnavailable(f"{name} failed with status {status}; run it yourself to see why")
        return _first_line(printed, f"{name} printed no key")

    return Key(KeySource(name, fetch, problem))


def key_from_file(path: Path) -> Key:
    """A key that is the first line of a file which nobody else can read."""
    name = f"the file {path}"

    def problem() -> str:
        try:
            os.close(_open_private(path))
        except KeyUnavailable as found:
            return str(found)
        return ""

    async def fetch() -> str:
        await trio.lowlevel.checkpoint()
        with open(_open_private(path), "rb") as opened:  # noqa: ASYNC230 - a line, a descriptor
            return _first_line(opened.read(KEY_BYTES_MAX), f"{name} holds no key")

    return Key(KeySource(name, fetch, problem))


def key_from_keyring(entry: str) -> Key:
    """A key in the keyring of the desktop, under the service `tiller`."""
    name = f"the entry `{entry}` of the service `{KEYRING_SERVICE}` in the keyring"

    def problem() -> str:
        if find_spec("keyring"):
            return ""
        return "its key is in the keyring, which needs `pip install 'tillerd[keyring]'`"

    def look() -> str | None:
        import keyring

        return keyring.get_password(KEYRING_SERVICE, entry)

    async def fetch() -> str:
        try:
            with trio.fail_after(FETCH_TIMEOUT_S):
                found = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
        except trio.TooSlowError:
            raise KeyUnavailable(
                f"the keyring did not answer within {FETCH_TIMEOUT_S:g} seconds"
            ) from None
        except Exception as error:
            why = f"{type(error).__name__}: the keyring can't be read"
            raise KeyUnavailable(f"{why}; see why: keyring get {KEYRING_SERVICE} {entry}") from None
        missing = f"{name} is not there; put it there: keyring set {KEYRING_SERVICE} {entry}"
        return _first_line((found or "").encode(), missing)

    return Key(KeySource(name, fetch, problem))


async def _run(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, bytes]:
    """The exit status of a command, and what it printed; its complaints are nobody's matter."""
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
            if len(printed) > KEY_BYTES_MAX:
                nursery.cancel_scope.cancel()
    return process.returncode or 0, printed


def _open_private(path: Path) -> int:
    """The descriptor of a file that is ours alone; raises `KeyUnavailable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyUnavailable(f"the file {path} can't be read: {error.strerror}") from None
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and not found.st_mode & _FOR_OTHERS:
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(found.st_mode):
        raise KeyUnavailable(
            f"others can read the file {path} that its key is in: chmod 600 {path}"
        )
    raise KeyUnavailable(f"{path} is no file that a key can be in")


def _first_line(data: bytes, otherwise: str) -> str:
    lines = data.decode(errors="replace").strip().splitlines()
    if not lines or not lines[0].strip():
        raise KeyUnavailable(otherwise)
    return lines[0].strip()
