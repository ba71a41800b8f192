"""The supervisor: creates, forks, deletes and lists sessions, and routes ops to them.

A submission takes effect at most once: the log is searched for its answer first, and a retry that
arrives while it is in flight shares its answer. `loaded_sessions` manages the sessions in memory.
"""

import hashlib

import msgspec
import trio
from msgspec import structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.actor import Session
from tiller_daemon.session.attachments import fit_images
from tiller_daemon.session.freeze import merge_settings
from tiller_daemon.session.lending import checked_servers
from tiller_daemon.session.loaded_sessions import LoadedSessions, unknown_session
from tiller_daemon.session.recovery import load_snapshot
from tiller_daemon.session.rejections import record_rejection
from tiller_daemon.session.requests import unknown_request
from tiller_daemon.session.reverting import session_diff
from tiller_daemon.session.rules import list_rules, revoke_lasting_rule
from tiller_daemon.session.searching import SearchableSessions
from tiller_daemon.session.server_content import read_server_content
from tiller_daemon.session.services import Services
from tiller_daemon.session.session_end import notify_session_end
from tiller_daemon.session.state import PendingSubmission
from tiller_daemon.session.validation import check_settings, check_workspace
from tiller_daemon.store.base import (
    BadCursor,
    LogError,
    LogErrorKind,
    SessionRow,
    SubmissionRow,
    cursor_of,
)
from tiller_protocol.answers import (
    Accepted,
    AnyAnswer,
    AnyResult,
    Created,
    ReplayResult,
    SessionListResult,
    SessionResult,
)
from tiller_protocol.codec import REPLAY_BYTES_MAX, decode_answer, decode_event, encode_answer
from tiller_protocol.events import SessionCreated
from tiller_protocol.lending import SessionLend
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    QueueEdit,
    Replay,
    RuleRevoke,
    RulesList,
    SessionCreate,
    SessionDelete,
    SessionDiff,
    SessionFork,
    SessionGet,
    SessionList,
    TurnContinue,
    UserInput,
)
from tiller_protocol.searching import InputHistory, SessionSearch
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import SessionSummary, Snapshot, fork_base

UNWRITABLE: tuple[LogErrorKind, ...] = ("full", "read_only", "io")
"""Errors of a log that can perhaps still be read."""


