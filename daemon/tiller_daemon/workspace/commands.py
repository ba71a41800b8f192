"""Custom commands: Markdown files that users call as `/NAME arguments`.

Expanding a command only substitutes text; nothing is executed.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from tiller_daemon.workspace.documents import (
    Document,
    MayRead,
    RefusedDocument,
    names_in,
    read_document,
    read_project_document,
)
from tiller_daemon.workspace.front_matter import FILE_BYTES_MAX, FrontMatterError, parse_document

SUFFIX: Final = ".md"
USER_FOLDER: Final = "commands"
PROJECT_FOLDER: Final = Path(".tiller", "commands")

LISTED_MAX: Final = 200
"""The most commands in a list; further commands still work."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_CALL: Final = re.compile(rf"/({NAME.pattern})(?:\s+(.*))?\Z", re.DOTALL)
_PLACE: Final = re.compile(r"\$(ARGUMENTS\b|[1-9])")
_WORD: Final = re.compile(r'"([^"]*)"|\'([^\']*)\'|(\S+)')


class Command(NamedTuple):
    """A custom command."""

    name: str
    """The name that users type after the slash."""
    description: str = ""
    """A line for lists; may be empty."""
    agent: str | None = None
    """The agent for the turn that the command starts; None for the session's agent."""
    model: str | None = None
    """The model for the turn that the command starts; None for the session's model."""
    template: str = ""
    """The body of the file; see `expand`."""
    subtask: bool = False
    """Whether a sub-agent does the work; then `agent` is the sub-agent's agent."""
    problem: str = ""
    """A clause with the reason why the command can't be used; empty if it can be used."""


class CommandCall(NamedTuple):
    """A user's input that may call a command: the name after the slash, and the rest."""

    name: str
    arguments: str


class _Head(Struct, frozen=True):
    description: str = ""
    agent: str | None = None
    model: str | None = None
    subtask: bool = False


def read_call(text: str) -> CommandCall | None:
    """Parse `/NAME rest`; return None for any other text, such as the path `/usr/bin`."""
    match = _CALL.match(text)
    return CommandCall(match[1], (match[2] or "").strip()) if match else None


def find_command(
    name: str, workspace: Path | None, config: Path, may_read: MayRead
) -> Command | None:
    """Return the user's command with this name, or else the workspace's, if there is a workspace.

    A project's command can't choose an agent, because that agent might be allowed more than the
    session. The command's file is read only if a model `may_read` it.
    """
    if document := read_document(config / USER_FOLDER / f"{name}{SUFFIX}", None, FILE_BYTES_MAX):
        return _parse(name, document)
    if workspace is None:
        return None
    path = workspace / PROJECT_FOLDER / f"{name}{SUFFIX}"
    document = read_project_document(path, workspace, FILE_BYTES_MAX, may_read)
    return _parse(name, document)._replace(agent=None) if document else None


def list_commands(workspace: Path | None, config: Path, may_read: MayRead) -> tuple[Command, ...]:
    """Return the commands of the user and of the workspace, if there is one, sorted by name."""
    folders = [config / USER_FOLDER] + ([workspace / PROJECT_FOLDER] if workspace else [])
    names = {name.removesuffix(SUFFIX) for f in folders for name in names_in(f) if SUFFIX in name}
    usable = sorted(name for name in names if NAME.fullmatch(name))[:LISTED_MAX]
    commands = (find_command(name, workspace, config, may_read) for name in usable)
    return tuple(command for command in commands if command)


def expand(template: str, arguments: str, chars_max: int) -> str | None:
    """Substitute `$ARGUMENTS` and `$1` … `$9`; None if the result would exceed `chars_max`.

    Words for `$1` … may be quoted; missing words are empty. If the template has no placeholder, the
    arguments are appended. Substituted text is not expanded again.
    """
    template = template.strip()
    if not _PLACE.search(template):
        template = f"{template}\n\n$ARGUMENTS" if arguments else template
    words = ["".join(word) for word in _WORD.findall(arguments)]
    pieces: list[str] = []
    for number, piece in enumerate(_PLACE.split(template)):
        if number % 2 == 0:
            pieces.append(piece)
        elif piece == "ARGUMENTS":
            pieces.append(arguments)
        else:
            pieces.append(words[int(piece) - 1] if int(piece) <= len(words) else "")
    # Checked before joining, as `$ARGUMENTS` may occur many times.
    if sum(map(len, pieces)) > chars_max:
        return None
    return "".join(pieces).strip()


def _parse(name: str, document: Document | RefusedDocument) -> Command:
    try:
        head, body = parse_document(document, _Head)
    except FrontMatterError as error:
        return Command(name, problem=str(error))
    if not body.strip():
        return Command(name, head.description, problem="its file has no text")
    description = " ".join(head.description.split())
    return Command(name, description, head.agent, head.model, body, head.subtask)
