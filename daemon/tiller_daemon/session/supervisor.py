"""The supervisor: finds, loads, unloads and lists sessions, and routes ops to them.

A submission takes effect at most once: its answer is looked up in the log first, and two at the
same moment share one (G3). A session that crashes is dropped and loaded anew by the next op; the
others do not notice.
"""

import hashlib

import msgspec
import structlog
import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.actor import Session
from tiller_daemon.session.attachments import fit_images
from tiller_daemon.session.checks import check_settings, check_workspace
from tiller_daemon.session.freeze import merge_settings
from tiller_daemon.session.recovery import load_snapshot, recovery_of
from tiller_daemon.session.requests import no_request
from tiller_daemon.session.services import Services
from tiller_daemon.session.state import Pending
from tiller_daemon.store.base import BadCursor, LogError, SessionRow, SubmissionRow, cursor_of
from tiller_protocol.answers import (
    Accepted,
    AnyAnswer,
    AnyResult,
    Created,
    ReplayResult,
    SessionListResult,
    SessionResult,
    SessionSummary,
)
from tiller_protocol.codec import REPLAY_BYTES_MAX, decode_answer, decode_event, encode_answer
from tiller_protocol.events import SessionCreated
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Replay,
    SessionCreate,
    SessionDelete,
    SessionFork,
    SessionGet,
    SessionList,
    UserInput,
)
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot, fork_base

log = structlog.get_logger()

UNLOAD_AFTER_S = 300.0
"""A session without activity for this long is unloaded; the next op loads it again."""

UNLOAD_CHECK_S = 30.0
"""How often idle sessions are looked for."""


