"""Connects one turn with its session: makes the ports and everything that a tool call needs."""

from collections.abc import Callable

from tiller_daemon.policy.readable import Readable
from tiller_daemon.session.background.jobs import BackgroundJobs
from tiller_daemon.session.calls.environments import Environments
from tiller_daemon.session.calls.escalation import Escalation
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.session.calls.toolbox import Toolbox
from tiller_daemon.session.calls.turn_diagnostics import TurnDiagnostics
from tiller_daemon.session.calls.turn_sandboxes import TurnSandboxes
from tiller_daemon.session.calls.turn_tools import TurnTools
from tiller_daemon.session.context.freeze import FrozenTurn
from tiller_daemon.session.editor_files import EditorsOfSession
from tiller_daemon.session.hooks import TurnHooks
from tiller_daemon.session.inputs.attachments import left_out
from tiller_daemon.session.requests import IsAllowed, Reply
from tiller_daemon.session.services import ChosenModel, Services
from tiller_daemon.session.session_parts import SessionParts
from tiller_daemon.session.sub_agents.delegation import Delegation
from tiller_daemon.session.sub_agents.owner import Owner
from tiller_daemon.session.turns.turn_changes import TurnChanges
from tiller_daemon.tools.base import FileAccess, WebAccess
from tiller_daemon.turn.ports import Emit, Ports, Spending
from tiller_daemon.turn.retry import RetriedModel
from tiller_protocol.events import AnyBody, HistoryCompacted
from tiller_protocol.items import Request, Usage
from tiller_protocol.settings import Rule


def make_emit(frozen: FrozenTurn, session: SessionParts, owner: Owner) -> Emit:
    """Return the port through which the turn puts its events into the outbox."""

    async def emit(*bodies: AnyBody) -> None:
        # A summary replaces the instructions of subdirectories that came with earlier results.
        if any(isinstance(body, HistoryCompacted) for body in bodies):
            session.files.instructions_sent.clear()
        await owner.emit(*bodies, *left_out(bodies, frozen.model))

    return emit


def make_ports(
    frozen: FrozenTurn,
    session: SessionParts,
    owner: Owner,
    changes: TurnChanges,
    hooks: TurnHooks,
    report_step: Callable[[Usage], None],
) -> Ports:
    """Return the ports of a turn; `report_step` takes the usage of the open step."""
    services, emit = session.services, make_emit(frozen, session, owner)
    permission = _permission(session, owner, hooks)
    sandboxes = TurnSandboxes(
        services.commands.sandboxes,
        frozen.context,
        permission.rules,
        services.files.spill_directory(owner.session_id),
        changes.limits,
    )
    tools = TurnTools(
        frozen.context,
        permission,
        sandboxes,
        Escalation(permission, sandboxes),
        _environments(session, owner, permission, sandboxes, emit),
        hooks,
    )
    return Ports(
        model=_retried(frozen.model, services),
        compaction_model=_retried(frozen.compaction, services),
        tools=Toolbox(frozen.tools, frozen.tools_of_user, tools),
        emit=emit,
        committed=session.outbox.committed,
        mailbox=session.queue,
        changes=changes,
        hooks=hooks,
        new_id=services.new_id,
        time=session.outbox.time,
        spending=Spending(owner.spent_by_others, report_step),
    )


def _retried(model: ChosenModel, services: Services) -> RetriedModel:
    limits = services.user.configuration().retry
    return RetriedModel(model.client, limits, services.time, services.random)


def _permission(session: SessionParts, owner: Owner, hooks: TurnHooks) -> Permission:
    services, context = session.services, owner.context

    def rules() -> tuple[Rule, ...]:
        lasting = services.user.lasting_rules.of(context.workspace)
        return (*context.permissions.rules, *owner.live_rules(), *lasting)

    def granted() -> tuple[Rule, ...]:
        settings = session.outbox.fold_pending().settings
        return (*(settings.permissions or ()), *owner.live_rules())

    async def ask(request: Request, is_allowed: IsAllowed) -> Reply:
        hooks.request_opened(request)
        return await session.requests.ask(request, context.turn_id, is_allowed)

    approve, checkout_of = context.permissions.approve, services.user.lasting_rules.checkout_of
    return Permission(context.workspace, approve, rules, ask, services.new_id, granted, checkout_of)


def _environments(
    session: SessionParts,
    owner: Owner,
    permission: Permission,
    sandboxes: TurnSandboxes,
    emit: Emit,
) -> Environments:
    services, context = session.services, owner.context
    private_addresses = services.user.configuration().fetch.private_addresses
    editors = EditorsOfSession(services.tools.editors, context.session_id, context.workspace)
    return Environments(
        context=context,
        permission=permission,
        files=FileAccess(
            versions=session.files,
            readable=Readable(permission.rules()),
            diagnostics=TurnDiagnostics(services.tools.language_servers, sandboxes),
            spill_directory=sandboxes.spill_directory,
            journals=services.files.journals,
            editors=editors,
        ),
        commands=services.commands,
        background=BackgroundJobs(session.background, session.tasks),
        web=WebAccess(private_addresses, services.commands.proxies),
        emit=emit,
        delegate=Delegation(owner, session).run,
        withdraw=session.requests.withdraw,
    )
