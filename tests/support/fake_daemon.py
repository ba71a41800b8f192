"""A stand-in for the daemon on real sockets: it speaks tiller_protocol and does no work.

Only for tests of the client's side of the wire. Sessions are lists of events; a `play` says which
events a `user_input` adds. Runs on its own thread, and never beside a real daemon.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import msgspec
import pynng

from tiller_protocol.answers import (
    Accepted,
    AnyAnswer,
    AnyResult,
    CatalogResult,
    Created,
    DaemonStatusResult,
    HelloResult,
    ProjectResult,
    Queued,
    Rejected,
    ReplayResult,
    RulesResult,
    SessionListResult,
    SessionResult,
    Started,
)
from tiller_protocol.catalog import ModelSummary, ToolSummary
from tiller_protocol.codec import (
    decode_envelope,
    decode_op,
    encode_answer,
    encode_event,
    encode_publication,
)
from tiller_protocol.daemon import Limits
from tiller_protocol.errors import RejectionCode
from tiller_protocol.events import (
    AnyBody,
    Event,
    RequestOpened,
    RequestResolved,
    SessionArchived,
    SessionCreated,
)
from tiller_protocol.fold import fold
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Catalog,
    Compact,
    DaemonStatus,
    Hello,
    Interrupt,
    Project,
    QueueEdit,
    Replay,
    Revert,
    RuleRevoke,
    RulesList,
    SessionArchive,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    SessionGet,
    SessionList,
    Shell,
    Shutdown,
    TurnContinue,
    Unrevert,
    UserInput,
)
from tiller_protocol.places import EVENTS_SOCKET, LOCK_FILE, OPS_SOCKET, TOKEN_FILE
from tiller_protocol.sessions import FoundSession, FoundText, SessionSearch, SessionSearchResult
from tiller_protocol.settings import RuleSummary
from tiller_protocol.snapshot import SessionSummary, Snapshot

REPLAY_EVENTS_MAX = 50
TURN = "01K0TURN0000000000000000T1"

Play = Callable[["FakeDaemon", str], None]
"""Plays a turn in the given session: calls `add` and `publish`, and may wait."""


def program(log_id: str = "log-1", events: Iterable[Event] = ()) -> str:
    """Return the code of a process that runs a fake daemon with these events until stopped."""
    return f"""
import os
from pathlib import Path
import msgspec
from support.fake_daemon import FakeDaemon
from tiller_protocol.events import Event

daemon = FakeDaemon(Path(os.environ["TILLER_HOME"], "runtime"), log_id={log_id!r}, token="new")
for event in msgspec.json.decode({msgspec.json.encode(list(events))!r}, type=list[Event]):
    daemon.sessions.setdefault(event.session_id, []).append(event)
with daemon:
    daemon.wait_for_end(20)
