"""Says which records a session has, or a list of sessions; pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from tiller_client.program_status.report import APP, RECORDS_MAX, ROOT, Kind, Record, State, id_of
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    BackgroundChanged,
    Event,
    ItemCompleted,
    ItemStarted,
    Outcome,
    PlanUpdated,
    RequestOpened,
    RequestResolved,
    StatusChanged,
    ToolCallUpdated,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.items import BackgroundCommand, Item, Request, SubAgent, ToolCall
from tiller_protocol.snapshot import SessionSummary, last_words

AUTHENTICATION = "authentication"
"""The code of the error of a turn that fails because a provider needs a key, or refuses it."""

_URGENCY: Sequence[State] = ("blocked", "error", "working", "done", "idle")
"""What of several sessions is told first."""


class SessionRecords:
    """The records of one session, which `note` keeps up to date with its events."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._calls: dict[str, ToolCall] = {}
        """The calls that are not complete, oldest first."""
        self._background: Sequence[BackgroundCommand] = ()
        self._is_busy = False
        self._cause = ""
        self._progress: int | None = None
        self._ended = Record("idle", app=APP)
        """The session's record while no turn is running."""

    def start_from(
        self,
        requests: Iterable[Request],
        *,
        busy: bool,
        open_items: Iterable[Item] = (),
        background: Sequence[BackgroundCommand] = (),
    ) -> None:
        """Set the initial state. The end of an earlier turn is no news, so it is not told."""
        self._requests = {request.id: request for request in requests}
        self._is_busy = busy
        self._calls = {item.id: item for item in open_items if isinstance(item, ToolCall)}
        self._background = background

    def note(self, event: Event) -> None:
        """Note the session's next event."""
        match event.body:
            case TurnStarted():
                self._is_busy, self._cause = True, ""
            case TurnEnded(outcome, error=error, last_message=message):
                self.cut_off()
                self._ended = _ended(outcome, error, message)
            case StatusChanged(status, cause=cause):
                self._cause = cause if status != "idle" else ""
            case RequestOpened(request):
                self._requests[request.id] = request
            case RequestResolved(request_id):
                self._requests.pop(request_id, None)
            case PlanUpdated(plan):
                done = sum(entry.state == "completed" for entry in plan)
                self._progress = _percent(done, len(plan))
            case BackgroundChanged(background):
                self._background = background
            case ItemStarted() | ItemCompleted() | ToolCallUpdated():
                self._note_call(event.body)
            case _:
                pass

    def cut_off(self) -> None:
        """Note that the turn has ended, although its last events may come later."""
        self._is_busy, self._cause = False, ""
        self._requests.clear()
        self._calls.clear()
        self._ended = Record("idle", app=APP)

    def records(self) -> dict[str, Record]:
        """The records by id: the session's own, and one for each working sub-agent."""
        records = {ROOT: self._own()}
        # A sub-agent's request is also one of the call that waits for it.
        asking = {request.item_id: _waiting(request) for request in self._requests.values()}
        for agent, task, item_id in islice(self._sub_agents(), RECORDS_MAX - 1):
            record = asking.get(item_id) or Record("working")
            records[id_of(agent.session_id)] = record._replace(title=task)
        return records

    def _own(self) -> Record:
        progress = self._progress
        if request := next(iter(self._requests.values()), None):
            return _waiting(request)._replace(app=APP, progress=progress)
        if not self._is_busy:
            return self._ended
        title = next((call.title or call.name for call in reversed(self._calls.values())), "")
        return Record("working", app=APP, progress=progress, message=self._cause or title)

    def _sub_agents(self) -> Iterator[tuple[SubAgent, str, str]]:
        """Each working sub-agent, its name and task, and the id of the call that has started it."""
        for call in self._calls.values():
            if call.sub_agent:
                yield call.sub_agent, call.title, call.id
        for one in self._background:
            if one.sub_agent and one.state == "running":
                yield one.sub_agent, one.command, one.item_id

    def _note_call(self, body: ItemStarted | ItemCompleted | ToolCallUpdated) -> None:
        match body:
            case ItemStarted(item):
                if isinstance(item, ToolCall):
                    self._calls[item.id] = item
            case ItemCompleted(item):
                self._calls.pop(item.id, None)
            case ToolCallUpdated(item_id, title=title, sub_agent=agent):
                if call := self._calls.get(item_id):
                    self._calls[item_id] = _changed(call, title, agent)


def records_of_sessions(sessions: Iterable[SessionSummary]) -> dict[str, Record]:
    """The records of a list of sessions: one for each, and above them one for the program.

    If there are too many, the most urgent are told. Idle sessions that the user has seen are not.
    """
    told = {id_of(one.session_id): _of_summary(one) for one in sessions}
    urgent = sorted(told.items(), key=lambda pair: _URGENCY.index(pair[1].state))
    news = [(name, record) for name, record in urgent if record.state != "idle"]
    if not news:
        return {ROOT: Record("idle", app=APP)}
    first = news[0][1]
    number = sum(record.state == first.state for _, record in news)
    own = Record(first.state, first.kind, app=APP, message=_sentence(first.state, number))
    return {ROOT: own, **dict(news[: RECORDS_MAX - 1])}


def _of_summary(session: SessionSummary) -> Record:
    title = session.title or session.workspace.rpartition("/")[2]
    progress = _percent(session.plan_done, session.plan_size)
    if session.requests:
        return _waiting(session.requests[0])._replace(title=title, progress=progress)
    if session.status != "idle":
        return Record("working", progress=progress, title=title, message=session.last_line)
    if not session.unseen or session.last_outcome in (None, "interrupted"):
        return Record("idle", title=title)
    if session.last_outcome == "completed":
        return Record("done", title=title, message=session.last_line)
    return Record("error", title=title, message=session.reason)


def _sentence(state: State, number: int) -> str:
    sessions = "1 session" if number == 1 else f"{number} sessions"
    match state:
        case "blocked":
            return f"{sessions} need{'s' * (number == 1)} you"
        case "error":
            return f"{sessions} failed"
        case "working":
            return f"{sessions} at work"
        case _:
            return f"{sessions} done"


def _waiting(request: Request) -> Record:
    kind: Kind = "question" if request.kind == "question" else "permission"
    return Record("blocked", kind, message=request.title)


def _ended(outcome: Outcome, error: ErrorInfo | None, message: str) -> Record:
    if outcome == "completed":
        return Record("done", app=APP, message=last_words(message))
    if outcome == "interrupted":
        return Record("idle", app=APP)
    reason = error.message if error else outcome
    if error and error.code == AUTHENTICATION:
        return Record("blocked", "auth", app=APP, message=reason)
    return Record("error", app=APP, message=reason)


def _percent(done: int, size: int) -> int | None:
    return 100 * done // size if size else None


def _changed(call: ToolCall, title: str, agent: SubAgent | None) -> ToolCall:
    return replace(call, title=title or call.title, sub_agent=agent or call.sub_agent)
