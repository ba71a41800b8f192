"""The system prompt of a turn: the agent's prompt, instructions, skills and the environment.

When a turn begins, a few small files of bounded size are read. Nothing is executed.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tiller_daemon.files.paths import printable
from tiller_daemon.session.read_access import may_read
from tiller_daemon.session.services import Services
from tiller_daemon.turn.context import Permissions
from tiller_daemon.turn.prompt import (
    InstructionFile,
    PromptEnvironment,
    SkillSummary,
    system_prompt,
)
from tiller_daemon.workspace.instructions import read_instructions
from tiller_daemon.workspace.repository import Repository, find_repository
from tiller_daemon.workspace.skills import find_skills


class SystemPrompt(NamedTuple):
    """The system prompt of a turn."""

    prompt: str
    refused_documents: tuple[str, ...]
    """Documents that are left out, each as `path: reason`, for the user."""


def build_system_prompt(
    services: Services, workspace: str, agent_prompt: str | None, permissions: Permissions
) -> SystemPrompt:
    """Return the system prompt of a turn that begins now."""
    directory = Path(workspace).resolve()
    repository = find_repository(directory)
    root, config = repository.root if repository else None, services.user.config_directory
    unasked = may_read(directory, permissions.rules)
    instructions = read_instructions(directory, root, services.user.home, config, unasked)
    skills = find_skills(directory, config, unasked)
    environment = PromptEnvironment(
        workspace,
        _repository_line(repository),
        services.user.platform,
        datetime.fromtimestamp(services.time(), UTC).date().isoformat(),
        services.commands.confiner.describe(permissions.sandbox),
    )
    prompt = system_prompt(
        agent_prompt,
        environment,
        [InstructionFile(i.path, i.text) for i in instructions if not i.problem],
        [SkillSummary(s.name, s.description, s.path) for s in skills if not s.problem],
    )
    problems = [(d.path, d.problem) for d in (*instructions, *skills) if d.problem]
    return SystemPrompt(prompt, tuple(f"{path}: {problem}" for path, problem in problems))


def _repository_line(repository: Repository | None) -> str:
    if repository is None:
        return ""
    root = printable(repository.root)
    return f"{root}, on {repository.head}" if repository.head else root
