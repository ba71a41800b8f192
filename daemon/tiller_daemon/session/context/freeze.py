"""Freezes a turn's context: merges the settings of turn, session, agent and configuration.

A running turn is not affected by later changes of these settings.
"""

from collections.abc import Container, Mapping
from itertools import islice
from typing import Any, NamedTuple

from msgspec import structs

from tiller_daemon.config import Agent, Configuration, Hook
from tiller_daemon.config.model_families import traits_of
from tiller_daemon.config.request_options import merge_options
from tiller_daemon.errors import RejectionError
from tiller_daemon.policy import globs
from tiller_daemon.sandbox.base import strictest
from tiller_daemon.session.calls.offered_tools import offered_tools, tool_specs, unknown_tool
from tiller_daemon.session.context.hosted_tools import offered_hosted_tools
from tiller_daemon.session.context.model_choice import choose_model, layers_of
from tiller_daemon.session.context.project_trust import configuration_for, hooks_for
from tiller_daemon.session.context.read_access import own_rules
from tiller_daemon.session.context.system_prompt import build_system_prompt
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.session.sub_agents.agents import DEFAULT_AGENT, choose_agent, list_agents
from tiller_daemon.session.sub_agents.sub_agent_run import DEPTH_MAX, Inherited
from tiller_daemon.tools.base import Tool
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.turn.budget import Spent
from tiller_daemon.turn.context import (
    DEFAULT_CONTEXT_WINDOW_TOKENS,
    Budgets,
    OfferedSubAgent,
    Permissions,
    PriorTotals,
    TurnCompaction,
    TurnContext,
    TurnModel,
    TurnPrompt,
)
from tiller_daemon.turn.prompt import GivenPrompt
from tiller_daemon.workspace.agents import AgentDefinition
from tiller_protocol.settings import Rule, Settings, TurnChoices, TurnOverrides
from tiller_protocol.snapshot import Snapshot, find_mark
from tiller_protocol.turns import OpenTurn

MCP_PREFIX = "mcp__"
"""The prefix of the names of MCP servers' tools."""


class FrozenTurn(NamedTuple):
    """A turn's context, and the models, tools and hooks that it was made from."""

    context: TurnContext
    """The context for `run_turn`."""
    model: ChosenModel
    """The model for the turn's steps."""
    compaction: ChosenModel
    """The model that writes summaries."""
    tools: Mapping[str, Tool]
    """The tools by the names that the model knows, including tools that it is not offered."""
    hooks: tuple[Hook, ...] = ()
    """The user's hooks, then the project's hooks if it is trusted."""
    refused_documents: tuple[str, ...] = ()
    """Documents that the system prompt leaves out, each as `path: reason`."""
    tools_of_user: Mapping[str, Tool] = {}
    """Tools for the user's own calls, which are not offered to the agent."""
    surplus_tools: tuple[str, ...] = ()
    """Tools that are not offered because the model takes no more."""


def freeze_context(
    services: Services,
    snapshot: Snapshot,
    choices: TurnChoices,
    inherited: Inherited | None = None,
) -> FrozenTurn:
    """Return the frozen state of a new turn; raises `RejectionError` for an invalid choice.

    The layers are, weakest first: configuration, a sub-agent's owner, agent, session, turn.
    """
    overrides = choices.overrides
    settings, configuration = snapshot.settings, configuration_for(services, snapshot.workspace)
    agents = list_agents(services, snapshot.workspace)
    agent_name = overrides.agent or settings.agent or DEFAULT_AGENT
    agent = choose_agent(agents, agent_name)
    model, variant = choose_model(services, layers_of(configuration, agent, settings, overrides))
    compaction = model
    if configuration.compaction_model:
        compaction = services.model(configuration.compaction_model)
    permissions = _permissions(services, snapshot, configuration, agent, overrides, inherited)
    depth = inherited.depth if inherited else 0
    traits = traits_of(model.provider_model, configuration.families)
    named = agent.tools if (chosen := _chosen_tools(settings, overrides)) is None else chosen
    hosted = offered_hosted_tools(model.hosted_tools, named, permissions)
    available = services.tools.available(snapshot.session_id)
    usable = _usable_tools(available, named, depth, model.hosted_tools, permissions)
    tools = {name: tool for name, tool in usable.items() if name not in hosted}
    # A person who names tools gets exactly these.
    edit_tool = traits.edit_tool if named is None else "both"
    suitable = offered_tools(tools, permissions.rules, edit_tool)
    # The daemon's own tools come first.
    limit = model.accepts.tools_max
    number = len(suitable) if limit is None else max(0, limit - len(hosted))
    offered, surplus = dict(islice(suitable.items(), number)), tuple(suitable)[number:]
    sub_agents = _offered_sub_agents(agents)
    given = GivenPrompt(agent.prompt or traits.prompt, model.prompt_header, choices.system)
    system, refused = build_system_prompt(services, snapshot.workspace, given, permissions)
    context = TurnContext(
        turn_id=services.new_id(),
        session_id=snapshot.session_id,
        workspace=snapshot.workspace,
        agent=agent_name,
        model=_turn_model(model, variant, agent, overrides, hosted),
        compaction=TurnCompaction(_summary_model(compaction), configuration.compaction),
        prompt=TurnPrompt(
            system=system,
            tools=tool_specs(offered, sub_agents),
            sub_agents=sub_agents,
            output_schema=overrides.output_schema,
        ),
        permissions=permissions,
        budgets=_budgets(snapshot, configuration, agent, overrides),
        before=_totals_of(snapshot),
        follow_ups=settings.follow_ups or configuration.follow_ups,
        depth=depth,
    )
    hooks = hooks_for(services, configuration, permissions)
    of_user = {n: tool for n, tool in available.items() if tool.effect == "agent"}
    return FrozenTurn(context, model, compaction, tools, hooks, refused, of_user, surplus)


