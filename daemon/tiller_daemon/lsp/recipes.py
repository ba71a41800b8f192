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


class Recipe(Struct, frozen=True):
    """A server as it may be started. One that is `chosen` stands in the user's configuration."""

    name: str
    command: tuple[str, ...]
    files: dict[str, str]
    root_markers: tuple[str, ...] = NO_MARKERS
    initialization: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    chosen: bool = False

    def language_of(self, file: Path) -> str | None:
        """What the protocol calls the language of a file, if the server is for it."""
        name = file.name
        return next((said for end, said in self.files.items() if name.endswith(end)), None)


class Found(NamedTuple):
    """A server that is for a file, its program, and the directory that it is started for."""

    recipe: Recipe
    program: str
    root: Path


def list_recipes(configured: Mapping[str, LanguageServer]) -> tuple[Recipe, ...]:
    """The servers that may be started, those of the configuration first."""
    chosen = [_chosen(name, one) for name, one in configured.items() if one.enabled]
    known = [
        _recipe(name, one)
        for name, one in KNOWN.items()
        if name not in configured and name not in RUNS_THE_REPOSITORY
    ]
    return (*chosen, *known)


def find_servers(
    recipes: Iterable[Recipe], file: Path, workspace: Path, search: str
) -> tuple[Found, ...]:
    """The servers for a file: every one that the user chose, else the first one that is there.

    `search` is the value of PATH.
    """
    fitting = [recipe for recipe in recipes if recipe.language_of(file)]
    if not fitting:
        return ()
    chosen = [recipe for recipe in fitting if recipe.chosen]
    shunned = _shunned(workspace)
    found = (
        Found(recipe, program, _root(recipe, file, workspace))
        for recipe in chosen or fitting
        if (program := find_program(recipe, search, shunned))
    )
    if chosen:
        return tuple(found)
    first = next(found, None)
    return (first,) if first else ()


def find_program(recipe: Recipe, search: str, shunned: Path | None = None) -> str | None:
    """Where the program of a server is; nothing below `shunned` is taken from the search path."""
    name = recipe.command[0]
    if name.startswith("/"):
        return name if _is_program(name) else None
    for directory in search.split(os.pathsep):
        program = f"{directory}/{name}"
        if directory.startswith("/") and _is_program(program) and not _below(program, shunned):
            return program
    return None


def _chosen(name: str, configured: LanguageServer) -> Recipe:
    known = KNOWN.get(name, LanguageServer())
    said = {
        field: getattr(configured, field) or getattr(known, field)
        for field in ("command", "files", "root_markers", "initialization", "settings")
    }
    return _recipe(name, LanguageServer(**said), chosen=True)


def _recipe(name: str, server: LanguageServer, *, chosen: bool = False) -> Recipe:
    return Recipe(
        name,
        server.command or (),
        server.files,
        server.root_markers,
        server.initialization,
        server.settings,
        chosen,
    )


def _shunned(workspace: Path) -> Path:
    """The repository that the workspace is in, or the workspace itself."""
    repository = find_repository(workspace)
    return repository.root if repository else workspace


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113 - five times quicker


def _below(program: str, shunned: Path | None) -> bool:
    if shunned is None:
        return False
    # Followed to its directory, as it is named: an environment's own link leads out to the system.
    named = Path(os.path.realpath(Path(program).parent))
    return shunned in (named, *named.parents, *Path(os.path.realpath(program)).parents)


def _root(recipe: Recipe, file: Path, workspace: Path) -> Path:
    """The nearest directory above the file, up to the workspace, that holds a marker."""
    for directory in file.parents:
        if any((directory / marker).exists() for marker in recipe.root_markers):
            return directory
        if directory == workspace:
            break
    return workspace