"""


class Refusal(Exception):
    """Raised by a handler to reject an op."""

    def __init__(self, code: RejectionCode, message: str) -> None:
        super().__init__(message)
        self.code: RejectionCode = code


class FakeDaemon:
    """A context manager that listens in `runtime`. `seen` holds the accepted ops by submission id.

    While `mute` is set, ops take effect but get no answer.
    """

    def __init__(
        self,
        runtime: Path,
        play: Play = lambda _daemon, _session: None,
        *,
        log_id: str = "log-1",
        token: str = "secret",
        sessions: dict[str, list[Event]] | None = None,
    ) -> None:
        self.runtime, self.play, self.log_id, self.token = runtime, play, log_id, token
        self.sessions: dict[str, list[Event]] = {} if sessions is None else sessions
        self.followers: tuple[str, ...] = ()
        self.not_indexed = 0
        self.models: tuple[ModelSummary, ...] = (ModelSummary("local/qwen", "openai_chat"),)
        self.tools: tuple[ToolSummary, ...] = ()
        self.rules = (RuleSummary("c0ffee", "bash", "make *", workspace="/w", by="tiller"),)
        self.seen: dict[str, AnyOp] = {}
        self.clients: list[str] = []
        self.interrupted = threading.Event()
        self.asked = threading.Event()
        self._answered = threading.Semaphore(0)
        self.created = threading.Event()
        self.started = threading.Event()
        self.answers: dict[str, Answer] = {}
        self.refusals: dict[type[AnyOp], Refusal] = {}
        self.mute = threading.Event()
        self.quick = threading.Event()
        """While this event is not set, only greetings are answered."""
        self.quick.set()
        self.searches_model = False
        self.replacements = 0
        """The number of next submissions to answer as a different daemon than their token's."""

    def __enter__(self) -> Self:
        self.take_lock()
        self.listen()
        return self

    def take_lock(self) -> None:
        """Take the daemon's lock; the real daemon, too, holds its lock before it listens."""
        self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.runtime / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def listen(self) -> None:
        """Write the token and listen; call `take_lock` first."""
        self.write_token()
        self._rep = pynng.Rep0(recv_timeout=50)
        self._pub = pynng.Pub0()
        self._rep.listen(f"ipc://{self.runtime / OPS_SOCKET}")
        self._pub.listen(f"ipc://{self.runtime / EVENTS_SOCKET}")
        self._ended = threading.Event()
        self._players: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def wait_for_end(self, patience_s: float) -> None:
        """Wait until somebody has stopped this daemon."""
        self._ended.wait(patience_s)

    def wait_for_answer(self, patience_s: float) -> bool:
        """Wait for the next answer to a request; each answer counts once."""
        return self._answered.acquire(timeout=patience_s)

    def __exit__(self, *_rest: object) -> None:
        self.interrupted.set()
        self.quick.set()
        self._answered.release(len(self._players) or 1)
        for player in self._players:
            player.join()
        self._ended.set()
        self._thread.join()

    def add(self, session_id: str, bodies: Iterable[AnyBody], *, lost: bool = False) -> None:
        """Log events and publish them, unless they are to be `lost`."""
        log = self.sessions.setdefault(session_id, [])
        for body in bodies:
            event = Event(len(log) + 1, session_id, time.time(), body, TURN)
            log.append(event)
            if isinstance(body, RequestOpened):
                self.asked.set()
            if not lost:
                self.publish(event)

    def publish(self, event: Event) -> None:
        """Publish an event, whether or not it is in the log."""
        self._pub.send(encode_publication(event.session_id, encode_event(event)), block=False)

    def write_token(self) -> None:
        token = self.runtime / TOKEN_FILE
        token.write_text(self.token)
        token.chmod(0o600)

    def _serve(self) -> None:
        self._answer_until_ended()
        self._rep.close()
        self._pub.close()
        os.close(self._lock)

    def _answer_until_ended(self) -> None:
        while not self._ended.is_set():
            try:
                data = self._rep.recv()
            except pynng.Timeout:
                continue
            answer = encode_answer(self._answer(data))
            if not self.mute.is_set():
                self._rep.send(answer)

    def _answer(self, data: bytes) -> AnyAnswer:
        frame = decode_envelope(data)
        if self.replacements:
            self.replacements -= 1
            self.token += "'"
            self.write_token()
        if frame.envelope.token != self.token:
            return Rejected(frame.envelope.id, "unauthorized", "The token is wrong.")
        op = decode_op(frame)
        self.seen[frame.envelope.id] = op
        self.clients.append(frame.envelope.client)
        try:
            return Accepted(frame.envelope.id, self._result(op))
        except Refusal as refusal:
            return Rejected(frame.envelope.id, refusal.code, str(refusal))

    def _result(self, op: AnyOp) -> AnyResult | None:
        if not isinstance(op, Hello):
            self.quick.wait()
        if refusal := self.refusals.get(type(op)):
            raise refusal
        match op:
            case Hello():
                limits = Limits(1, 1, 1)
                return HelloResult(
                    "0.0.fake", 1, self.log_id, limits, searches_model=self.searches_model
                )
            case SessionCreate():
                session_id = f"01K0SESS{len(self.sessions):018}"
                self.add(session_id, [SessionCreated(op.workspace, op.settings)])
                self.created.set()
                return Created(session_id)
            case SessionList():
                return self._list(op)
            case SessionSearch():
                return self._search(op)
            case SessionGet():
                snapshot = Snapshot(op.session_id)
                for event in self._log(op.session_id):
                    fold(snapshot, event)
                return SessionResult(snapshot)
            case SessionArchive():
                self.add(op.session_id, [SessionArchived(op.archived)])
            case QueueEdit() | Revert() | Unrevert() | SessionConfigure():
                self._log(op.session_id)
            case UserInput(delivery="queue"):
                return Queued("01K0INPUT000000000000000Q1", len(self._log(op.session_id)))
            case SessionDelete():
                if any(self._summary(one).parent_id == op.session_id for one in self.sessions):
                    raise Refusal("busy", "Delete the forks first.")
                del self.sessions[op.session_id]
            case Replay():
                log = self._log(op.session_id)
                events = tuple(log[op.after : op.after + min(op.limit, REPLAY_EVENTS_MAX)])
                return ReplayResult(events, op.after + len(events), len(log), self.followers)
            case UserInput() | TurnContinue() | Compact() | Shell():
                self._log(op.session_id)
                player = threading.Thread(target=self.play, args=(self, op.session_id))
                self._players.append(player)
                self.started.set()
                player.start()
                return Started(TURN)
            case Interrupt():
                self.interrupted.set()
            case Answer():
                self.answers[op.request_id] = op
                for session_id in self.sessions:
                    resolved = RequestResolved(op.request_id, op.decision, "fake", op.text)
                    self.add(session_id, [resolved])
                self._answered.release()
            case Project():
                return ProjectResult(op.workspace, "", (), trusted=False)
            case RulesList():
                return RulesResult(self.rules)
            case RuleRevoke():
                self.rules = tuple(one for one in self.rules if one.id != op.rule_id)
                return None
            case Catalog():
                return CatalogResult(self.models if op.ask else (), self.tools, ())
            case DaemonStatus():
                return DaemonStatusResult("0.0.fake", 1, 2.5, "/log", 1, 1, 0)
            case Shutdown():
                self._ended.set()
            case _:
                raise Refusal("unavailable", f"{type(op).__name__} can't be done here yet.")
        return None

    def _log(self, session_id: str) -> list[Event]:
        if session_id not in self.sessions:
            raise Refusal("not_found", f"There is no session {session_id}.")
        return self.sessions[session_id]

    def _list(self, op: SessionList) -> SessionListResult:
        begin = int(op.after or 0)
        summaries = map(self._summary, sorted(self.sessions, reverse=True))
        listed = [
            summary
            for summary in summaries
            if (
                summary.session_id in op.sessions
                if op.sessions
                else summary.archived == op.archived
            )
            and op.workspace in (None, summary.workspace)
        ]
        following = begin + op.limit
        return SessionListResult(
            tuple(listed[begin:following]),
            str(following) if following < len(listed) else None,
        )

    def _search(self, op: SessionSearch) -> SessionSearchResult:
        """Return the sessions whose title is the query, one on each page."""
        listed = self._list(SessionList(op.workspace)).sessions
        found = [
            FoundSession(one, (FoundText("title", ("A ", one.title, "!"), one.created_at),))
            for one in listed
            if one.title == op.query.strip('"')
        ]
        begin = int(op.after or 0)
        more = str(begin + 1) if begin + 1 < len(found) else None
        return SessionSearchResult(tuple(found[begin : begin + 1]), more, self.not_indexed)

    def _summary(self, session_id: str) -> SessionSummary:
        snapshot = Snapshot(session_id)
        for event in self.sessions[session_id]:
            fold(snapshot, event)
        return SessionSummary(
            session_id,
            snapshot.workspace,
            snapshot.created_at,
            snapshot.updated_at,
            snapshot.seq,
            status="waiting" if snapshot.requests else "idle",
            title=snapshot.title,
            archived=snapshot.archived,
            cost=snapshot.cost,
            requests=tuple(snapshot.requests),
            parent_id=snapshot.parent_id,
            parent_turns=snapshot.parent_turns,
            context_tokens=snapshot.context_tokens,
            context_window=snapshot.context_window,
            branch=snapshot.branch,
            worktree=snapshot.worktree,
            last_outcome=snapshot.last_outcome,
            turns=snapshot.turns,
            queued=len(snapshot.queue),
        )
