"""Decides which projects the user trusts. Files in a project's `.tiller` are used only with trust.

Trust is bound to a digest of these files, and not only to their place, so after any change the
project is no longer trusted. `load` restricts the configuration of a trusted project; `workspace`
finds its agents and commands.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tiller_daemon.config.load import PROJECT_FILE
from tiller_daemon.config.regular_files import read_regular
from tiller_daemon.config.schema import Configuration, ConfigurationError
from tiller_daemon.config.source import UTF_8_SIG
from tiller_daemon.private import replace_private
from tiller_daemon.stamps import Stamp, take_stamps
from tiller_protocol.project_digest import digest_of

FOLDERS: Final = ("agents", "commands", "hooks")
"""Directories below `.tiller` that are part of the digest, together with `config.toml`."""

FILES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 1024 * 1024
"""A project with more files, or larger ones, can't be trusted."""

CONFIG_BYTES_MAX: Final = 64 * 1024
"""A project with a larger `config.toml` can't be trusted. The file is parsed before it is trusted,
to show its hooks; this size takes at most some 0.2 s."""

CONFIG_TOO_LARGE: Final = f"its `config.toml` is larger than {CONFIG_BYTES_MAX // 1024} KiB"
UNREADABLE: Final = "`.tiller` has too many files, or one that is too large or can't be read"


class Project(NamedTuple):
    """The files of a workspace that need trust."""

    workspace: Path
    """The resolved path of the workspace."""
    digest: str = ""
    """The digest of all `files`; empty if there are no files, or they can't be trusted."""
    files: tuple[str, ...] = ()
    """The paths of the files, relative to the workspace."""
    trusted: bool = False
    """Whether the user trusts this digest."""
    problem: str = ""
    """Why the project can't be trusted, as a clause; empty if it can be trusted."""
    text: str = ""
    """The text of the project's `config.toml`."""


class TrustError(Exception):
    """A project can't be trusted as requested; the message says why."""


class _TrustFile(msgspec.Struct):
    """The content of the file: the trusted digest of each workspace."""

    projects: dict[str, str] = {}


class _CachedConfiguration(NamedTuple):
    """The configuration of a project whose files have this digest, on top of `base`."""

    digest: str
    base: Configuration
    configuration: Configuration


class _KnownProject(NamedTuple):
    """A project whose files were read, and their paths and stamps."""

    project: Project
    paths: Sequence[Path]
    stamps: tuple[Stamp, ...] | None


