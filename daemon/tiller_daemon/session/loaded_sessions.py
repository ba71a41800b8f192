"""The sessions in memory: each is loaded from the log on demand and runs as a task.

A session that crashes is dropped, and the next op loads it again; other sessions are not affected.
The supervisor decides which op goes to which session.
"""

from collections.abc import Iterator

import structlog
import trio

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.actor import Session
from tiller_daemon.session.recovery import load_snapshot
from tiller_daemon.session.services import Services
from tiller_daemon.session.turns.resuming import may_be_resumed
from tiller_daemon.session.worktrees import make_worktree
from tiller_daemon.store.base import LogError
from tiller_daemon.turn.closing import DAEMON_STOPPED, LOG_FAILED
from tiller_daemon.worktrees.records import exists
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import SessionCreated
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot
from tiller_protocol.worktrees import WorktreeChoice

log = structlog.get_logger()

UNLOAD_AFTER_S = 300.0
"""A session without activity for this long is unloaded; the next op loads it again."""

UNLOAD_CHECK_S = 30.0
"""How often to look for idle sessions."""


class LoadedSessions:
    """The loaded sessions by id. `run` owns their tasks and must run before any is loaded."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: dict[str, Session] = {}
        self._loading: dict[str, trio.Event] = {}
        self._log_failures: dict[str, ErrorInfo] = {}
        """The errors that ended sessions in mid-turn, kept until they are in the log."""
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the sessions' tasks until cancelled; `started` once unfinished turns are closed.

        If turns are resumed instead, the start does not wait for them, but `find` waits for the
        session in question.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            unfinished = await self._services.log.unfinished()
            if self._resumes():
                # In parallel, since discovery of models and servers may take a while.
                for session_id in unfinished:
                    nursery.start_soon(self._recover, session_id)
            else:
                for session_id in unfinished:
                    await self._recover(session_id)
            task_status.started()
            while True:
                await trio.sleep(UNLOAD_CHECK_S)
                self._unload_idle()
                self.end_loans()
                self._services.histories.drop_old(self._services.time())

    async def shut_down(self) -> None:
        """End all turns and commit everything. Turns to be resumed stay unfinished in the log."""
        resumes = self._resumes()
        async with trio.open_nursery() as nursery:
            for session in self:
                nursery.start_soon(
                    _shut_down, session, resumes and may_be_resumed(session.snapshot)
                )

    def end_loans(self) -> None:
        """End frontends' loans to sessions that no longer need them."""

        def is_in_use(session_id: str) -> bool:
            session = self._sessions.get(session_id)
            return session is not None and not session.is_idle

        self._services.tools.servers.end_loans(is_in_use)

    def get(self, session_id: str) -> Session | None:
        """Return the session if it is in memory."""
        return self._sessions.get(session_id)

    async def find(self, session_id: str, *, resumes: bool = False) -> Session:
        """Return the session, loaded if necessary; raises `RejectionError` or `LogError`.

        An unfinished turn in the log is closed, or continued if the configuration says so.
        """
        # One task loads the session, and other tasks wait. Loop, as the load may fail.
        while (loading := self._loading.get(session_id)) is not None:
            await loading.wait()
        if session := self._sessions.get(session_id):
            return session
        loaded = self._loading[session_id] = trio.Event()
        try:
            if await self._services.log.session(session_id) is None:
                raise unknown_session(session_id)
            snapshot = await load_snapshot(self._services.log, session_id)
            if resumes:
                await self._services.discover(session_id)
            session = self.start(snapshot, resumes=resumes)
            # No op may reach the session before its unfinished turn is closed.
            await session.recovered.wait()
            await session.outbox.committed()
            self._log_failures.pop(session_id, None)
            return session
        finally:
            del self._loading[session_id]
            loaded.set()

    def start(self, snapshot: Snapshot, *, resumes: bool = False) -> Session:
        """Start the task of a session that is new or was read from the log."""
        # The error is kept until it is in the log, since the disk may still be full.
        failure = self._log_failures.get(snapshot.session_id)
        session = Session(self._services, snapshot, self, failure or DAEMON_STOPPED)
        self._sessions[snapshot.session_id] = session
        assert self._nursery is not None
        self._nursery.start_soon(self._run_session, session, resumes)
        return session

    async def create_owned(
        self,
        workspace: str,
        settings: Settings,
        owner_id: str,
        item_id: str,
        *,
        apart: bool = False,
    ) -> Session:
        """Create the session of a sub-agent; see `Sessions`."""
        worktree = ""
        if apart:
            made = await make_worktree(self._services, workspace, WorktreeChoice())
            workspace, worktree = str(made.workspace), made.record.name
        session = self.start(Snapshot(self._services.new_id()))
        self._services.tools.servers.share(owner_id, session.snapshot.session_id)
        created = SessionCreated(
            workspace, settings, owner_id=owner_id, owner_item_id=item_id, worktree=worktree
        )
        # Committed before the owner's log refers to this session.
        session.outbox.put(created)
        await session.outbox.committed()
        return session

    async def find_owned(self, session_id: str, owner_id: str) -> Session:
        """Find the session of a sub-agent; see `Sessions`."""
        session = await self.find(session_id)
        # A model may name any id, but must not steer other owners' sessions.
        if session.snapshot.owner_id != owner_id:
            message = f"{session_id} is not a sub-agent of this session."
            raise RejectionError("not_found", message)
        name, workspace = session.snapshot.worktree, session.snapshot.workspace
        if name and not exists(workspace):
            # Nothing was done there, so it went when the sub-agent ended.
            owner = await self.find(owner_id)
            await make_worktree(self._services, owner.snapshot.workspace, WorktreeChoice(name))
        self._services.tools.servers.share(owner_id, session_id)
        return session

    async def remove(self, session_id: str) -> None:
        """Shut down and unload a session; no effect if it is not loaded."""
        if session := self._sessions.get(session_id):
            await session.shut_down()
            session.stop()
            self._sessions.pop(session_id, None)

    def _resumes(self) -> bool:
        return self._services.user.configuration().resume == "auto"

    async def _recover(self, session_id: str) -> None:
        """Close or resume an unfinished turn; an unreadable session does not stop the others."""
        try:
            await self.find(session_id, resumes=self._resumes())
        except (LogError, RejectionError) as error:
            log.error("session_not_recovered", session_id=session_id, reason=str(error))

    async def _run_session(self, session: Session, resumes: bool) -> None:  # noqa: FBT001
        session_id = session.snapshot.session_id
        try:
            await session.run(resumes=resumes)
        except* LogError as errors:
            reason = str(errors.exceptions[0])
            # Later attempts to store the turn's end fail for the same reason.
            if session_id not in self._log_failures:
                log.error("session_closed_by_log", session_id=session_id, reason=reason)
            if session.is_working:
                message = f"This turn was ended because its events could not be stored: {reason}"
                self._log_failures[session_id] = ErrorInfo(LOG_FAILED, message)
        except* Exception:
            log.exception("session_crashed", session_id=session_id)
        finally:
            # The session may have been removed already, or even loaded again.
            if self._sessions.get(session_id, session) is session:
                self._sessions.pop(session_id, None)
                self._services.tools.servers.unload(session_id)
            self._services.histories.drop(session_id)

    def _unload_idle(self) -> None:
        oldest = self._services.time() - UNLOAD_AFTER_S
        for session_id, session in list(self._sessions.items()):
            if session.is_idle and session.active_at < oldest:
                # Removed first, so that an op that comes now loads the session again.
                del self._sessions[session_id]
                session.stop()


async def _shut_down(session: Session, resumed_later: bool) -> None:  # noqa: FBT001
    try:
        await (session.suspend() if resumed_later else session.shut_down())
    except LogError as error:
        session_id = session.snapshot.session_id
        log.error("session_not_saved", session_id=session_id, reason=error.message)


def unknown_session(session_id: str) -> RejectionError:
    """Return the rejection of an op for a session that is not in the log."""
    return RejectionError(
        "not_found", f"There is no session {session_id}. `tiller ls` lists the sessions."
    )
