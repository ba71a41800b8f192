"""Freezing a turn's context: settings of turn, session, agent and configuration in one struct."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from tiller_daemon.config import Agent, Configuration, SandboxPolicy
from tiller_daemon.config.options import merge_options
from tiller_daemon.errors import RejectionError
from tiller_daemon.policy import globs
from tiller_daemon.session.agents import DEFAULT_AGENT, choose_agent, list_agents
from tiller_daemon.session.delegation import DEPTH_MAX, Inherited
from tiller_daemon.session.guidance import write_prompt
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.session.toolbox import no_tool, tool_specs
from tiller_daemon.session.trust import configuration_for
from tiller_daemon.tools.base import Tool
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.context import DEFAULT_CONTEXT_WINDOW_TOKENS, SubAgentOffered, TurnContext
from tiller_daemon.workspace.agents import FoundAgent
from tiller_daemon.workspace.sandbox import strictest
from tiller_protocol.settings import Rule, SandboxMode, Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot

MCP_PREFIX = "mcp__"
"""What the names of MCP servers' tools begin with."""


class FrozenTurn(NamedTuple):
    """A turn's context, its model, the one that writes summaries if that is another, its tools."""

    context: TurnContext
    model: ChosenModel
    compaction: ChosenModel | None
    tools: Mapping[str, Tool]


def freeze_context(
    services: Services,
    snapshot: Snapshot,
    overrides: TurnOverrides,
    inherited: Inherited | None = None,
) -> FrozenTurn:
    """Return the context of a new turn and its models; raises `RejectionError` for a bad choice.

    The layers, weakest first: configuration, whom the turn works for, agent, session, turn.
    """
    settings, configuration = snapshot.settings, configuration_for(services, snapshot.workspace)
    agents = list_agents(services, snapshot.workspace)
    agent_name = overrides.agent or settings.agent or DEFAULT_AGENT
    agent = choose_agent(agents, agent_name)
    model = services.model(overrides.model or settings.model or agent.model or configuration.model)
    named = configuration.compaction_model
    compaction = services.model(named) if named else None
    variant = overrides.variant or settings.variant or ""
    read_only = bool(agent.read_only) or (inherited is not None and inherited.read_only)
    chosen_sandbox = "read_only" if read_only else overrides.sandbox or settings.sandbox
    sandbox = _sandbox(configuration.sandbox, chosen_sandbox, inherited)
    depth = inherited.depth if inherited else 0
    offered = choose_tools(services, agent.tools if overrides.tools is None else overrides.tools)
    tools = {n: tool for n, tool in offered.items() if _fits(tool, depth, read_only=read_only)}
    sub_agents = _offered(agents) if any(t.effect == "agent" for t in tools.values()) else ()
    context = TurnContext(
        turn_id=services.new_id(),
        session_id=snapshot.session_id,
        workspace=snapshot.workspace,
        agent=agent_name,
        model=model.name,
        provider_model=model.provider_model,
        system_prompt=write_prompt(services, snapshot.workspace, agent.prompt, sandbox),
        tools=tool_specs(tools, sub_agents),
        rules=_rules(services, configuration, snapshot, agent, inherited),
        approve=overrides.approve or settings.approve or configuration.approve,
        follow_ups=settings.follow_ups or configuration.follow_ups,
        max_steps=overrides.max_steps or settings.max_steps or configuration.max_steps,
        turn_budget=overrides.turn_budget or settings.turn_budget or configuration.turn_budget,
        session_budget=settings.session_budget or configuration.session_budget,
        spent_before=_spent(snapshot),
        first_ordinal=snapshot.steps,
        counted_tokens=snapshot.context_tokens,
        counted_items=snapshot.context_items,
        compaction_model=compaction.provider_model if compaction else "",
        variant=variant,
        effort="" if variant in model.variants else variant,
        options=_options(model, agent, variant, overrides),
        compaction_options=(compaction or model).options,
        price=model.price,
        compaction_price=(compaction or model).price,
        context_window=model.context_window or DEFAULT_CONTEXT_WINDOW_TOKENS,
        max_output_tokens=model.max_output_tokens,
        output_schema=overrides.output_schema,
        read_only=read_only,
        sandbox=sandbox,
        depth=depth,
        sub_agents=sub_agents,
        hooks=configuration.hooks,
    )
    return FrozenTurn(context, model, compaction, tools)


