"""Custom commands: Markdown files that `/NAME arguments` stands for. Found and filled in here.

Filling in puts text in the place of other text; nothing is run.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from tiller_daemon.workspace.documents import (
    MayRead,
    RefusedDocument,
    names_in,
    read_document,
    read_project_document,
)
from tiller_daemon.workspace.front_matter import FrontMatterError, parse

SUFFIX: Final = ".md"
USER_FOLDER: Final = "commands"
PROJECT_FOLDER: Final = Path(".tiller", "commands")

FILE_BYTES_MAX: Final = 64 * 1024
"""A longer file is refused: half a command is none."""

LISTED_MAX: Final = 200
"""Commands in a list; the others can still be used."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_CALL: Final = re.compile(rf"/({NAME.pattern})(?:\s+(.*))?\Z", re.DOTALL)
_PLACE: Final = re.compile(r"\$(ARGUMENTS\b|[1-9])")
_WORD: Final = re.compile(r'"([^"]*)"|\'([^\']*)\'|(\S+)')


class Command(NamedTuple):
    """`agent` and `model` are for the turn that it starts; with a `problem` it can't be used."""

    name: str
    description: str = ""
    agent: str | None = None
    model: str | None = None
    template: str = ""
    problem: str = ""


class CommandCall(NamedTuple):
    """What a user typed: the name of a command, perhaps, and the rest."""

    name: str
    arguments: str


class _Head(Struct, frozen=True):
    description: str = ""
    agent: str | None = None
    model: str | None = None


def read_call(text: str) -> CommandCall | None:
    """Return what `/NAME rest` says; None for any other text. Paths are none: `/usr/bin`."""
    found = _CALL.match(text)
    return CommandCall(found[1], (found[2] or "").strip()) if found else None


def find_command(
    name: str, workspace: Path | None, config: Path, may_read: MayRead
) -> Command | None:
    """Return the user's command of that name, or else that of the workspace, if one is given.

    A project's names no agent: it could choose one that may do more than the session's. Its file
    must be one that a model `may_read`.
    """
    if document := read_document(config / USER_FOLDER / f"{name}{SUFFIX}", None, FILE_BYTES_MAX):
        return _parse(name, document.text, cut=document.cut)
    if workspace is None:
        return None
    path = workspace / PROJECT_FOLDER / f"{name}{SUFFIX}"
    document = read_project_document(path, workspace, FILE_BYTES_MAX, may_read)
    if isinstance(document, RefusedDocument):
        return Command(name, problem=f"its file is not read: {document.why}")
    if document is None:
        return None
    return _parse(name, document.text, cut=document.cut)._replace(agent=None)


def list_commands(workspace: Path | None, config: Path, may_read: MayRead) -> tuple[Command, ...]:
    """Return the user's commands and those of the workspace, if one is given, by name."""
    folders = [config / USER_FOLDER] + ([workspace / PROJECT_FOLDER] if workspace else [])
    names = {name.removesuffix(SUFFIX) for f in folders for name in names_in(f) if SUFFIX in name}
    usable = sorted(name for name in names if NAME.fullmatch(name))[:LISTED_MAX]
    found = (find_command(name, workspace, config, may_read) for name in usable)
    return tuple(command for command in found if command)


def expand(template: str, arguments: str, chars_max: int) -> str | None:
    """Fill in `$ARGUMENTS` and `$1` … `$9`; None when that would exceed `chars_max`.

    The words of `$1` … may stand in quotes; what is not given is empty. Arguments that have no
    place in the template are added at its end. What was filled in is not looked at again.
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
    if sum(map(len, pieces)) > chars_max:
        return None
    return "".join(pieces).strip()


def _parse(name: str, text: str, *, cut: bool) -> Command:
    if cut:
        return Command(name, problem=f"its file is longer than {FILE_BYTES_MAX // 1024} KiB")
    try:
        head, body = parse(text, _Head)
    except FrontMatterError as error:
        return Command(name, problem=str(error))
    if not body.strip():
        return Command(name, head.description, problem="its file has no text")
    return Command(name, " ".join(head.description.split()), head.agent, head.model, body)
