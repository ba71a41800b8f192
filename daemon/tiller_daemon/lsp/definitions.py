"""Lists the language servers and finds those that handle a file. Does not start servers.

A program inside a repository may be hostile, and is used only if the user's configuration has its
absolute path (see `isolation`). Servers that would run such programs must be configured.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from tiller_daemon.config import LanguageServer
from tiller_daemon.config.language_servers import KNOWN, RUNS_THE_REPOSITORY
from tiller_daemon.isolation import find_program, is_program


class ServerDefinition(LanguageServer, frozen=True, kw_only=True):
    """How to start a server, and which files it handles; defaults are already filled in."""

    name: str
    """The server's name in the configuration."""
    configured: bool = False
    """Whether the user's configuration names the server."""

    @property
    def is_sandboxed(self) -> bool:
        """Whether the server runs in a sandbox, because it only reads the workspace.

        Otherwise it would tell the model what is in files that rules protect.
        """
        return self.name in KNOWN and self.name not in RUNS_THE_REPOSITORY

    @property
    def program(self) -> str:
        """The program to run. A bare name is looked up in the trusted directories of PATH."""
        return self.command[0] if self.command else ""

    def language_of(self, file: Path) -> str | None:
        """Return the language identifier of a file, or `None` if the server does not handle it."""
        name = file.name
        return next((id_ for ending, id_ in self.files.items() if name.endswith(ending)), None)


class ServerMatch(NamedTuple):
    """A server that handles a file, the path of its program, and the root of its project."""

    definition: ServerDefinition
    program: str
    root: Path


def list_definitions(configured: Mapping[str, LanguageServer]) -> tuple[ServerDefinition, ...]:
    """Return all servers that may be started, configured ones first."""
    enabled = [_configured_definition(name, one) for name, one in configured.items() if one.enabled]
    known = [
        ServerDefinition(name=name, **structs.asdict(one))
        for name, one in KNOWN.items()
        if name not in configured and name not in RUNS_THE_REPOSITORY
    ]
    return (*enabled, *known)


def find_servers(
    definitions: Iterable[ServerDefinition], file: Path, workspace: Path, search: str
) -> tuple[ServerMatch, ...]:
    """Return the installed servers to use for a file.

    If the configuration names servers for such files, all of these are used; otherwise only the
    first built-in server. `search` is the value of PATH.
    """
    candidates = [definition for definition in definitions if definition.language_of(file)]
    if not candidates:
        return ()
    configured = [definition for definition in candidates if definition.configured]
    installed = (
        ServerMatch(definition, program, _root(definition, file, workspace))
        for definition in configured or candidates
        if (program := server_program(definition, search))
    )
    return tuple(installed if configured else islice(installed, 1))


def server_program(definition: ServerDefinition, search: str) -> str | None:
    """Return the path of a server's program, if it is installed."""
    name = definition.program
    if name.startswith("/"):
        return name if is_program(name) else None
    return find_program(name, search)


def _configured_definition(name: str, configured: LanguageServer) -> ServerDefinition:
    known = KNOWN.get(name, LanguageServer())
    values = {
        field: getattr(configured, field) or getattr(known, field)
        for field in ("command", "files", "root_markers", "initialization", "settings")
    }
    return ServerDefinition(name=name, configured=True, **values)


def _root(definition: ServerDefinition, file: Path, workspace: Path) -> Path:
    """Return the nearest directory above the file, up to the workspace, that holds a marker."""
    for directory in file.parents:
        if any((directory / marker).exists() for marker in definition.root_markers):
            return directory
        if directory == workspace:  # directories above are not part of the user's project
            break
    return workspace
