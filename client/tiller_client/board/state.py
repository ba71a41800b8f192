"""The state of a board: all sessions, and what the user chooses, reads and types; pure.

News of the hosts go in with `take`, keys with `keys.press`. `frame.py` makes the window from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tiller_client.board.filtering import Filter
from tiller_client.board.line import Line
from tiller_client.board.sessions import Group, Key, Row, branch, context, cost, order, row_of
from tiller_client.chat.asking import Asking
from tiller_client.following.overview import News
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cells, one_line
from tiller_protocol.items import Request
from tiller_protocol.snapshot import SessionSummary

STALE_S = 15.0
"""Silence of a host after which its rows are grey: it answers something every four seconds, and a
link that needs two seconds for a round trip is not lost."""


@dataclass
class HostState:
    """What is known about a host itself."""

    heard_at: float = 0.0
    """When it answered last, in Unix seconds; 0 before its first answer."""
    problem: str = ""
    """Why it can't be reached; empty if it can."""

    def is_stale(self, now: float) -> bool:
        """Whether what the host has said may no longer be true."""
        return bool(self.problem) or now - self.heard_at > STALE_S


@dataclass
class View:
    """A text in place of the list, such as a diff."""

    title: str
    """The first row of the window."""
    lines: Callable[[int, Theme], Sequence[str]]
    """Makes the lines for a width in columns; their text is safe."""
    key: Key | None = None
    """The session that the text is about."""
    request_id: str = ""
    """The request whose text this is; empty for another text."""
    top: int = 0
    """The number of lines above the window."""
    reached: int = 0
    """The number of lines that were in the window so far, from the first one on without a gap."""
    rows: int = 1
    """The number of lines in the window when it was drawn last."""
    width: int = 0
    """The columns of the lines when they were drawn last."""
    is_read: bool = False
    """Whether all lines were in the window."""

    @property
    def fits(self) -> bool:
        """Whether the whole text is in the window, so that there is nothing to scroll."""
        return 0 < self.reached <= self.rows and self.is_read

    def scroll(self, lines: int) -> None:
        """Move the window; drawing it keeps it within the text."""
        self.top = max(0, self.top + lines)

    def window(self, lines: Sequence[str], width: int, rows: int) -> Sequence[str]:
        """The lines in a window with this number of rows, and note that they are seen.

        Of a request, no way of scrolling leaves out a line. With a new width, it begins again.
        """
        if width != self.width:
            self.width, self.reached = width, 0
        self.rows = rows
        farthest = self.reached if self.request_id else len(lines)
        self.top = max(0, min(self.top, len(lines) - rows, farthest))
        self.reached = max(self.reached, min(len(lines), self.top + rows))
        self.is_read = self.reached >= len(lines)
        return lines[self.top : self.top + rows]


@dataclass
class Typing:
    """A text that the user is typing, and what it is for."""

    purpose: Literal["filter", "message", "new", "worktree", "answer", "reason"]
    line: Line
    row: Row | None = None
    """The session that it is about."""

    def place(self, here: str) -> str:
        """The directory for a new session; `here` if it is about no other session.

        A worktree is made of the repository, not of another worktree.
        """
        if self.row is None:
            return here
        session = self.row.session
        return (self.purpose == "worktree" and session.checkout) or session.workspace


class Longest(NamedTuple):
    """The columns that the longest texts of some columns of the list need."""

    place: int = 0
    branch: int = 0
    context: int = 0
    cost: int = 0


class _Listed(NamedTuple):
    """The rows, and what follows from all of them."""

    rows: Sequence[Row]
    total: int
    """The number of sessions, with those that the filter hides."""
    longest: Longest


