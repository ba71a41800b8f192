"""Agents in Markdown files: the front matter has the settings, and the body is the prompt.

The session combines these agents with the built-in and configured ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, structs

from tiller_daemon.config import Agent
from tiller_daemon.workspace.commands import NAME, SUFFIX
from tiller_daemon.workspace.documents import (
    Document,
    MayRead,
    RefusedDocument,
    names_in,
    read_document,
    read_project_document,
)
from tiller_daemon.workspace.front_matter import FILE_BYTES_MAX, FrontMatterError, parse_document
from tiller_protocol.settings import Rule, Steps

USER_FOLDER: Final = "agents"
PROJECT_FOLDER: Final = Path(".tiller", "agents")

AGENTS_MAX: Final = 100
"""The most files that are read from one folder."""


class AgentDefinition(NamedTuple):
    """An agent. If there is a `problem` (a clause), the agent can't be used."""

    agent: Agent
    problem: str = ""


class _Head(Struct, frozen=True):
    """The front matter of an agent's file: the fields of `Agent` that a file may set."""

    description: str = ""
    """What the agent is for."""
    model: str | None = None
    """The agent's model; absent means the session's model."""
    variant: str | None = None
    """The variant of the agent's model."""
    tools: tuple[str, ...] | None = None
    """The names or patterns of the agent's tools; absent means all tools."""
    permissions: tuple[Rule, ...] = ()
    """Rules that override the configuration's rules."""
    read_only: bool | None = None
    """Whether writing is denied."""
    max_steps: Steps | None = None
    """The most model requests per turn."""


def user_agents(config: Path) -> dict[str, AgentDefinition]:
    """Return the agents in the configuration directory, by name."""
    return _read_folder(
        config / USER_FOLDER, lambda path: read_document(path, None, FILE_BYTES_MAX)
    )


def project_agents(workspace: Path, may_read: MayRead) -> dict[str, AgentDefinition]:
    """Return the agents in the workspace, by name. Of their rules, only denials count.

    An agent's file is read only if a model `may_read` it.
    """

    def read(path: Path) -> Document | RefusedDocument | None:
        return read_project_document(path, workspace, FILE_BYTES_MAX, may_read)

    return {
        name: AgentDefinition(_only_denying(definition.agent), definition.problem)
        for name, definition in _read_folder(workspace / PROJECT_FOLDER, read).items()
    }


def _read_folder(
    folder: Path, read: Callable[[Path], Document | RefusedDocument | None]
) -> dict[str, AgentDefinition]:
    definitions: dict[str, AgentDefinition] = {}
    for file_name in names_in(folder):
        name = file_name.removesuffix(SUFFIX)
        if name == file_name or not NAME.fullmatch(name) or len(definitions) == AGENTS_MAX:
            continue
        if document := read(folder / file_name):
            definitions[name] = _parse(document)
    return definitions


def _parse(document: Document | RefusedDocument) -> AgentDefinition:
    try:
        head, body = parse_document(document, _Head)
    except FrontMatterError as error:
        return AgentDefinition(Agent(), str(error))
    agent = Agent(prompt=body.strip() or None, **structs.asdict(head))
    description = " ".join(head.description.split())
    return AgentDefinition(structs.replace(agent, description=description))


def _only_denying(agent: Agent) -> Agent:
    denials = tuple(rule for rule in agent.permissions if rule.action == "deny")
    return structs.replace(agent, permissions=denials)
