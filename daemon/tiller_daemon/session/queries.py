"""Answers the ops that change nothing, about all sessions or a single one."""

from msgspec import msgpack, structs

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.actor import Session
from tiller_daemon.session.background.listing import lost_entries
from tiller_daemon.session.followers import Followers
from tiller_daemon.session.loaded_sessions import LoadedSessions, unknown_session
from tiller_daemon.session.presence import Presence
from tiller_daemon.session.recovery import load_snapshot
from tiller_daemon.session.reverting import session_diff
from tiller_daemon.session.rules import list_rules
from tiller_daemon.session.searching import SearchableSessions
from tiller_daemon.session.services import Services
from tiller_daemon.store.base import BadCursor, LogError, LogErrorKind, SessionRow, cursor_of
from tiller_daemon.worktrees.records import real
from tiller_protocol.answers import AnyResult, ReplayResult, SessionListResult, SessionResult
from tiller_protocol.codec import REPLAY_BYTES_MAX, decode_event
from tiller_protocol.ops import AnyOp, Replay, RulesList, SessionDiff, SessionGet, SessionList
from tiller_protocol.sessions import InputHistory, SessionSearch
from tiller_protocol.snapshot import SessionSummary, Snapshot, is_working, running_call

UNWRITABLE: tuple[LogErrorKind, ...] = ("full", "read_only", "io")
"""Errors with which a log can perhaps still be read."""

_decode_summary = msgpack.Decoder(SessionSummary).decode

END_NOT_STORED = "The session's turn has ended, but its end could not be stored: {reason}"


class Queries:
    """Answers queries from the sessions in memory, and from the log."""

    def __init__(
        self,
        services: Services,
        sessions: LoadedSessions,
        search: SearchableSessions,
        presence: Presence,
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._search = search
        self._followers = Followers(services.clock.steady)
        self._presence = presence

    async def answer(self, op: AnyOp, client: str) -> AnyResult:
        """Return the result of a client's query; raises `RejectionError` or `LogError`."""
        match op:
            case SessionList():
                return await self._list(op)
            case SessionSearch():
                return await self._search.find(op, self._summary, self._beside(op.workspace))
            case InputHistory():
                return await self._search.inputs(op)
            case SessionGet():
                return await self._get(op)
            case SessionDiff():
                snapshot = await self._readable(op.session_id)
                return await session_diff(self._services, snapshot, op)
            case RulesList():
                return await self._list_rules(op)
            case Replay():
                return await self._replay(op, client)
            case _:
                raise AssertionError(f"{type(op).__name__} has no handler in the queries")

    async def _list(self, op: SessionList) -> AnyResult:
        if op.focus:
            self._presence.acted()
        try:
            rows = await self._services.log.sessions(
                workspace=op.workspace,
                beside=self._beside(op.workspace),
                owner_id=op.owner_id or (None if op.sub_agents else ""),
                archived=None if op.sessions else op.archived,
                limit=op.limit,
                after=op.after,
                session_ids=op.sessions or None,
            )
        except BadCursor as error:
            raise RejectionError("bad_message", str(error)) from None
        more = cursor_of(rows[-1]) if len(rows) == op.limit else None
        summaries = tuple(self._summary(row) for row in rows)
        return SessionListResult(summaries, more, self._services.log.problems())

    def _beside(self, workspace: str | None) -> tuple[str, ...]:
        """Return the same place in the worktrees of a workspace's repository."""
        trees = self._services.files.worktrees
        return trees.records.beside(real(workspace)) if trees and workspace else ()

    def _summary(self, row: SessionRow) -> SessionSummary:
        summary, session = _decode_summary(row.summary), self._sessions.get(row.session_id)
        trees = self._services.files.worktrees
        if trees and (record := trees.records.around(row.workspace)):
            place = trees.records.checkout_of(row.workspace)
            landed = record.landed == record.published
            summary = structs.replace(summary, checkout=place, landed=landed)
        if session is None:
            return summary
        now = session.snapshot
        return structs.replace(
            summary,
            status=now.status,
            requests=tuple(now.requests),
            working_since=now.turn.started_at if now.turn and is_working(now) else None,
            doing=running_call(now),
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
                changed_files=dict(now.changed_files),
                turn=now.turn and structs.replace(now.turn),
            )
        )

    async def _readable(self, session_id: str) -> Snapshot:
        """Return the session's current state, or its state in the log while nothing can be written.

        An unfinished turn is closed first. If its end can't be written because the disk is full,
        the session can still be read, with the turn as it was cut off.
        """
        settled = await self._settled(session_id)
        if isinstance(settled, Session):
            return settled.snapshot
        cut_off = await load_snapshot(self._services.log, session_id)
        # All tasks have ended, so nobody waits for an answer, although the log can't say so yet.
        cut_off.status = "idle"
        cut_off.requests.clear()
        cut_off.background = lost_entries(cut_off) or cut_off.background
        return cut_off

    async def _settled(self, session_id: str) -> Session | LogError:
        """Return the session, with its unfinished turn closed and all its events published.

        Returns the error if the log can't be written, but can perhaps be read; raises others.
        """
        try:
            session = await self._sessions.find(session_id)
            # Frontends continue from the snapshot's number, so all its events must be published.
            while not session.outbox.is_committed:
                await session.outbox.committed()
        except LogError as error:
            if error.kind not in UNWRITABLE:
                raise
            return error
        return session

    async def _replay(self, op: Replay, client: str) -> AnyResult:
        self._presence.note(op)
        row = await self._services.log.session(op.session_id)
        if row is None:
            raise unknown_session(op.session_id)
        # Closing the unfinished turn lets the frontend see its end.
        settled = await self._settled(op.session_id) if self._is_cut_off(row) else None
        bodies = await self._services.log.events(
            op.session_id, op.after, op.limit, REPLAY_BYTES_MAX
        )
        events = tuple(decode_event(body) for body in bodies)
        head = await self._services.log.head(op.session_id)
        if isinstance(settled, LogError) and op.after == head:
            # An empty answer would mean that the turn is still running.
            message = END_NOT_STORED.format(reason=settled.message)
            raise RejectionError("unavailable", message, {"turn_ended": True})
        upto = events[-1].seq if events else min(op.after, head)
        return ReplayResult(events, upto, head, self._followers.note(op, client))

    def _is_cut_off(self, row: SessionRow) -> bool:
        """Whether the log has an unfinished turn for which no task is running."""
        session = self._sessions.get(row.session_id)
        return row.unfinished and (session is None or not session.turn_is_running)
