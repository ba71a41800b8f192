"""What a board says of one session: its group, what it does, where it works, how old that is; pure.

Everything follows from the session's summary.
"""

from typing import Literal, NamedTuple, get_args

from tiller_client.rendering.lines import state_word
from tiller_client.rendering.requests import title_line
from tiller_client.rendering.text import SHORT_ID_CHARS, counted, dollars, one_line
from tiller_protocol.ids import made_at
from tiller_protocol.items import Request
from tiller_protocol.snapshot import SessionSummary

Group = Literal["needs_you", "working", "waiting", "done", "idle"]

GROUPS: tuple[Group, ...] = get_args(Group)
"""The groups in the order of the board."""

GROUP_TITLES: dict[Group, str] = {
    "needs_you": "needs you",
    "working": "working",
    "waiting": "waiting",
    "done": "done, not seen",
    "idle": "idle",
}


class Key(NamedTuple):
    """Names a session among those of all hosts."""

    host: str
    """The label of the host; empty for the one without a label."""
    session_id: str

    @property
    def short(self) -> str:
        """The id for people, such as `box:8K2QW7YD`."""
        short = self.session_id[-SHORT_ID_CHARS:]
        return f"{self.host}:{short}" if self.host else short


class Row(NamedTuple):
    """A session on the board."""

    key: Key
    session: SessionSummary
    group: Group
    requests: tuple[Request, ...] = ()
    """The open requests that were not answered here, oldest first."""

    @property
    def name(self) -> str:
        """The session's title, or else the end of its id."""
        return one_line(self.session.title) or self.key.short

    @property
    def place(self) -> str:
        """Where the session works: the host, if it has a label, and the repository."""
        return self._at_host(workplace(self.session))

    @property
    def narrow_place(self) -> str:
        """The same where branches have no room: a worktree instead of its repository."""
        return self._at_host(one_line(self.session.worktree) or workplace(self.session))

    def _at_host(self, place: str) -> str:
        return f"{self.key.host}:{place}" if self.key.host else place

    def elapsed_s(self, now: float) -> float:
        """How long the session has been doing what it does, at `now` (Unix seconds)."""
        return max(0.0, now - self.since)

    @property
    def since(self) -> float:
        """When that began, in Unix seconds."""
        session = self.session
        if self.group == "working":
            return session.working_since or session.updated_at
        asked = made_at(self.requests[0].id) if self.requests else None
        return asked or session.updated_at


def row_of(key: Key, session: SessionSummary, answered: frozenset[str] | set[str]) -> Row:
    """Make a session's row; requests whose ids are in `answered` count as closed."""
    requests = tuple(one for one in session.requests if one.id not in answered)
    return Row(key, session, _group(session, requests), requests)


def _group(session: SessionSummary, requests: tuple[Request, ...]) -> Group:
    if requests:
        return "needs_you"
    if session.status == "retry":
        return "waiting"
    if session.status != "idle":
        return "working"
    if session.queued:
        return "waiting"
    return "done" if session.unseen else "idle"


def order(row: Row) -> tuple[int, float, str]:
    """A sort key: groups in their order; in a group, who has waited longest or ended last.

    Rows of working sessions keep their places, as otherwise they would move with each event.
    """
    if row.group == "needs_you":
        place = row.since
    elif row.group in ("done", "idle"):
        place = -row.session.updated_at
    else:
        place = -row.session.created_at
    return GROUPS.index(row.group), place, row.key.session_id


def workplace(session: SessionSummary) -> str:
    """The name of the repository in which a session works, or of its directory."""
    place = session.checkout or session.workspace
    return one_line(place.rstrip("/").rpartition("/")[2]) or "/"


def branch(session: SessionSummary) -> str:
    """The branch on which a session works; empty if it is unknown."""
    return one_line(session.branch or session.worktree)


def activity(row: Row) -> str:
    """What a session does now, or how it has ended, in one line."""
    session = row.session
    match row.group:
        case "needs_you":
            more = f" (and {len(row.requests) - 1} more)" if row.requests[1:] else ""
            return one_line(title_line(row.requests[0])) + more
        case "working":
            done = f"{session.plan_done}/{session.plan_size} · " if session.plan_size else ""
            return done + (one_line(session.doing) or one_line(session.last_line) or "working")
        case "waiting" if session.status == "retry":
            return "asks the model again"
        case "waiting":
            return f"{counted(session.queued, 'message')} waiting, after {_ending(session)}"
        case "done" | "idle":
            return " · ".join(filter(None, ("landed" * session.landed, _result(session))))


def _ending(session: SessionSummary) -> str:
    word = state_word(session)
    return "its turn" if word == "idle" else f"a turn that was {word}"


def _result(session: SessionSummary) -> str:
    word = state_word(session)
    if word == "idle":
        return one_line(session.last_line)
    return ": ".join(filter(None, (word, one_line(session.reason or session.last_line))))


def has_failed(session: SessionSummary) -> bool:
    """Whether the last turn ended without completing, and not because a user interrupted it."""
    word = state_word(session)
    return word in ("failed", "limit", "blocked") or (
        word == "interrupted" and bool(session.reason)
    )


def changes(session: SessionSummary) -> str:
    """What a session has changed, such as `3 files +120 -8`; empty if nothing."""
    if not session.changed_files:
        return ""
    counts = f" +{session.added_lines} -{session.removed_lines}"
    return counted(session.changed_files, "file") + counts


def context(session: SessionSummary) -> str:
    """The used part of the context window, such as `12 %`; empty if unknown."""
    if not session.context_tokens or not session.context_window:
        return ""
    return f"{100 * session.context_tokens / session.context_window:.0f} %"


def cost(session: SessionSummary) -> str:
    """What a session has cost so far; empty if unknown."""
    return "" if session.cost is None else dollars(session.cost)
