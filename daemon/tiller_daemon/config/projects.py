"""Which projects the user trusts: only then counts what a workspace's `.tiller` brings.

Trust is bound to the content, not to the place alone: what has changed is not trusted any more.
What a trusted project's configuration may say is in `load`; agents and commands are found in
`workspace`.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tiller_daemon.config.load import PROJECT_FILE
from tiller_daemon.config.schema import Configuration, ConfigurationError
from tiller_daemon.private import open_private

FOLDERS: Final = ("agents", "commands", "hooks")
"""What counts beside `config.toml`, all below `.tiller`."""

FILES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 1024 * 1024
"""More files, or larger ones, are not looked through; such a project can't be trusted."""

CONFIG_BYTES_MAX: Final = 64 * 1024
"""The same for `config.toml`, which is read before it is trusted, to show its hooks: some 0.1 s."""

CONFIG_TOO_LARGE: Final = f"its `config.toml` has more than {CONFIG_BYTES_MAX // 1024} KiB"
PROJECT_TOO_LARGE: Final = "it has more than can be looked through, or something that is no file"


class Project(NamedTuple):
    """What a workspace brings. Without a `digest` it brings nothing, or with a `problem` too much.

    `files` are relative to the workspace; `text` is that of its `config.toml`.
    """

    workspace: Path
    digest: str = ""
    files: tuple[str, ...] = ()
    trusted: bool = False
    problem: str = ""
    text: str = ""


class TrustError(Exception):
    """A project that can't be trusted as asked; the message says why."""


class _TrustFile(msgspec.Struct):
    """What is in the file: the digest of each workspace that is trusted."""

    projects: dict[str, str] = {}


class _CachedConfiguration(NamedTuple):
    """The configuration for a project, on top of the user's own as it was."""

    digest: str
    base: Configuration
    configuration: Configuration


class TrustedProjects:
    """The projects that are trusted, kept in `file`; without one in memory.

    `base` is the user's own configuration, `load` that with a trusted project's on top of it.
    """

    def __init__(
        self,
        file: Path | None,
        base: Callable[[], Configuration],
        load: Callable[[Path], Configuration],
    ) -> None:
        self._file: Final = file
        self._base: Final = base
        self._load: Final = load
        self._trusted: Final = _read(file)
        self._cache: dict[Path, _CachedConfiguration] = {}

    def inspect(self, workspace: str | Path) -> Project:
        """What a workspace brings now; quick when it brings nothing."""
        place = Path(os.path.realpath(workspace))
        if not os.path.lexists(place / PROJECT_FILE.parent):
            return Project(place)
        try:
            found = dict(_read_contents(place))
        except (OSError, _TooLarge):
            return Project(place, problem=PROJECT_TOO_LARGE)
        if not found:
            return Project(place)
        configuration = found.get(str(PROJECT_FILE), b"")
        if len(configuration) > CONFIG_BYTES_MAX:
            return Project(place, problem=CONFIG_TOO_LARGE)
        digest = _digest(found)
        trusted = self._trusted.get(str(place)) == digest
        # Before a NUL stands where a link leads; no TOML holds one.
        text = configuration.rpartition(b"\0")[2].decode(errors="replace")
        return Project(place, digest, tuple(found), trusted, text=text)

    def configuration(self, workspace: str | Path) -> Configuration:
        """The configuration for a workspace; raises `ConfigurationError` for a trusted one's."""
        project = self.inspect(workspace)
        if not project.trusted or str(PROJECT_FILE) not in project.files:
            return self._base()
        base, known = self._base(), self._cache.get(project.workspace)
        if known is None or known.digest != project.digest or known.base is not base:
            known = _CachedConfiguration(project.digest, base, self._load(project.workspace))
            # What was loaded must be what is trusted, whoever writes to it meanwhile.
            if self.inspect(workspace).digest != project.digest:
                return base
            self._cache[project.workspace] = known
        return known.configuration

    def trust(self, workspace: str | Path, digest: str) -> Project:
        """Trust what has this digest; raises `TrustError` when it is not what is there."""
        project = self.inspect(workspace)
        if project.problem:
            raise TrustError(f"{project.workspace} can't be trusted: {project.problem}.")
        if not project.digest or project.digest != digest:
            raise TrustError(
                f"What {project.workspace} brings is not what you were shown: look at it again."
            )
        try:
            self._load(project.workspace)
        except ConfigurationError as error:
            raise TrustError(f"It can't be used: {error.message}.") from None
        self._save({**self._trusted, str(project.workspace): digest})
        return project._replace(trusted=True)

    def untrust(self, workspace: str | Path) -> Project:
        """Trust a workspace no more, whatever it brings."""
        place = os.path.realpath(workspace)
        self._save({path: kept for path, kept in self._trusted.items() if path != place})
        return self.inspect(workspace)

    def _save(self, trusted: dict[str, str]) -> None:
        if self._file is not None:
            _write(
                self._file, msgspec.json.format(msgspec.json.encode(_TrustFile(trusted))) + b"\n"
            )
        self._trusted.clear()
        self._trusted.update(trusted)


class _TooLarge(Exception):
    pass


def _read_contents(workspace: Path) -> Iterator[tuple[str, bytes]]:
    """Every file that would count, in order; a link counts as where it leads and what is there."""
    paths = [workspace / PROJECT_FILE]
    for name in FOLDERS:
        folder = workspace / PROJECT_FILE.parent / name
        for parent, folders, names in os.walk(folder, followlinks=False):
            folders.sort()
            links = [one for one in folders if Path(parent, one).is_symlink()]
            paths += [Path(parent, one) for one in (*sorted(names), *links)]
            if len(paths) > FILES_MAX:
                raise _TooLarge
    for path in paths:
        if os.path.lexists(path):
            yield str(path.relative_to(workspace)), _read_content(path)


def _read_content(path: Path) -> bytes:
    found = b""
    if path.is_symlink():
        found = os.fsencode(path.readlink()) + b"\0"
        if not path.exists():
            return found
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as stream:
        state = os.fstat(opened)
        if not stat.S_ISREG(state.st_mode) or state.st_size > FILE_BYTES_MAX:
            raise _TooLarge
        return found + stream.read(FILE_BYTES_MAX)


def _digest(contents: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, content in contents.items():
        for part in (os.fsencode(name), content):
            whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()


def _read(file: Path | None) -> dict[str, str]:
    """Who is trusted; nobody when the file is not there or can't be understood."""
    if file is None:
        return {}
    try:
        return msgspec.json.decode(file.read_bytes(), type=_TrustFile).projects
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _write(file: Path, data: bytes) -> None:
    draft = file.with_name(f".{file.name}.new")
    draft.unlink(missing_ok=True)
    with open(draft, "xb", opener=open_private) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)
