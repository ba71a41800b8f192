"""Skills: folders with a `SKILL.md` that explains how to do something.

Only a skill's name, description and path go into the prompt; the model reads the file when needed.
"""

import os
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from tiller_daemon.files.paths import printable
from tiller_daemon.workspace.documents import (
    MayRead,
    RefusedDocument,
    names_in,
    read_project_document,
)
from tiller_daemon.workspace.front_matter import HEAD_BYTES_MAX, FrontMatterError, parse

FILE: Final = "SKILL.md"
PROJECT_FOLDER: Final = Path(".agents", "skills")
USER_FOLDER: Final = "skills"

SKILLS_MAX: Final = 100
"""The most skills that are listed; each costs some 50 tokens in every request."""

DESCRIPTION_CHARS_MAX: Final = 1024  # https://agentskills.io/specification
NAME_CHARS_MAX: Final = 64
_BEGINNING_BYTES: Final = HEAD_BYTES_MAX + 64
"""How much of a file is read: the front matter with its fences. The model reads the body."""


class Skill(NamedTuple):
    """A skill; `path` is the absolute path of its `SKILL.md`.

    If there is a `problem` (a clause), the skill is not offered, and `name` is its path.
    """

    name: str
    description: str
    path: str
    problem: str = ""


class _Head(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    description: Annotated[str, Meta(min_length=1, max_length=DESCRIPTION_CHARS_MAX)]


def find_skills(workspace: Path, config: Path, may_read: MayRead) -> tuple[Skill, ...]:
    """Return the user's skills and then the project's, each sorted by folder name.

    If two skills have the same name, the user's counts. A file that can't be used has a `problem`,
    also a project's file that leads out of the workspace, or that no model `may_read` without
    approval.
    """
    skills: dict[str, Skill] = {}
    for folder, within in ((config / USER_FOLDER, None), (workspace / PROJECT_FOLDER, workspace)):
        for name in names_in(folder):
            skill = _read(folder / name / FILE, within, may_read)
            if skill is None:
                continue
            if len(skills) == SKILLS_MAX:
                why = f"there are more than {SKILLS_MAX} skills, so this one and later ones are not"
                skills[str(folder)] = _unusable(skill.path, f"{why} listed")
                return tuple(skills.values())
            known = skills.setdefault(skill.name, skill)
            # The user's skills come first, so they win; anything else is a mistake.
            if known is not skill and Path(known.path).is_relative_to(folder):
                why = f"{known.path} has the same name, {skill.name}"
                skills[skill.path] = _unusable(skill.path, why)
    return tuple(skills.values())


def _read(path: Path, within: Path | None, may_read: MayRead) -> Skill | None:
    document = read_project_document(path, within, _BEGINNING_BYTES, may_read)
    if document is None:
        why = "it can't be read, or is not a regular file"
        return _unusable(printable(path), why) if os.path.lexists(path) else None
    if isinstance(document, RefusedDocument):
        return _unusable(printable(path), document.why)
    try:
        head, _ = parse(document.text, _Head)
    except FrontMatterError as error:
        return _unusable(printable(path), str(error))
    return Skill(_line(head.name), _line(head.description), printable(path))


def _unusable(path: str, problem: str) -> Skill:
    return Skill(path, "", path, problem)


def _line(text: str) -> str:
    return " ".join(text.split())
