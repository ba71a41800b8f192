"""Which language servers there are, and which of them are for a file. Starts nothing.

A program inside a repository is the repository's own code and is never taken by itself, nor is a
server that runs such code: only the user's configuration can name those.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from tiller_daemon.config import LanguageServer
from tiller_daemon.config.language_servers import KNOWN, RUNS_THE_REPOSITORY
from tiller_daemon.workspace.repository import find_repository

NO_MARKERS: Final[tuple[str, ...]] = ()


class ServerDefinition(Struct, frozen=True):
    """A server as it may be started. It is `configured` if the user names it."""

    name: str
    command: tuple[str, ...]
    files: dict[str, str]
    root_markers: tuple[str, ...] = NO_MARKERS
    initialization: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    configured: bool = False

    def language_of(self, file: Path) -> str | None:
        """What the protocol calls the language of a file, if the server is for it."""
        name = file.name
        return next((said for end, said in self.files.items() if name.endswith(end)), None)


class ServerMatch(NamedTuple):
    """A server that is for a file, its program, and the directory that it is started for."""

    definition: ServerDefinition
    program: str
    root: Path


def list_definitions(configured: Mapping[str, LanguageServer]) -> tuple[ServerDefinition, ...]:
    """The servers that may be started, those of the configuration first."""
    overridden = [
        _configured_definition(name, one) for name, one in configured.items() if one.enabled
    ]
    known = [
        _definition(name, one)
        for name, one in KNOWN.items()
        if name not in configured and name not in RUNS_THE_REPOSITORY
    ]
    return (*overridden, *known)


def find_servers(
    definitions: Iterable[ServerDefinition], file: Path, workspace: Path, search: str
) -> tuple[ServerMatch, ...]:
    """The servers for a file: every one that the user chose, else the first one that is there.

    `search` is the value of PATH.
    """
    fitting = [definition for definition in definitions if definition.language_of(file)]
    if not fitting:
        return ()
    configured = [definition for definition in fitting if definition.configured]
    excluded = _excluded_directory(workspace)
    found = (
        ServerMatch(definition, program, _root(definition, file, workspace))
        for definition in configured or fitting
        if (program := find_program(definition, search, excluded))
    )
    if configured:
        return tuple(found)
    first = next(found, None)
    return (first,) if first else ()


def find_program(
    definition: ServerDefinition, search: str, excluded: Path | None = None
) -> str | None:
    """Where the program of a server is; nothing below `excluded` is taken from the search path."""
    name = definition.command[0]
    if name.startswith("/"):
        return name if _is_program(name) else None
    for directory in search.split(os.pathsep):
        program = f"{directory}/{name}"
        if directory.startswith("/") and _is_program(program) and not _below(program, excluded):
            return program
    return None


def _configured_definition(name: str, configured: LanguageServer) -> ServerDefinition:
    known = KNOWN.get(name, LanguageServer())
    said = {
        field: getattr(configured, field) or getattr(known, field)
        for field in ("command", "files", "root_markers", "initialization", "settings")
    }
    return _definition(name, LanguageServer(**said), configured=True)


def _definition(name: str, server: LanguageServer, *, configured: bool = False) -> ServerDefinition:
    return ServerDefinition(
        name,
        server.command or (),
        server.files,
        server.root_markers,
        server.initialization,
        server.settings,
        configured,
    )


def _excluded_directory(workspace: Path) -> Path:
    """The repository that the workspace is in, or the workspace itself."""
    repository = find_repository(workspace)
    return repository.root if repository else workspace


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - five times quicker


def _below(program: str, excluded: Path | None) -> bool:
    if excluded is None:
        return False
    # Followed to its directory, as it is named: an environment's own link leads out to the system.
    directory = Path(os.path.realpath(Path(program).parent))
    return excluded in (directory, *directory.parents, *Path(os.path.realpath(program)).parents)


def _root(definition: ServerDefinition, file: Path, workspace: Path) -> Path:
    """The nearest directory above the file, up to the workspace, that holds a marker."""
    for directory in file.parents:
        if any((directory / marker).exists() for marker in definition.root_markers):
            return directory
        if directory == workspace:
            break
    return workspace