class Supervisor:
    """All sessions of the daemon. `run` owns their tasks."""

    def __init__(self, services: Services, search: SearchableSessions) -> None:
        self._services = services
        self._search = search
        self._sessions = LoadedSessions(services)
        self._in_flight: dict[str, PendingSubmission] = {}
        self._highest_id = ""

    @property
    def loaded(self) -> int:
        """How many sessions are in memory."""
        return len(self._sessions)

    @property
    def turns_running(self) -> int:
        """How many turns are active."""
        return sum(session.turn_is_running for session in self._sessions)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the sessions' tasks until cancelled; started once unfinished turns are closed."""
        self._highest_id = await self._services.log.highest_submission()
        await self._sessions.run(task_status=task_status)

    async def drain(self) -> None:
        """Wait until no turn is active."""
        for session in self._sessions:
            await session.wait_for_turn()

    async def shut_down(self) -> None:
        """End all turns and commit everything to the log."""
        await self._sessions.shut_down()

    async def handle(self, submission_id: str, op: AnyOp, client: str) -> AnyAnswer:
        """Answer one submission about sessions. Raises nothing except for cancellation."""
        try:
            match op:
                case SessionList():
                    return Accepted(submission_id, await self._list(op))
                case SessionSearch() | InputHistory():
                    return Accepted(submission_id, await self._search.answer(op, self._summary))
                case SessionGet():
                    return Accepted(submission_id, await self._get(op))
                case SessionDiff():
                    snapshot = await self._readable(op.session_id)
                    return Accepted(submission_id, await session_diff(self._services, snapshot, op))
                case RulesList():
                    return Accepted(submission_id, await self._list_rules(op))
                case Replay():
                    return Accepted(submission_id, await self._replay(op))
                case SessionLend():
                    await self._lend(op)
                    return Accepted(submission_id)
                case _:
                    return await self._once(submission_id, op, client)
        except RejectionError as rejection:
            return rejection.answer(submission_id)
        except LogError as error:
            return RejectionError("unavailable", error.message).answer(submission_id)

    async def _once(self, submission_id: str, op: AnyOp, client: str) -> AnyAnswer:
        """Apply the op unless it was applied before; return its answer in both cases."""
        digest = hashlib.blake2b(msgspec.msgpack.encode(op), digest_size=16).digest()
        # A loop, since the first attempt may fail without an answer and another retry may follow.
        while (earlier := self._in_flight.get(submission_id)) is not None:
            await earlier.answered.wait()
            if earlier.answer is not None and earlier.digest == digest:
                return earlier.answer
        pending = self._in_flight[submission_id] = PendingSubmission(
            submission_id, op, client, digest
        )
        try:
            if row := await self._earlier(submission_id):
                return _same_answer(row, digest)
            pending.answer = await self._effect_or_rejection(pending)
            return pending.answer
        finally:
            del self._in_flight[submission_id]
            pending.answered.set()

    async def _earlier(self, submission_id: str) -> SubmissionRow | None:
        """Return the stored answer, if any.

        ULIDs grow with time, so an id above all earlier ones is new and needs no search.
        """
        if submission_id > self._highest_id:
            self._highest_id = submission_id
            return None
        return await self._services.log.submission(submission_id)

    async def _effect_or_rejection(self, pending: PendingSubmission) -> AnyAnswer:
        try:
            return await self._effect(pending)
        except RejectionError as rejection:
            return await record_rejection(self._services, pending, rejection)

    async def _effect(self, pending: PendingSubmission) -> AnyAnswer:
        match pending.op:
            case SessionCreate() as op:
                return await self._create(pending, op)
            case SessionFork() as op:
                return await self._fork(pending, op)
            case SessionDelete() as op:
                return await self._delete(pending, op)
            case Answer() as op:
                # A sub-agent's request shows in several sessions; only one has the waiting task.
                session = await self._session_of_request(op.request_id)
                answer = await session.submit(pending)
                if op.decision == "always_here":
                    # The rule also holds for the other sessions of the workspace.
                    for other in self._sessions:
                        other.reconsider()
                return answer
            case RuleRevoke(session_id=None) as op:
                revoke_lasting_rule(self._services, op.rule_id)
                return await self._done(pending)
            case UserInput() as op:
                # Slow work belongs here, outside the session's loop, which must answer quickly.
                variables = self._services.commands.variables(pending.submission_id)
                pending.images = await fit_images(op, variables)
                await self._services.discover(op.session_id)
                session = await self._sessions.find(op.session_id)
                content = await read_server_content(self._services.tools.servers, op)
                pending.content = content
                pending.images += content.images
            case (TurnContinue() | QueueEdit(action="promote")) as op:
                await self._services.discover(op.session_id)
                session = await self._sessions.find(op.session_id)
            case _ as op:
                session = await self._sessions.find(_session_id(op))
        return await session.submit(pending)

    async def _create(self, pending: PendingSubmission, op: SessionCreate) -> AnyAnswer:
        check_workspace(op.workspace)
        chosen = Settings(agent=op.agent, model=op.model)
        settings = merge_settings(op.settings, chosen)
        check_settings(self._services, op.workspace, settings)
        return await self._begin(
            pending, Snapshot(self._services.new_id()), SessionCreated(op.workspace, settings)
        )

    async def _fork(self, pending: PendingSubmission, op: SessionFork) -> AnyAnswer:
        """Create a session that reads its beginning from its parent's events; nothing is copied."""
        parent = await self._sessions.find(op.session_id)
        # The fork reads what it shares from the log, so all of it must be there first.
        head = parent.outbox.fold_pending().seq
        await parent.outbox.committed()
        at = head if op.at is None else op.at
        if not 1 <= at <= head:
            message = (
                f"Session {op.session_id} has events 1 to {head}, so it can't be forked at {at}."
            )
            raise RejectionError("not_found", message)
        shared = await load_snapshot(self._services.log, op.session_id, at)
        created = SessionCreated(shared.workspace, shared.settings, op.session_id, at)
        return await self._begin(pending, fork_base(shared, self._services.new_id()), created)

    async def _begin(
        self, pending: PendingSubmission, snapshot: Snapshot, created: SessionCreated
    ) -> AnyAnswer:
        session = self._sessions.start(snapshot)
        answer = Accepted(pending.submission_id, Created(snapshot.session_id))
        session.outbox.put(
            created,
            submission_id=pending.submission_id,
            submission=SubmissionRow(pending.submission_id, pending.digest, encode_answer(answer)),
        )
        await session.outbox.committed()
        return answer

    async def _delete(self, pending: PendingSubmission, op: SessionDelete) -> AnyAnswer:
        doomed = await self._with_sub_agents(op.session_id)
        # All are checked before any is deleted.
        for session_id in doomed:
            await self._check_deletable(session_id)
        outbox = (await self._sessions.find(op.session_id)).outbox
        if not outbox.fold_pending().archived:
            notify_session_end(self._services, outbox, "deleted")
        for session_id in doomed:
            await self._sessions.remove(session_id)
            await self._services.log.delete(session_id)
            self._services.files.forget(session_id)
        await self._search.forget(doomed)
        return await self._done(pending)

    async def _done(self, pending: PendingSubmission) -> AnyAnswer:
        """Record and return the answer to an op without a result that no session has handled."""
        answer = Accepted(pending.submission_id)
        row = SubmissionRow(pending.submission_id, pending.digest, encode_answer(answer))
        await self._services.log.record(row)
        return answer

    async def _with_sub_agents(self, session_id: str) -> list[str]:
        """Return the ids of the session and all its sub-agents' sessions, the deepest first."""
        session_ids: list[str] = []
        for sub_agent in await self._services.log.sub_agents(session_id):
            session_ids += await self._with_sub_agents(sub_agent)
        return [*session_ids, session_id]

    async def _check_deletable(self, session_id: str) -> None:
        session = await self._sessions.find(session_id)
        if session.is_busy:
            message = f"Session {session_id} is running a turn. Interrupt it, then delete it."
            raise RejectionError("busy", message)
        if forks := await self._services.log.forks(session_id):
            message = f"The forks {', '.join(forks)} share this session's log. Delete them first."
            raise RejectionError("busy", message)

    async def _session_of_request(self, request_id: str) -> Session:
        """Return the session whose task waits for the answer, else one that had the request."""
        for session in self._sessions:
            if session.awaits(request_id):
                return session
        rows = await self._services.log.requests(request_id)
        if not rows:
            raise unknown_request(request_id)
        return await self._sessions.find(rows[0].session_id)

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
        summaries = tuple(self._summary(row) for row in rows)
        return SessionListResult(summaries, more, self._services.log.problems())

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
            turns=row.figures.turns,
            cost=row.figures.cost,
            requests=tuple(session.snapshot.requests) if session else (),
            parent_id=row.parent_id or None,
            parent_turns=row.figures.parent_turns,
            context_tokens=row.figures.context_tokens,
            context_window=row.figures.context_window,
            branch=row.figures.branch,
        )

    async def _list_rules(self, op: RulesList) -> AnyResult:
        if op.session_id is None:
            return list_rules(self._services, op.workspace)
        snapshot = await self._readable(op.session_id)
        return list_rules(self._services, snapshot.workspace, snapshot)

    async def _get(self, op: SessionGet) -> AnyResult:
        now = await self._readable(op.session_id)
        return SessionResult(
            structs.replace(
                now,
                items=list(now.items),
                open_items=list(now.open_items),
                requests=list(now.requests),
                turn=now.turn and structs.replace(now.turn),
            )
        )

    async def _lend(self, op: SessionLend) -> None:
        # Not `_once`: nothing of a loan is in the log, and renewing it changes nothing.
        if await self._services.log.session(op.session_id) is None:
            raise unknown_session(op.session_id)
        servers = checked_servers(op.mcp_servers)
        self._services.tools.servers.lend(op.session_id, op.lender, servers)
        self._sessions.end_loans()

    async def _readable(self, session_id: str) -> Snapshot:
        """Return the session as it is; as the log has it while nothing can be written.

        An unfinished turn is closed first. Where its end can't be written, as the disk is full, the
        session can still be read, with the turn as it was cut off.
        """
        try:
            session = await self._sessions.find(session_id)
            # Frontends continue from this snapshot's number, so everything must be published.
            while not session.outbox.is_committed:
                await session.outbox.committed()
        except LogError as error:
            if error.kind not in UNWRITABLE:
                raise
            return await load_snapshot(self._services.log, session_id)
        return session.snapshot

    async def _replay(self, op: Replay) -> AnyResult:
        row = await self._services.log.session(op.session_id)
        if row is None:
            raise unknown_session(op.session_id)
        # Loading closes the unfinished turn, so that the frontend sees its end.
        if row.unfinished and self._sessions.get(op.session_id) is None:
            await self._readable(op.session_id)
        bodies = await self._services.log.events(
            op.session_id, op.after, op.limit, REPLAY_BYTES_MAX
        )
        events = tuple(decode_event(body) for body in bodies)
        head = await self._services.log.head(op.session_id)
        return ReplayResult(events, events[-1].seq if events else min(op.after, head), head)


def _session_id(op: AnyOp) -> str:
    session_id = getattr(op, "session_id", None)
    if not isinstance(session_id, str):
        raise RejectionError("bad_message", f"{type(op).__name__} needs a `session_id`.")
    return session_id


def _same_answer(row: SubmissionRow, digest: bytes) -> AnyAnswer:
    if row.digest != digest:
        raise RejectionError(
            "bad_message", "This submission id was already used for another op. Choose a new one."
        )
    return decode_answer(row.answer)