class Supervisor:
    """All sessions of the daemon. `run` owns their tasks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: dict[str, Session] = {}
        self._loading: dict[str, trio.Event] = {}
        self._in_flight: dict[str, Pending] = {}
        self._highest_id = ""
        self._nursery: trio.Nursery | None = None

    @property
    def loaded(self) -> int:
        """How many sessions are in memory."""
        return len(self._sessions)

    @property
    def turns_running(self) -> int:
        """How many turns are active."""
        return sum(session.turn_runs for session in self._sessions.values())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the sessions' tasks until cancelled; started when unfinished turns are closed."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._highest_id = await self._services.log.highest_submission()
            for session_id in await self._services.log.unfinished():
                await self._recover(session_id)
            task_status.started()
            while True:
                await trio.sleep(UNLOAD_CHECK_S)
                self._unload_idle()

    async def drain(self) -> None:
        """Wait until no turn is active."""
        for session in list(self._sessions.values()):
            await session.rest()

    async def shut_down(self) -> None:
        """Interrupt all turns and put everything into the log."""
        async with trio.open_nursery() as nursery:
            for session in self._sessions.values():
                nursery.start_soon(_shut_down, session)

    async def handle(self, submission_id: str, op: AnyOp, client: str) -> AnyAnswer:
        """Answer one submission about sessions; never raises but on cancellation."""
        try:
            match op:
                case SessionList():
                    return Accepted(submission_id, await self._list(op))
                case SessionGet():
                    return Accepted(submission_id, await self._get(op))
                case Replay():
                    return Accepted(submission_id, await self._replay(op))
                case _:
                    return await self._once(submission_id, op, client)
        except RejectionError as rejection:
            return rejection.answer(submission_id)
        except LogError as error:
            return RejectionError("unavailable", error.message).answer(submission_id)

    async def _once(self, submission_id: str, op: AnyOp, client: str) -> AnyAnswer:
        """Give the op its one effect, or the answer that it already had."""
        digest = hashlib.blake2b(msgspec.msgpack.encode(op), digest_size=16).digest()
        while (earlier := self._in_flight.get(submission_id)) is not None:
            await earlier.answered.wait()
            if earlier.answer is not None and earlier.digest == digest:
                return earlier.answer
        pending = self._in_flight[submission_id] = Pending(submission_id, op, client, digest)
        try:
            if row := await self._earlier(submission_id):
                return _same_answer(row, digest)
            pending.answer = await self._effect(pending)
            return pending.answer
        finally:
            del self._in_flight[submission_id]
            pending.answered.set()

    async def _earlier(self, submission_id: str) -> SubmissionRow | None:
        """The stored answer. An id above all that ever came is new: ULIDs grow with time."""
        if submission_id > self._highest_id:
            self._highest_id = submission_id
            return None
        return await self._services.log.submission(submission_id)

    async def _effect(self, pending: Pending) -> AnyAnswer:
        match pending.op:
            case SessionCreate() as op:
                return await self._create(pending, op)
            case SessionFork() as op:
                return await self._fork(pending, op)
            case SessionDelete() as op:
                return await self._delete(pending, op)
            case Answer() as op:
                session = await self._session_of_request(op.request_id)
            case UserInput() as op:
                pending.images = await fit_images(op)
                await self._services.discover()
                session = await self._session(op.session_id)
            case _ as op:
                session = await self._session(_session_id(op))
        return await session.submit(pending)

    async def _create(self, pending: Pending, op: SessionCreate) -> AnyAnswer:
        check_workspace(op.workspace)
        chosen = Settings(agent=op.agent, model=op.model)
        settings = merge_settings(op.settings, chosen)
        check_settings(self._services, op.workspace, settings)
        return await self._begin(
            pending, Snapshot(self._services.new_id()), SessionCreated(op.workspace, settings)
        )

    async def _fork(self, pending: Pending, op: SessionFork) -> AnyAnswer:
        """A session that reads its beginning from the parent's events: nothing is copied."""
        parent = await self._session(op.session_id)
        head = parent.outbox.settle().seq
        await parent.outbox.committed()
        at = head if op.at is None else op.at
        if not 1 <= at <= head:
            message = f"Session {op.session_id} has the events 1 to {head}; {at} is none of them."
            raise RejectionError("not_found", message)
        shared = await load_snapshot(self._services.log, op.session_id, at)
        created = SessionCreated(shared.workspace, shared.settings, op.session_id, at)
        return await self._begin(pending, fork_base(shared, self._services.new_id()), created)

    async def _begin(
        self, pending: Pending, snapshot: Snapshot, created: SessionCreated
    ) -> AnyAnswer:
        session = self._start(snapshot)
        answer = Accepted(pending.submission_id, Created(snapshot.session_id))
        session.outbox.put(
            created,
            submission_id=pending.submission_id,
            submission=SubmissionRow(pending.submission_id, pending.digest, encode_answer(answer)),
        )
        await session.outbox.committed()
        return answer

    async def create_owned(
        self, workspace: str, settings: Settings, owner_id: str, item_id: str
    ) -> Session:
        """Make the session of a sub-agent; see `Sessions`."""
        session = self._start(Snapshot(self._services.new_id()))
        created = SessionCreated(workspace, settings, owner_id=owner_id, owner_item_id=item_id)
        session.outbox.put(created)
        await session.outbox.committed()
        return session

    async def find_owned(self, session_id: str, owner_id: str) -> Session:
        """Find a sub-agent of a session; see `Sessions`."""
        session = await self._session(session_id)
        if session.snapshot.owner_id != owner_id:
            message = f"{session_id} is no sub-agent of this session."
            raise RejectionError("not_found", message)
        return session

    async def _delete(self, pending: Pending, op: SessionDelete) -> AnyAnswer:
        doomed = await self._with_sub_agents(op.session_id)
        for session_id in doomed:
            await self._check_deletable(session_id)
        for session_id in doomed:
            if session := self._sessions.get(session_id):
                await session.shut_down()
                session.stop()
                self._sessions.pop(session_id, None)
            await self._services.log.delete(session_id)
            self._services.forget(session_id)
        answer = Accepted(pending.submission_id)
        row = SubmissionRow(pending.submission_id, pending.digest, encode_answer(answer))
        await self._services.log.record(row)
        return answer

    async def _with_sub_agents(self, session_id: str) -> list[str]:
        """The session and all that works for it, the deepest first."""
        found: list[str] = []
        for sub_agent in await self._services.log.sub_agents(session_id):
            found += await self._with_sub_agents(sub_agent)
        return [*found, session_id]

    async def _check_deletable(self, session_id: str) -> None:
        session = await self._session(session_id)
        if session.is_at_work:
            message = f"The session {session_id} is at work. Interrupt it, then delete it."
            raise RejectionError("busy", message)
        if forks := await self._services.log.forks(session_id):
            message = f"The forks {', '.join(forks)} share this session's log: delete them first."
            raise RejectionError("busy", message)

    async def _session_of_request(self, request_id: str) -> Session:
        """The session in which a task waits, else one whose log says how the request ended."""
        for session in self._sessions.values():
            if session.awaits(request_id):
                return session
        rows = await self._services.log.requests(request_id)
        if not rows:
            raise no_request(request_id)
        return await self._session(rows[0].session_id)

    async def _list(self, op: SessionList) -> AnyResult:
        try:
            rows = await self._services.log.sessions(
                workspace=op.workspace,
                owner_id=op.owner_id or (None if op.sub_agents else ""),
                archived=op.archived,
                limit=op.limit,
                after=op.after,
            )
        except BadCursor as error:
            raise RejectionError("bad_message", str(error)) from None
        more = cursor_of(rows[-1]) if len(rows) == op.limit else None
        return SessionListResult(tuple(self._summary(row) for row in rows), more)

    def _summary(self, row: SessionRow) -> SessionSummary:
        session = self._sessions.get(row.session_id)
        return SessionSummary(
            session_id=row.session_id,
            workspace=row.workspace,
            created_at=row.created_at,
            updated_at=row.updated_at,
            head=row.head,
            status=session.snapshot.status if session else "idle",
            title=row.title,
            archived=row.archived,
            turns=row.turns,
            cost=row.cost,
            requests=tuple(session.snapshot.requests) if session else (),
        )

    async def _get(self, op: SessionGet) -> AnyResult:
        session = await self._session(op.session_id)
        while not session.outbox.is_committed:
            await session.outbox.committed()
        now = session.snapshot
        return SessionResult(
            structs.replace(
                now,
                items=list(now.items),
                open_items=list(now.open_items),
                requests=list(now.requests),
                turn=now.turn and structs.replace(now.turn),
            )
        )

    async def _replay(self, op: Replay) -> AnyResult:
        row = await self._services.log.session(op.session_id)
        if row is None:
            raise _no_session(op.session_id)
        if row.unfinished and op.session_id not in self._sessions:
            await self._session(op.session_id)
        bodies = await self._services.log.events(
            op.session_id, op.after, op.limit, REPLAY_BYTES_MAX
        )
        events = tuple(decode_event(body) for body in bodies)
        head = await self._services.log.head(op.session_id)
        return ReplayResult(events, events[-1].seq if events else min(op.after, head), head)

    async def _session(self, session_id: str) -> Session:
        """The session, loaded; raises `RejectionError` or `LogError`."""
        while (loading := self._loading.get(session_id)) is not None:
            await loading.wait()
        if session := self._sessions.get(session_id):
            return session
        loaded = self._loading[session_id] = trio.Event()
        try:
            if await self._services.log.session(session_id) is None:
                raise _no_session(session_id)
            snapshot = await load_snapshot(self._services.log, session_id)
            session = self._start(snapshot)
            if found := recovery_of(snapshot, self._services.time(), self._services.new_id):
                session.outbox.put(*found.of_turn, turn_id=found.turn_id)
                session.outbox.put(*found.of_session)
                session.reload_queue()
                await session.outbox.committed()
            return session
        finally:
            del self._loading[session_id]
            loaded.set()

    async def _recover(self, session_id: str) -> None:
        """Close an unfinished turn; one session that can't be read does not stop the others."""
        try:
            await self._session(session_id)
        except (LogError, RejectionError) as error:
            log.error("session_not_recovered", session_id=session_id, reason=str(error))

    def _start(self, snapshot: Snapshot) -> Session:
        session = Session(self._services, snapshot, self)
        self._sessions[snapshot.session_id] = session
        assert self._nursery is not None
        self._nursery.start_soon(self._run_session, session)
        return session

    async def _run_session(self, session: Session) -> None:
        session_id = session.snapshot.session_id
        try:
            await session.run()
        except* LogError as errors:
            reason = str(errors.exceptions[0])
            log.error("session_closed_by_log", session_id=session_id, reason=reason)
        except* Exception:
            log.exception("session_crashed", session_id=session_id)
        finally:
            if self._sessions.get(session_id) is session:
                del self._sessions[session_id]

    def _unload_idle(self) -> None:
        oldest = self._services.time() - UNLOAD_AFTER_S
        for session_id, session in list(self._sessions.items()):
            if session.is_idle and session.active_at < oldest:
                del self._sessions[session_id]
                session.stop()


async def _shut_down(session: Session) -> None:
    try:
        await session.shut_down()
    except LogError as error:
        session_id = session.snapshot.session_id
        log.error("session_not_saved", session_id=session_id, reason=error.message)


def _session_id(op: AnyOp) -> str:
    session_id = getattr(op, "session_id", None)
    if not isinstance(session_id, str):
        raise RejectionError("bad_message", f"{type(op).__name__} names no session.")
    return session_id


def _same_answer(row: SubmissionRow, digest: bytes) -> AnyAnswer:
    if row.digest != digest:
        raise RejectionError(
            "bad_message", "This submission id was used for another op. Choose a new one."
        )
    return decode_answer(row.answer)


def _no_session(session_id: str) -> RejectionError:
    return RejectionError(
        "not_found", f"There is no session {session_id}. `tiller ls` shows those there are."
    )