class TrustedProjects:
    """The trusted projects, stored in `file`."""

    def __init__(
        self,
        file: Path,
        base: Callable[[], Configuration],
        load: Callable[[Path], Configuration],
    ) -> None:
        """Use `base` for the user's configuration, and `load` to put a project's on top of it."""
        self._file: Final = file
        self._base: Final = base
        self._load: Final = load
        self._trusted: Final = _read(file)
        self._cache: dict[Path, _CachedConfiguration] = {}
        self._known: dict[str, _KnownProject] = {}

    def inspect(self, workspace: str | Path) -> Project:
        """Return the current files of a workspace, which are read only if they have changed."""
        place, now_ns = Path(os.path.realpath(workspace)), time.time_ns()
        known, paths, stamps = self._known.get(str(place)), [], None
        with suppress(OSError, _Unreadable):
            paths = _paths_in(place)
            stamps = take_stamps(paths, now_ns)
        if known is None or stamps is None or (known.paths, known.stamps) != (paths, stamps):
            known = _KnownProject(_read_project(place), paths, stamps)
            self._known[str(place)] = known
        return self._with_trust(known.project)

    def configuration(self, workspace: str | Path) -> Configuration:
        """Return the configuration for a workspace; raises `ConfigurationError` if invalid."""
        project = self.inspect(workspace)
        if not project.trusted or str(PROJECT_FILE) not in project.files:
            return self._base()
        base, known = self._base(), self._cache.get(project.workspace)
        if known is None or known.digest != project.digest or known.base is not base:
            known = _CachedConfiguration(project.digest, base, self._load(project.workspace))
            # The file may have changed while it was being loaded, so check the digest again.
            if self._inspect_again(workspace).digest != project.digest:
                return base
            self._cache[project.workspace] = known
        return known.configuration

    def trust(self, workspace: str | Path, digest: str) -> Project:
        """Trust the files with this digest; raises `TrustError` if they have changed."""
        project = self._inspect_again(workspace)
        if project.problem:
            raise TrustError(f"{project.workspace} can't be trusted: {project.problem}.")
        if not project.digest or project.digest != digest:
            raise TrustError(
                f"The files of {project.workspace} have changed since they were shown: review them"
                " again."
            )
        try:
            self._load(project.workspace)
        except ConfigurationError as error:
            problem = f"The configuration of {project.workspace} can't be used: {error}."
            raise TrustError(problem) from None
        self._save({**self._trusted, str(project.workspace): digest})
        return project._replace(trusted=True)

    def untrust(self, workspace: str | Path) -> Project:
        """Withdraw the trust in a workspace's project."""
        place = os.path.realpath(workspace)
        self._save({path: digest for path, digest in self._trusted.items() if path != place})
        return self.inspect(workspace)

    def _inspect_again(self, workspace: str | Path) -> Project:
        """Read the files of a workspace now, and return its project."""
        return self._with_trust(_read_project(workspace))

    def _with_trust(self, project: Project) -> Project:
        trusted = self._trusted.get(str(project.workspace)) if project.digest else None
        return project if trusted != project.digest else project._replace(trusted=True)

    def _save(self, trusted: dict[str, str]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_TrustFile(trusted))) + b"\n"
        replace_private(self._file, data)
        self._trusted.clear()
        self._trusted.update(trusted)


class _Unreadable(Exception):
    pass


def _read_project(workspace: str | Path) -> Project:
    """Read the files of a workspace, and return its project without the user's trust."""
    place = Path(os.path.realpath(workspace))
    if not os.path.lexists(place / PROJECT_FILE.parent):
        return Project(place)
    try:
        found = dict(_read_contents(place))
    except (OSError, _Unreadable):
        return Project(place, problem=UNREADABLE)
    if not found:
        return Project(place)
    configuration = found.get(str(PROJECT_FILE), b"")
    if len(configuration) > CONFIG_BYTES_MAX:
        return Project(place, problem=CONFIG_TOO_LARGE)
    # The content of a link begins with its target and a NUL, which TOML can't contain.
    text = configuration.rpartition(b"\0")[2].decode(UTF_8_SIG, errors="replace")
    return Project(place, digest_of(found), tuple(found), text=text)


def _paths_in(workspace: Path) -> list[Path]:
    """Return the paths of all files that need trust, if they exist, in a fixed order."""
    paths = [workspace / PROJECT_FILE]
    for name in FOLDERS:
        folder = workspace / PROJECT_FILE.parent / name
        for parent, folders, names in os.walk(folder, followlinks=False):
            folders.sort()
            links = [one for one in folders if Path(parent, one).is_symlink()]
            paths += [Path(parent, one) for one in (*sorted(names), *links)]
            if len(paths) > FILES_MAX:
                raise _Unreadable
    return paths


def _read_contents(workspace: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of every file that needs trust.

    The content of a link is its target followed by the content of the target.
    """
    for path in _paths_in(workspace):
        if os.path.lexists(path):
            yield str(path.relative_to(workspace)), _read_content(path)


def _read_content(path: Path) -> bytes:
    found = b""
    if path.is_symlink():
        found = os.fsencode(path.readlink()) + b"\0"
        if not path.exists():
            return found
    data = read_regular(path, FILE_BYTES_MAX + 1)
    if data is None or len(data) > FILE_BYTES_MAX:
        raise _Unreadable
    return found + data


def _read(file: Path) -> dict[str, str]:
    """Return the trusted digest of each workspace; no digests if the file is missing or damaged."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_TrustFile).projects
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
