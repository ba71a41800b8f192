"""Finds agents by name: built-in agents, the user's agents, and a trusted project's agents.

The user's files and configuration override fields of a built-in agent with the same name. A project
can only add agents under new names.
"""

from collections.abc import Mapping

from msgspec import structs

from tiller_daemon.config import Agent
from tiller_daemon.config.request_options import merge_options
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.project_trust import trusted_workspace
from tiller_daemon.session.context.read_access import may_read
from tiller_daemon.session.services import Services
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.turn.prompt import EXPLORE_PROMPT, GENERAL_PROMPT, PLAN_PROMPT
from tiller_daemon.workspace.agents import AgentDefinition, project_agents, user_agents

DEFAULT_AGENT = "build"

BUILT_IN: Mapping[str, Agent] = {
    # This agent uses the prompt of the model's family.
    DEFAULT_AGENT: Agent(description="Reads and writes files, and runs commands; the default."),
    "plan": Agent(
        description="Looks around and makes a plan; changes nothing.",
        prompt=PLAN_PROMPT,
        read_only=True,
    ),
    "explore": Agent(
        description="Explores the code and gives a short answer; changes nothing.",
        prompt=EXPLORE_PROMPT,
        read_only=True,
    ),
    "general": Agent(
        description="Does one task from start to finish and reports the result.",
        prompt=GENERAL_PROMPT,
    ),
}


def list_agents(services: Services, workspace: str | None) -> dict[str, AgentDefinition]:
    """Return all agents by name; without a workspace, no project's agents are included."""
    configured = services.user.configuration().agents
    written = user_agents(services.user.config_directory)
    agents: dict[str, AgentDefinition] = {}
    for name in (*BUILT_IN, *configured, *written):
        file = written.get(name, AgentDefinition(Agent()))
        agent = _layered(BUILT_IN.get(name, Agent()), file.agent)
        agents[name] = AgentDefinition(_layered(agent, configured.get(name, Agent())), file.problem)
    if project := trusted_workspace(services, workspace):
        # An agent's own rules are known only after its file is read, so they can't apply here.
        readable = may_read(project, services.user.configuration().permissions)
        of_project = project_agents(project, readable)
        limit = services.user.configuration().max_steps
        of_project = {name: _capped(definition, limit) for name, definition in of_project.items()}
        # The user's agents win, so a project can't redefine them.
        agents = of_project | agents
    return agents


def find_agent(services: Services, workspace: str, name: str) -> Agent:
    """Return an agent; raises `RejectionError` if it is unknown or invalid."""
    return choose_agent(list_agents(services, workspace), name)


def choose_agent(agents: Mapping[str, AgentDefinition], name: str) -> Agent:
    """Return one of `agents`; raises `RejectionError` if it is unknown or invalid."""
    if name not in agents:
        names = ", ".join(sorted(agents))
        hint = did_you_mean(name, agents)
        raise RejectionError(
            "invalid_settings", f"There is no agent {name!r}.{hint} Agents: {names}."
        )
    agent, problem = agents[name]
    if problem:
        raise RejectionError("invalid_settings", f"The agent {name} can't be used: {problem}.")
    return agent


def _capped(definition: AgentDefinition, max_steps: int) -> AgentDefinition:
    """Return a project's agent with its step limit capped at the user's own limit."""
    own = definition.agent.max_steps
    if own is None or own <= max_steps:
        return definition
    return definition._replace(agent=structs.replace(definition.agent, max_steps=max_steps))


def _layered(base: Agent, override: Agent) -> Agent:
    """Return `base` with the fields that `override` sets; the rules of both apply."""
    return Agent(
        description=override.description or base.description,
        prompt=base.prompt if override.prompt is None else override.prompt,
        model=override.model or base.model,
        variant=base.variant if override.variant is None else override.variant,
        # Later rules win, so those of the override come last.
        permissions=(*base.permissions, *override.permissions),
        tools=base.tools if override.tools is None else override.tools,
        options=merge_options(base.options, override.options),
        read_only=base.read_only if override.read_only is None else override.read_only,
        max_steps=override.max_steps or base.max_steps,
    )
