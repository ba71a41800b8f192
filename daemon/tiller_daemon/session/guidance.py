"""What a turn's model is told beyond its agent's prompt: gathered from the disk when a turn begins.

A few small files are read, all bounded; nothing is run.
"""

from datetime import UTC, datetime
from pathlib import Path

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.session.services import Services
from tiller_daemon.turn.prompt import Offered, Surroundings, Told, system_prompt
from tiller_daemon.workspace.instructions import read_instructions
from tiller_daemon.workspace.paths import printable
from tiller_daemon.workspace.repository import Repository, find_repository
from tiller_daemon.workspace.skills import find_skills


def write_prompt(
    services: Services, workspace: str, agent_prompt: str | None, policy: SandboxPolicy
) -> str:
    """Return the system prompt of a turn that begins now."""
    place = Path(workspace).resolve()
    repository = find_repository(place)
    instructions = read_instructions(
        place, repository.root if repository else None, services.home, services.config_directory
    )
    surroundings = Surroundings(
        workspace,
        _said(repository),
        services.platform,
        datetime.fromtimestamp(services.time(), UTC).date().isoformat(),
        services.confiner.said(policy),
    )
    return system_prompt(
        agent_prompt,
        surroundings,
        [Told(*one) for one in instructions],
        [Offered(*one) for one in find_skills(place, services.config_directory)],
    )


def _said(repository: Repository | None) -> str:
    if repository is None:
        return ""
    root = printable(repository.root)
    return f"{root}, on {repository.head}" if repository.head else root
