"""Stops the daemon on a signal, or if no frontend can reach it; ends its turns."""

import signal

import structlog
import trio

from tiller_daemon.server import SubmissionServer
from tiller_daemon.service_manager import notify_service_manager
from tiller_daemon.session.supervisor import Supervisor
from tiller_daemon.transport.state_directory import HeldDirectories

log = structlog.get_logger()

STOP_S = 5.0
"""How long a daemon that is stopped `now` takes at most to exit."""

RUNTIME_CHECK_S = 1.0
"""How often the daemon checks its socket and lock files. Another daemon waits longer than this for
the state directory before it gives up."""


async def end_turns(server: SubmissionServer, supervisor: Supervisor) -> None:
    """End all turns; a drain waits for running turns, until a second request to stop."""
    log.info("stopping", drain=server.drain, turns=supervisor.turns_running)
    if server.drain:
        # STOPPING is sent later, because after it a service manager waits only a limited time.
        notify_service_manager("STATUS=waiting for turns to end")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, server.must_stop, nursery.cancel_scope)
            await supervisor.drain()
            nursery.cancel_scope.cancel()
    notify_service_manager("STOPPING=1")
    with trio.move_on_after(STOP_S) as scope:
        await supervisor.shut_down()
    if scope.cancelled_caught:
        log.error("stopped_late", after_s=STOP_S, turns=supervisor.turns_running)


async def stop_on_signal(
    server: SubmissionServer, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Stop the daemon on SIGTERM or SIGINT; the task counts as started when it would notice."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            log.info("signal", name=signal.Signals(number).name)
            server.stop(drain=False)


async def stop_when_unreachable(server: SubmissionServer, held: HeldDirectories) -> None:
    """Stop when a lock or a socket is removed, as the next frontend starts another daemon."""
    while not (path := held.missing()):
        held.state.leave_if_taken()
        await trio.sleep(RUNTIME_CHECK_S)
    log.error("runtime_file_removed", file=str(path))
    server.stop(drain=False)


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
