"""Starts the hooks on the end of a session, when it is archived or deleted."""

from functools import partial

import structlog

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.freeze import freeze_context
from tiller_daemon.session.context.project_trust import configuration_for, turn_hooks
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.services import Services
from tiller_protocol.settings import TurnChoices

log = structlog.get_logger()


def notify_session_end(services: Services, outbox: Outbox, how: str) -> None:
    """Start the hooks on the end of a session, with the hooks that its next turn would have."""
    snapshot = outbox.fold_pending()
    try:
        hooks = configuration_for(services, snapshot.workspace).hooks
        if not any(hook.on == "session_end" for hook in hooks):
            return
        frozen = freeze_context(services, snapshot, TurnChoices())
    except RejectionError as rejection:
        # A session without a valid model or configuration must still be archived or deleted.
        log.warning("hook_left_out", on="session_end", reason=rejection.message)
        return
    emit = partial(outbox.emit, turn_id=frozen.context.turn_id)
    turn_hooks(services, frozen.hooks, frozen.context, emit).session_ended(how)
