"""Makes the system prompt of a turn: given texts, instructions, skills and the environment.

A few small files of bounded size are read. Nothing is executed.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tiller_daemon.files.paths import printable
from tiller_daemon.session.context.read_access import may_read
from tiller_daemon.session.services import Services
from tiller_daemon.turn.context import Permissions
from tiller_daemon.turn.prompt import (
    GivenPrompt,
    InstructionFile,
    PromptEnvironment,
    SkillSummary,
    system_prompt,
)
from tiller_daemon.workspace.documents import MayRead
from tiller_daemon.workspace.instructions import read_instructions
from tiller_daemon.workspace.repository import Repository, find_repository
from tiller_daemon.workspace.skills import find_skills


def build_system_prompt(
    services: Services, workspace: str, given: GivenPrompt, permissions: Permissions
) -> tuple[str, tuple[str, ...]]:
    """Return the system prompt of a turn that begins now, and the documents that it leaves out.

    The documents are for the user, each as `path: reason`.
    """
    directory = services.user.projects.inspect(workspace).workspace
    rules = (*permissions.rules, *services.user.lasting_rules.of(directory))
    documents = _read_documents(services, directory, may_read(directory, rules))
    scope = permissions.scope.names if permissions.scope else None
    environment = PromptEnvironment(
        workspace,
        documents.repository,
        services.user.platform,
        _local_date(services.time()),
        services.commands.sandboxes.describe(
            permissions.sandbox, scope, asks=permissions.approve == "ask"
        ),
        scope or (),
    )
    prompt = system_prompt(given, environment, documents.instructions, documents.skills)
    return prompt, documents.refused


def _local_date(time: float) -> str:
    """Return the date where the daemon runs, with its zone: `2026-03-01 (CET, UTC+01:00)`."""
    local = datetime.fromtimestamp(time, UTC).astimezone()
    name, offset = local.tzname() or "", f"UTC{local.isoformat()[-6:]}"
    if name == "UTC":
        return f"{local.date()} (UTC)"
    # Zones without a name of their own are named by their offset, such as `-03`.
    return f"{local.date()} ({name}, {offset})" if name.isalpha() else f"{local.date()} ({offset})"


class _Documents(NamedTuple):
    """The text that files add to the system prompt, in its final form."""

    repository: str
    instructions: tuple[InstructionFile, ...]
    skills: tuple[SkillSummary, ...]
    refused: tuple[str, ...]


def _read_documents(services: Services, directory: Path, unasked: MayRead) -> _Documents:
    config = services.user.config_directory
    repository = find_repository(directory)
    root = repository.root if repository else None
    instructions = read_instructions(directory, root, services.user.home, config, unasked)
    skills = find_skills(directory, config, unasked)
    problems = [(d.path, d.problem) for d in (*instructions, *skills) if d.problem]
    return _Documents(
        _repository_line(repository),
        tuple(InstructionFile(i.path, i.text) for i in instructions if not i.problem),
        tuple(SkillSummary(s.name, s.description, s.path) for s in skills if not s.problem),
        tuple(f"{path}: {problem}" for path, problem in problems),
    )


def _repository_line(repository: Repository | None) -> str:
    if repository is None:
        return ""
    root = printable(repository.root)
    return f"{root}, on {repository.head}" if repository.head else root