def _options(
    model: ChosenModel, agent: Agent, variant: str, overrides: TurnOverrides
) -> dict[str, Any]:
    """The fields of the provider's own request, weakest layer first."""
    of_variant = model.variants.get(variant, {})
    return merge_options(model.options, agent.options, of_variant, overrides.options or {})


def _sandbox(
    configured: SandboxPolicy, chosen: SandboxMode | None, inherited: Inherited | None
) -> SandboxPolicy:
    """What commands may do; a sub-agent's no more than its owner's."""
    mode = chosen or configured.mode
    if inherited:
        mode = strictest(mode, inherited.sandbox)
    return structs.replace(configured, mode=mode)


def _rules(
    services: Services,
    configuration: Configuration,
    snapshot: Snapshot,
    agent: Agent,
    inherited: Inherited | None,
) -> tuple[Rule, ...]:
    """The permission rules above the built-in ones, weakest layer first."""
    below = inherited.rules if inherited else configuration.permissions
    return (
        *_own_output(services.spill_directory(snapshot.session_id)),
        *below,
        *agent.permissions,
        *(snapshot.settings.permissions or ()),
    )


def choose_tools(services: Services, names: tuple[str, ...] | None) -> dict[str, Tool]:
    """Return the named tools, or all; raises `RejectionError` for one that is not there.

    Those of MCP servers may be named by a pattern; that one is not there now is no error.
    """
    tools = services.tools()
    if names is None:
        return dict(tools)
    chosen: dict[str, Tool] = {}
    for name in names:
        if name.startswith(MCP_PREFIX):
            chosen.update({n: tool for n, tool in tools.items() if globs.matches(name, n)})
        elif name in tools:
            chosen[name] = tools[name]
        else:
            raise RejectionError("invalid_settings", no_tool(name, tools))
    return chosen


def merge_settings(old: Settings, new: Settings) -> Settings:
    """Return `old` with every field that `new` sets."""
    changed = {
        name: value
        for name in Settings.__struct_fields__
        if (value := getattr(new, name)) is not None
    }
    kept = {name: getattr(old, name) for name in Settings.__struct_fields__}
    return Settings(**{**kept, **changed})


def with_grants(settings: Settings, rules: tuple[Rule, ...]) -> Settings:
    """Return `settings` with rules that the user granted added as the last, strongest ones."""
    return merge_settings(settings, Settings(permissions=(*(settings.permissions or ()), *rules)))


def _fits(tool: Tool, depth: int, *, read_only: bool) -> bool:
    if tool.effect == "agent":
        return depth < DEPTH_MAX
    return not (read_only and tool.effect == "write")


def _offered(agents: Mapping[str, FoundAgent]) -> tuple[SubAgentOffered, ...]:
    return tuple(
        SubAgentOffered(name, agent.description, bool(agent.read_only), agent.model is not None)
        for name, (agent, problem) in agents.items()
        if not problem
    )


def _spent(snapshot: Snapshot) -> Spent:
    steps = snapshot.steps + snapshot.delegated_steps
    return Spent(steps, snapshot.usage.tokens, snapshot.cost or 0.0, snapshot.worked_s)


def _own_output(directory: Path) -> tuple[Rule, ...]:
    """Let the model read what was cut out of its own calls' output; the user's rules come after."""
    here = globs.escape(str(directory))
    return tuple(Rule("external_directory", pattern, "allow") for pattern in (here, f"{here}/*"))