def _totals_of(snapshot: Snapshot) -> PriorTotals:
    # Without items, the count is an estimate of all, which would count them twice.
    counted = snapshot.context_tokens if snapshot.context_items else 0
    return PriorTotals(snapshot.steps, counted, snapshot.context_items)


def freeze_again(services: Services, snapshot: Snapshot, turn: OpenTurn) -> FrozenTurn:
    """Return the frozen state of an unfinished turn found in the log, so that it can go on.

    It has the current rules and the model's current options, as no event records the old ones.
    Raises `RejectionError` if the turn can't go on, for example because its model no longer exists.
    """
    shown, chosen = turn.context, _choices_of(snapshot, turn)
    tools = services.tools.available(snapshot.session_id)
    available = {*tools, *services.model(shown.model).hosted_tools}
    overrides = structs.replace(
        chosen,
        agent=shown.agent,
        model=shown.model,
        variant=shown.variant,
        approve=shown.approve,
        sandbox=shown.sandbox,
        max_steps=shown.max_steps,
        turn_budget=shown.turn_budget,
        tools=tuple(name for name in shown.tools if name in available),
    )
    frozen = freeze_context(services, snapshot, TurnChoices(overrides))
    # The turn's sub-agents are limited to tools that somebody chose, not to the turn's own tools.
    allowed = _chosen_tools(snapshot.settings, chosen)
    permissions = structs.replace(frozen.context.permissions, tools=allowed)
    spent = Spent(
        turn.step + turn.delegated_steps,
        turn.usage.tokens,
        turn.cost or 0.0,
        turn.worked_s(snapshot.updated_at),
    )
    before, budgets = frozen.context.before, frozen.context.budgets
    context = structs.replace(
        frozen.context,
        turn_id=turn.turn_id,
        permissions=permissions,
        # Instructions may have changed on disk; the turn keeps the ones it began with.
        prompt=structs.replace(frozen.context.prompt, system=shown.system_prompt),
        follow_ups=shown.follow_ups,
        budgets=structs.replace(
            budgets,
            session=shown.session_budget,
            # The session's totals include this turn, which counts separately.
            spent_before=budgets.spent_before.minus(spent._replace(time_s=0.0)),
            spent=spent,
        ),
        before=structs.replace(before, steps=before.steps - turn.step, turn_steps=turn.step),
    )
    return frozen._replace(context=context)


def _choices_of(snapshot: Snapshot, turn: OpenTurn) -> TurnOverrides:
    begin = find_mark(snapshot, turn.turn_id, 0)
    choices = None if begin is None else snapshot.marks[begin].choices
    return choices.overrides if choices else TurnOverrides()


def _turn_model(
    model: ChosenModel,
    variant: str,
    agent: Agent,
    overrides: TurnOverrides,
    hosted_tools: dict[str, dict[str, Any]],
) -> TurnModel:
    of_variant = model.variants.get(variant, {})
    return TurnModel(
        name=model.name,
        provider_model=model.provider_model,
        variant=variant,
        # An unconfigured variant is passed to the provider as the reasoning effort.
        effort="" if variant in model.variants else variant,
        options=merge_options(model.options, agent.options, of_variant, overrides.options or {}),
        hosted_tools=hosted_tools,
        price=model.price,
        context_window=model.context_window or DEFAULT_CONTEXT_WINDOW_TOKENS,
        max_output_tokens=model.max_output_tokens,
    )


def _summary_model(model: ChosenModel) -> TurnModel:
    """Return the model for summaries, to which the options of agent and variant do not apply."""
    return TurnModel(
        model.name,
        model.provider_model,
        options=model.options,
        hosted_tools=model.hosted_tools,
        price=model.price,
        prompt_header=model.prompt_header,
    )