class BoardState:
    """Everything that a board shows."""

    def __init__(
        self,
        labels: Sequence[str],
        filter_text: str = "",
        wanted: Callable[[SessionSummary], bool] = lambda _: True,
        here: str = "",
    ) -> None:
        """`labels` are the hosts; each is waited for until it says something.

        Only `wanted` sessions have rows. `here` is the directory for a new session if none is
        chosen, on the host without a label; empty if unknown.
        """
        self.here = here
        self._wanted = wanted
        self.hosts = {label: HostState() for label in labels}
        self.sessions: dict[str, dict[str, SessionSummary]] = {label: {} for label in labels}
        self.answered: set[str] = set()
        """The requests that were answered here, whose sessions may not have said so yet."""
        self.filter = Filter(filter_text)
        self.chosen: Key | None = None
        self.view: View | None = None
        self.asking = Asking()
        self.typing: Typing | None = None
        self.said = self.said_before = ""
        """The note about the last key, and the one before it, on which a second key may depend."""
        self.archived: dict[Key, str] = {}
        """The names of the sessions archived here, the last one last."""
        self._listed: _Listed | None = None
        self._at = 0

    def take(self, news: News) -> None:
        """Apply what a host says."""
        host = self.hosts.setdefault(news.label, HostState())
        host.problem = one_line(news.problem)
        if news.problem:
            return
        host.heard_at = news.time
        known = self.sessions.setdefault(news.label, {})
        if not (news.changed or news.gone or news.whole):
            return
        if news.whole:
            known.clear()
        known.update((one.session_id, one) for one in news.changed)
        for session_id in news.gone:
            known.pop(session_id, None)
        self.refresh()

    def refresh(self) -> None:
        """Make the rows anew when they are needed next."""
        self._listed = None

    @property
    def rows(self) -> Sequence[Row]:
        """The rows that the filter lets through, in order."""
        return self._list().rows

    @property
    def longest(self) -> Longest:
        """The columns that the longest texts of the rows need."""
        return self._list().longest

    @property
    def at(self) -> int:
        """The position of the chosen row in `rows`."""
        self._list()
        return self._at

    @property
    def row(self) -> Row | None:
        """The chosen row."""
        return self.rows[self._at] if self.rows else None

    @property
    def total(self) -> int:
        """The number of sessions, with those that the filter hides."""
        return self._list().total

    def counts(self) -> dict[Group, int]:
        """The number of rows of each group that has any."""
        counts: dict[Group, int] = {}
        for row in self.rows:
            counts[row.group] = counts.get(row.group, 0) + 1
        return counts

    def choose(self, at: int) -> None:
        """Choose the row at a position, or the nearest one."""
        if self.rows:
            self._at = max(0, min(at, len(self.rows) - 1))
            self.chosen = self.rows[self._at].key

    def choose_next_asking(self) -> None:
        """Choose the first session that needs the user, if there is one."""
        if self.rows and self.rows[0].group == "needs_you":
            self.choose(0)

    def narrow(self, wanted: Filter) -> None:
        """Show other rows."""
        self.filter = wanted
        self.refresh()

    def say(self, text: str) -> None:
        """Show a note until the next key."""
        self.said = one_line(text)

    def requests_of(self, view: View) -> Sequence[Request]:
        """The open requests of the session that a text is about; empty if it is gone."""
        sessions = self.sessions[view.key.host] if view.key else {}
        session = sessions.get(view.key.session_id) if view.key else None
        return [one for one in session.requests if one.id not in self.answered] if session else []

    def _list(self) -> "_Listed":
        if self._listed is None:
            everything = self._all_rows()
            rows = sorted(filter(self.filter.matches, everything), key=order)
            texts = [*zip(*map(_texts, rows), strict=True)]
            longest = Longest(*(max(map(cells, column)) for column in texts))
            self._listed = _Listed(rows, len(everything), longest)
            self._keep_chosen(rows)
        return self._listed

    def _all_rows(self) -> list[Row]:
        rows: list[Row] = []
        for label, sessions in self.sessions.items():
            for session_id, session in sessions.items():
                closed = self.answered
                if session.owner_id is not None:
                    owner = sessions.get(session.owner_id)
                    closed = closed | {one.id for one in owner.requests} if owner else closed
                row = row_of(Key(label, session_id), session, closed)
                if (session.owner_id is None or row.requests) and self._wanted(session):
                    rows.append(row)
        return rows

    def _keep_chosen(self, rows: Sequence[Row]) -> None:
        """Let the chosen session stay chosen; if it is gone, take the one in its place."""
        found = (at for at, row in enumerate(rows) if row.key == self.chosen)
        self._at = next(found, max(0, min(self._at, len(rows) - 1)))
        self.chosen = rows[self._at].key if rows else None


def _texts(row: Row) -> tuple[str, str, str, str]:
    """The texts of the columns in `Longest`."""
    session = row.session
    place = max(row.place, row.narrow_place, key=cells)
    return place, branch(session), context(session), cost(session)
