"""Which agent a name means: those built in, the user's own, the project's.

The user's files and configuration add to what is built in under the same name. A project that is
trusted can only add names.
"""

from collections.abc import Mapping

from tiller_daemon.config import Agent
from tiller_daemon.config.options import merge_options
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.project_trust import trusted_workspace
from tiller_daemon.session.read_access import may_read
from tiller_daemon.session.services import Services
from tiller_daemon.tools.similar import did_you_mean
from tiller_daemon.turn.prompt import DEFAULT_PROMPT, EXPLORE_PROMPT, GENERAL_PROMPT, PLAN_PROMPT
from tiller_daemon.workspace.agents import FoundAgent, project_agents, user_agents

DEFAULT_AGENT = "build"

BUILT_IN: Mapping[str, Agent] = {
    DEFAULT_AGENT: Agent(
        description="Reads, writes and runs commands; the default.", prompt=DEFAULT_PROMPT
    ),
    "plan": Agent(
        description="Looks and makes a plan; changes nothing.", prompt=PLAN_PROMPT, read_only=True
    ),
    "explore": Agent(
        description="Finds its way in the code and answers in short; changes nothing.",
        prompt=EXPLORE_PROMPT,
        read_only=True,
    ),
    "general": Agent(
        description="Does one task from begin to end and reports what came of it.",
        prompt=GENERAL_PROMPT,
    ),
}


def list_agents(services: Services, workspace: str | None) -> dict[str, FoundAgent]:
    """Return all agents by name; without a workspace those of no project."""
    configured = services.user.configuration().agents
    written = user_agents(services.user.config_directory)
    agents: dict[str, FoundAgent] = {}
    for name in (*BUILT_IN, *configured, *written):
        file = written.get(name, FoundAgent(Agent()))
        agent = _layered(BUILT_IN.get(name, Agent()), file.agent)
        agents[name] = FoundAgent(_layered(agent, configured.get(name, Agent())), file.problem)
    if place := trusted_workspace(services, workspace):
        # Which rules an agent adds is known only when it is read: these are those below it.
        unasked = may_read(place, services.user.configuration().permissions)
        agents = project_agents(place, unasked) | agents
    return agents


def find_agent(services: Services, workspace: str, name: str) -> Agent:
    """Return the agent; raises `RejectionError` that lists the others, or says what is wrong."""
    return choose_agent(list_agents(services, workspace), name)


def choose_agent(agents: Mapping[str, FoundAgent], name: str) -> Agent:
    """As `find_agent`, of those that are there."""
    if name not in agents:
        there_are = ", ".join(sorted(agents))
        hint = did_you_mean(name, agents)
        raise RejectionError(
            "invalid_settings", f"There is no agent {name!r}.{hint} Agents: {there_are}."
        )
    agent, problem = agents[name]
    if problem:
        raise RejectionError("invalid_settings", f"The agent {name} can't be used: {problem}.")
    return agent


def _layered(base: Agent, override: Agent) -> Agent:
    """What `override` says, and where it says nothing `base`; the rules are of both."""
    return Agent(
        description=override.description or base.description,
        prompt=base.prompt if override.prompt is None else override.prompt,
        model=override.model or base.model,
        permissions=(*base.permissions, *override.permissions),
        tools=base.tools if override.tools is None else override.tools,
        options=merge_options(base.options, override.options),
        read_only=base.read_only if override.read_only is None else override.read_only,
    )