def _budgets(
    snapshot: Snapshot, configuration: Configuration, agent: Agent, overrides: TurnOverrides
) -> Budgets:
    settings = snapshot.settings
    max_steps = overrides.max_steps or settings.max_steps or agent.max_steps
    steps = snapshot.steps + snapshot.delegated_steps
    return Budgets(
        max_steps=max_steps or configuration.max_steps,
        turn=overrides.turn_budget or settings.turn_budget or configuration.turn_budget,
        session=settings.session_budget or configuration.session_budget,
        spent_before=Spent(steps, snapshot.usage.tokens, snapshot.cost or 0.0, snapshot.worked_s),
    )


def _permissions(
    services: Services,
    snapshot: Snapshot,
    configuration: Configuration,
    agent: Agent,
    overrides: TurnOverrides,
    inherited: Inherited | None,
) -> Permissions:
    """Return a turn's permissions; a sub-agent's sandbox is at least as strict as its owner's."""
    settings, above = snapshot.settings, inherited and inherited.permissions
    read_only = bool(agent.read_only) or (above is not None and above.read_only)
    mode = overrides.sandbox or settings.sandbox or configuration.sandbox.mode
    # An agent that only reads must not write through a command either.
    if read_only:
        mode = "read_only"
    if above:
        mode = strictest(mode, above.sandbox.mode)
    rules = (
        *own_rules(services, snapshot),
        # The owner's rules include the configuration's rules.
        *(above.rules if above else configuration.permissions),
        *agent.permissions,
        *(settings.permissions or ()),
    )
    return Permissions(
        rules=rules,
        approve=overrides.approve or settings.approve or configuration.approve,
        read_only=read_only,
        sandbox=structs.replace(configuration.sandbox, mode=mode),
        # A sub-agent's prompt chooses no tools, so only the owner's choice counts.
        tools=above.tools if above else _chosen_tools(settings, overrides),
        scope=above.scope if above else None,
    )


def _chosen_tools(settings: Settings, overrides: TurnOverrides) -> tuple[str, ...] | None:
    """Return the tools that the user chose for a turn or its session; None without a choice."""
    return settings.tools if overrides.tools is None else overrides.tools


def choose_tools(
    tools: Mapping[str, Tool], names: tuple[str, ...] | None, hosted_tools: Container[str] = ()
) -> dict[str, Tool]:
    """Return the tools with these names, or all tools if `names` is None.

    Raises `RejectionError` for an unknown name. Names from `hosted_tools`, which the provider runs,
    also count as known. Names of MCP tools may be glob patterns. A pattern that matches nothing is
    not an error, since the server may only be down at the moment.
    """
    if names is None:
        return dict(tools)
    chosen: dict[str, Tool] = {}
    for name in names:
        if name.startswith(MCP_PREFIX):
            chosen.update({n: tool for n, tool in tools.items() if globs.matches(name, n)})
        elif name in tools:
            chosen[name] = tools[name]
        elif name not in hosted_tools:
            raise RejectionError("invalid_settings", unknown_tool(name, tools))
    return chosen


def cleared_settings(old: Settings, names: tuple[str, ...]) -> Settings:
    """Return `old` without the named fields; raises `RejectionError` for an unknown name."""
    fields = Settings.__struct_fields__
    for name in names:
        if name not in fields:
            hint = did_you_mean(name, fields)
            raise RejectionError("invalid_settings", f"There is no setting {name!r}.{hint}")
    return structs.replace(old, **dict.fromkeys(names))


def with_grants(settings: Settings, rules: tuple[Rule, ...]) -> Settings:
    """Return `settings` with granted rules at the end, where rules are strongest."""
    return structs.replace(settings, permissions=(*(settings.permissions or ()), *rules))


def _usable_tools(
    available: Mapping[str, Tool],
    named: tuple[str, ...] | None,
    depth: int,
    hosted_tools: Container[str],
    permissions: Permissions,
) -> dict[str, Tool]:
    def is_usable(tool: Tool) -> bool:
        if tool.effect == "agent":
            return depth < DEPTH_MAX
        # A `command` tool stays: the sandbox makes its commands read-only.
        return not (permissions.read_only and tool.effect == "write")

    allowed = available
    if permissions.tools is not None:
        # The owner's model decides which hosted tools are among them.
        known = [n for n in permissions.tools if n in allowed or n.startswith(MCP_PREFIX)]
        allowed = choose_tools(available, tuple(known))
    chosen = choose_tools(available, named, hosted_tools)
    return {name: tool for name, tool in chosen.items() if name in allowed and is_usable(tool)}


def _offered_sub_agents(agents: Mapping[str, AgentDefinition]) -> tuple[OfferedSubAgent, ...]:
    return tuple(
        OfferedSubAgent(
            name,
            agent.description,
            bool(agent.read_only),
            agent.model is not None,
            agent.variant is not None,
        )
        for name, (agent, problem) in agents.items()
        if not problem
    )
