"""The supervisor: creates, forks and deletes sessions, and routes ops to them.

A submission takes effect at most once: the log is searched for its answer first, and a retry that
arrives while the submission is in flight shares its answer. `loaded_sessions` manages the sessions
in memory, and `queries` answers the ops that only read.
"""

import hashlib
import os
from pathlib import Path

import msgspec
import trio

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.actor import Session
from tiller_daemon.session.context.model_choice import merge_choices
from tiller_daemon.session.context.project_trust import configuration_for
from tiller_daemon.session.inputs.attachments import check_image_sizes, fit_images
from tiller_daemon.session.inputs.server_content import read_server_content
from tiller_daemon.session.inputs.validation import check_settings, check_workspace
from tiller_daemon.session.lending import checked_servers
from tiller_daemon.session.loaded_sessions import LoadedSessions, unknown_session
from tiller_daemon.session.presence import Presence
from tiller_daemon.session.queries import Queries
from tiller_daemon.session.recovery import load_snapshot
from tiller_daemon.session.rejections import record_rejection
from tiller_daemon.session.requests import unknown_request
from tiller_daemon.session.rules import revoke_lasting_rule
from tiller_daemon.session.searching import SearchableSessions
from tiller_daemon.session.services import Lent, Services
from tiller_daemon.session.session_end import notify_session_end
from tiller_daemon.session.state import PendingSubmission, SessionMessage, SetUp
from tiller_daemon.session.worktree_ops import answer_worktrees, drop_worktree_made_for
from tiller_daemon.session.worktrees import make_worktree, what_is_left
from tiller_daemon.store.base import LogError, SubmissionRow
from tiller_protocol.answers import Accepted, AnyAnswer, AnyResult, Created, Rejected
from tiller_protocol.codec import decode_answer
from tiller_protocol.daemon import Backup, BackupResult
from tiller_protocol.events import SessionCreated, WarningRaised
from tiller_protocol.lending import SessionLend
from tiller_protocol.op_traits import traits_of
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    QueueEdit,
    RuleRevoke,
    SessionCreate,
    SessionDelete,
    SessionFork,
    TurnContinue,
    UserInput,
)
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot, fork_base
from tiller_protocol.worktrees import (
    WorktreeLand,
    WorktreeList,
    WorktreeRemove,
    WorktreeRestore,
)

CHANGES_LEFT = "worktree_begins_clean"
"""The code of the warning about changes that a new worktree does not have."""

NO_SET_UP = "worktree_set_up"
"""The code of the warning about a set-up that could not run."""


