"""Answers questions about the daemon: what it offers, and how it is doing."""

import os

from tiller_daemon import DAEMON_VERSION
from tiller_daemon.session.context.project_trust import trusted_workspace
from tiller_daemon.session.context.read_access import may_read
from tiller_daemon.session.inputs.validation import check_workspace
from tiller_daemon.session.services import ModelSurvey, Services
from tiller_daemon.session.sub_agents.agents import list_agents
from tiller_daemon.session.supervisor import Supervisor
from tiller_daemon.workspace.commands import list_commands
from tiller_protocol.answers import CatalogResult, DaemonStatusResult
from tiller_protocol.catalog import AgentSummary, CommandSummary, SandboxSummary, ToolSummary
from tiller_protocol.ops import Catalog


def catalog(services: Services, op: Catalog, survey: ModelSurvey) -> CatalogResult:
    """Return what sessions can use in the op's workspace; raises `RejectionError`."""
    workspace, session_id = op.workspace, op.session_id or ""
    tools = tuple(
        ToolSummary(tool.name, tool.effect, tool.description, tool.server)
        for tool in services.tools.available(session_id).values()
    )
    if workspace is not None:
        check_workspace(workspace)
    agents = tuple(
        AgentSummary(
            name=name,
            description=one.description,
            model=one.model,
            read_only=bool(one.read_only),
            problem=problem,
            variant=one.variant,
            max_steps=one.max_steps,
        )
        for name, (one, problem) in list_agents(services, workspace).items()
    )
    place = trusted_workspace(services, workspace)
    unasked = may_read(place or "/", services.user.configuration().permissions)
    commands = tuple(
        CommandSummary(one.name, one.description, one.agent, one.model, one.problem, one.subtask)
        for one in list_commands(place, services.user.config_directory, unasked)
    )
    return CatalogResult(
        survey.models,
        tools,
        agents,
        commands + services.tools.servers.commands(session_id),
        services.tools.servers.summaries(session_id),
        services.tools.language_servers.summaries(),
        _sandbox(services),
        survey.providers,
        survey.offers,
        services.user.problem(),
    )


async def daemon_status(
    services: Services, supervisor: Supervisor, uptime_s: float, *, draining: bool
) -> DaemonStatusResult:
    """Return how the daemon is doing."""
    return DaemonStatusResult(
        daemon_version=DAEMON_VERSION,
        pid=os.getpid(),
        uptime_s=uptime_s,
        log_path=services.log.path,
        sessions=await services.log.count(),
        sessions_loaded=supervisor.loaded,
        turns_running=supervisor.turns_running,
        rss_bytes=_rss_bytes(),
        draining=draining,
        problems=services.log.problems(),
        recordings_path=services.user.configuration().record or "",
    )


def _sandbox(services: Services) -> SandboxSummary:
    policy = services.user.configuration().sandbox
    found = services.commands.sandboxes.search_result()
    if (sandbox := found.sandbox) is None:
        return SandboxSummary(policy.mode, policy.network, problem=found.problem)
    return SandboxSummary(
        policy.mode, policy.network, sandbox.name, limits=sandbox.limits, instead=found.instead
    )


def _rss_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 on systems without /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - no Path for /proc
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
