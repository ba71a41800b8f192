"""What a turn's model is told beyond its agent's prompt: gathered from the disk when a turn begins.

A few small files are read, all bounded; nothing is run.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tiller_daemon.files.paths import printable
from tiller_daemon.session.read_access import may_read
from tiller_daemon.session.services import Services
from tiller_daemon.turn.context import Permissions
from tiller_daemon.turn.prompt import Offered, PromptInputs, Told, system_prompt
from tiller_daemon.workspace.instructions import read_instructions
from tiller_daemon.workspace.repository import Repository, find_repository
from tiller_daemon.workspace.skills import find_skills


class SystemPrompt(NamedTuple):
    """The system prompt, and what is left out of it: sentences for the user."""

    prompt: str
    refused_documents: tuple[str, ...]


def build_system_prompt(
    services: Services, workspace: str, agent_prompt: str | None, permissions: Permissions
) -> SystemPrompt:
    """Return the system prompt of a turn that begins now."""
    place = Path(workspace).resolve()
    repository = find_repository(place)
    root, config = repository.root if repository else None, services.user.config_directory
    unasked = may_read(place, permissions.rules)
    instructions = read_instructions(place, root, services.user.home, config, unasked)
    skills = find_skills(place, config, unasked)
    prompt_inputs = PromptInputs(
        workspace,
        _said(repository),
        services.user.platform,
        datetime.fromtimestamp(services.time(), UTC).date().isoformat(),
        services.commands.confiner.said(permissions.sandbox),
    )
    prompt = system_prompt(
        agent_prompt,
        prompt_inputs,
        [Told(one.path, one.text) for one in instructions if not one.problem],
        [Offered(s.name, s.description, s.path) for s in skills if not s.problem],
    )
    problems = [(one.path, one.problem) for one in (*instructions, *skills) if one.problem]
    return SystemPrompt(prompt, tuple(f"{path}: {problem}" for path, problem in problems))


def _said(repository: Repository | None) -> str:
    if repository is None:
        return ""
    root = printable(repository.root)
    return f"{root}, on {repository.head}" if repository.head else root