class Supervisor:
    """All sessions of the daemon. `run` owns their tasks."""

    def __init__(self, services: Services, search: SearchableSessions) -> None:
        self._services = services
        self._search = search
        self._sessions = LoadedSessions(services)
        self.presence = Presence(services.clock.steady)
        """Whether somebody looks at a frontend."""
        self._queries = Queries(services, self._sessions, search, self.presence)
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
        """Own the sessions' tasks until cancelled; `started` once unfinished turns are closed."""
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
        """Answer one submission about sessions. Raises nothing but a cancellation."""
        try:
            traits = traits_of(op)
            if traits.handled_by == "queries":
                return Accepted(submission_id, await self._queries.answer(op, client))
            if traits.is_repeatable:
                return await self._effect(PendingSubmission(submission_id, op, client, b""))
            self.presence.acted()
            return await self._once(submission_id, op, client)
        except RejectionError as rejection:
            return rejection.answer(submission_id)
        except LogError as error:
            return RejectionError("unavailable", error.message).answer(submission_id)

    async def _once(self, submission_id: str, op: AnyOp, client: str) -> AnyAnswer:
        """Apply the op unless it was applied before; return its answer in both cases."""
        digest = hashlib.blake2b(msgspec.msgpack.encode(op), digest_size=16).digest()
        # Loop, since the first attempt may fail without an answer and other retries may follow.
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
            try:
                pending.answer = await self._effect(pending)
            except RejectionError as rejection:
                pending.answer = await record_rejection(self._services, pending, rejection)
            return pending.answer
        finally:
            del self._in_flight[submission_id]
            pending.answered.set()

    async def _earlier(self, submission_id: str) -> SubmissionRow | None:
        """Return the stored answer, if any.

        ULIDs grow with time, so an id above all earlier ids is new and needs no search.
        """
        if submission_id > self._highest_id:
            self._highest_id = submission_id
            return None
        return await self._services.log.submission(submission_id)

    async def _effect(self, pending: PendingSubmission) -> AnyAnswer:
        match pending.op:
            case SessionCreate() as op:
                return await self._create(pending, op)
            case SessionFork() as op:
                return await self._fork(pending, op)
            case SessionDelete() as op:
                return await self._delete(pending, op)
            case SessionLend() as op:
                await self._lend(op)
                return Accepted(pending.submission_id)
            case Answer() as op:
                # Several sessions show a sub-agent's request, but only one has the waiting task.
                session = await self._session_of_request(op.request_id)
                answer = await session.submit(pending)
                if op.decision == "always_here":
                    # The rule also applies to the workspace's other sessions.
                    for other in self._sessions:
                        other.reconsider()
                return answer
            case Backup() as op:
                return await self._back_up(pending, op)
            case WorktreeList() as op:
                result = await answer_worktrees(self._services, self._sessions, op)
                return Accepted(pending.submission_id, result)
            case (WorktreeLand() | WorktreeRemove() | WorktreeRestore()) as op:
                result = await answer_worktrees(self._services, self._sessions, op)
                return await self._done(pending, result)
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
                check_image_sizes(op, pending.images)
            case (TurnContinue() | QueueEdit(action="promote")) as op:
                await self._services.discover(op.session_id)
                session = await self._sessions.find(op.session_id)
            case _ as op:
                session = await self._sessions.find(_session_id(op))
        return await session.submit(pending)

    async def _create(self, pending: PendingSubmission, op: SessionCreate) -> AnyAnswer:
        check_workspace(op.workspace)
        chosen = Settings(agent=op.agent, model=op.model)
        settings = merge_choices(op.settings, chosen)
        check_settings(self._services, op.workspace, settings)
        snapshot = Snapshot(self._services.new_id())
        if op.worktree is None:
            created = SessionCreated(op.workspace, settings, worktree=self._worktree(op.workspace))
            return await self._begin(pending, snapshot, created)
        made = await make_worktree(self._services, op.workspace, op.worktree)
        created = SessionCreated(str(made.workspace), settings, worktree=made.record.name)
        answer = await self._begin(pending, snapshot, created)
        session = await self._sessions.find(snapshot.session_id)
        if left := what_is_left(made):
            session.outbox.put(WarningRaised(CHANGES_LEFT, left))
        setup = configuration_for(self._services, str(made.workspace)).worktree.setup
        if made.is_new and setup:
            set_up = PendingSubmission(
                self._services.new_id(), SetUp(setup, made.record.path), pending.client, b""
            )
            refused = await session.submit(set_up)
            if isinstance(refused, Rejected):
                why = f"The set-up of this worktree did not run. {refused.message}"
                session.outbox.put(WarningRaised(NO_SET_UP, why))
        return answer

    def _worktree(self, workspace: str) -> str:
        """Return the name of the worktree around a workspace; may be empty."""
        worktrees = self._services.files.worktrees
        record = worktrees.records.around(os.path.realpath(workspace)) if worktrees else None
        return record.name if record else ""

    async def _fork(self, pending: PendingSubmission, op: SessionFork) -> AnyAnswer:
        """Create a session that reads its parent's events as its beginning; nothing is copied."""
        parent = await self._sessions.find(op.session_id)
        # The fork reads the shared history from the log, so all of it must be there first.
        now = parent.outbox.fold_pending()
        head = now.seq
        await parent.outbox.committed()
        at = head if op.at is None else op.at
        if not 1 <= at <= head:
            message = (
                f"Session {op.session_id} has events 1 to {head}, so it can't be forked at {at}."
            )
            raise RejectionError("not_found", message)
        shared = await load_snapshot(self._services.log, op.session_id, at)
        # Even an early part of the history goes on where the workspace is now.
        worktree = self._worktree(now.workspace)
        created = SessionCreated(
            now.workspace, shared.settings, op.session_id, at, worktree=worktree
        )
        return await self._begin(pending, fork_base(shared, self._services.new_id()), created)

    async def _begin(
        self, pending: PendingSubmission, snapshot: Snapshot, created: SessionCreated
    ) -> AnyAnswer:
        session = self._sessions.start(snapshot)
        answer = Accepted(pending.submission_id, Created(snapshot.session_id))
        row = pending.row(answer)
        session.outbox.put(created, submission_id=pending.submission_id, submission=row)
        await session.outbox.committed()
        return answer

    async def _delete(self, pending: PendingSubmission, op: SessionDelete) -> AnyAnswer:
        now = (await self._sessions.find(op.session_id)).outbox.fold_pending()
        if op.if_empty and (now.title or now.turns or now.items or now.queue):
            return await self._done(pending)
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
        if op.if_empty:
            await drop_worktree_made_for(self._services, now)
        return await self._done(pending)

    async def _back_up(self, pending: PendingSubmission, op: Backup) -> AnyAnswer:
        file = Path(op.path)
        if not file.is_absolute():
            raise RejectionError("bad_message", "The path of a backup must be absolute.")
        size = await self._services.log.back_up(file)
        return await self._done(pending, BackupResult(op.path, size))

    async def _done(self, pending: PendingSubmission, result: AnyResult | None = None) -> AnyAnswer:
        """Record and return the answer to an op that no session handles."""
        answer = Accepted(pending.submission_id, result)
        await self._services.log.record(pending.row(answer))
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
            message = (
                f"Session {session_id} is running a turn. "
                "Interrupt the turn, then delete the session."
            )
            raise RejectionError("busy", message)
        if forks := await self._services.log.forks(session_id):
            message = f"Forks share this session's log: {', '.join(forks)}. Delete the forks first."
            raise RejectionError("busy", message)

    async def _session_of_request(self, request_id: str) -> Session:
        """Return the session in which a task waits for an answer to the request.

        If there is none, return the session that the log names for the request.
        """
        for session in self._sessions:
            if session.awaits(request_id):
                return session
        rows = await self._services.log.requests(request_id)
        if not rows:
            raise unknown_request(request_id)
        return await self._sessions.find(rows[0].session_id)

    async def _lend(self, op: SessionLend) -> None:
        if await self._services.log.session(op.session_id) is None:
            raise unknown_session(op.session_id)
        lent = Lent(checked_servers(op.mcp_servers), op.reads_files)
        self._services.tools.servers.lend(op.session_id, op.lender, lent)
        self._sessions.end_loans()


def _session_id(op: SessionMessage) -> str:
    session_id = getattr(op, "session_id", None)
    if not isinstance(session_id, str):
        raise RejectionError("bad_message", f"{type(op).__name__} needs a `session_id`.")
    return session_id


def _same_answer(row: SubmissionRow, digest: bytes) -> AnyAnswer:
    if row.digest != digest:
        raise RejectionError(
            "bad_message", "This submission id was already used for another op. Choose a new id."
        )
    return decode_answer(row.answer)
