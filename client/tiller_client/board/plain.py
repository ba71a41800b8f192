"""A board as lines: for screen readers, simple terminals and pipes, or as JSON for programs.

Each line is written once and whole. A session gets a new line when it begins to need something
else, not for every step of its work.
"""

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from tiller_client.board.filtering import Filter
from tiller_client.board.sessions import GROUP_TITLES, Group, Key, Row, activity, order, row_of
from tiller_client.board.state import BoardState
from tiller_client.console import complain, flush, print_json, say, stdout_columns, stdout_theme
from tiller_client.errors import TillerError
from tiller_client.following.overview import FollowedHost, News, Overview
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import cut, one_line, pad
from tiller_protocol.snapshot import SessionSummary

ANSWER_S_MAX = 30.0
"""How long the sessions of a host are waited for if they are printed only once."""

GROUP_COLUMNS = max(map(len, GROUP_TITLES.values()))


class SessionLine(Struct, frozen=True, tag="session"):
    """A session that is new or has changed, as JSON."""

    host: str
    group: Group
    session: SessionSummary


class GoneLine(Struct, frozen=True, tag="gone"):
    """A session that was deleted or archived, as JSON."""

    host: str
    session_id: str


class HostLine(Struct, frozen=True, tag="host"):
    """A host that is reached now, or not, as JSON."""

    host: str
    state: Literal["connected", "away"]
    message: str = ""


Line = SessionLine | GoneLine | HostLine

Wanted = Callable[[SessionSummary], bool]
"""Whether a session is to be printed."""


class Changes:
    """Finds out what is new in the news: a line of JSON for each change; pure."""

    def __init__(self, wanted: Wanted, words: Filter) -> None:
        self._wanted = wanted
        self._words = words
        self._shown: dict[Key, SessionSummary] = {}
        self._connected: set[str] = set()

    def take(self, news: News) -> Iterable[Line]:
        """Yield the lines for what a host says, in the order of the board."""
        host = news.label
        if news.problem:
            self._connected.discard(host)
            yield HostLine(host, "away", news.problem)
            return
        if host not in self._connected:
            self._connected.add(host)
            yield HostLine(host, "connected")
        rows = [row_of(Key(host, one.session_id), one, set()) for one in news.changed]
        keys = {row.key for row in rows}
        gone = [key for key in self._shown if key.host == host and key not in keys]
        gone = gone if news.whole else [Key(host, one) for one in news.gone]
        for row in sorted(rows, key=order):
            if not (self._wanted(row.session) and self._words.matches(row)):
                gone.append(row.key)
            elif self._shown.get(row.key) != row.session:
                self._shown[row.key] = row.session
                yield SessionLine(host, row.group, row.session)
        for key in gone:
            if self._shown.pop(key, None) is not None:
                yield GoneLine(host, key.session_id)


def print_once(hosts: Sequence[FollowedHost], wanted: Wanted, words: Filter) -> int:
    """Print each session as a line of JSON; returns 1 if a host can't be reached."""
    state, problems = BoardState([host.label for host in hosts], words.text), 0
    for news in _first(hosts):
        state.take(news)
        if news.problem:
            problems += 1
            complain(f"{news.label}: {news.problem}" if news.label else news.problem)
    for row in state.rows:
        if wanted(row.session):
            print_json(SessionLine(row.key.host, row.group, row.session))
    return min(1, problems)


def _first(hosts: Sequence[FollowedHost]) -> Iterable[News]:
    """Yield what each host says first: all its sessions, or its problem."""
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    waits = {host.label for host in hosts}
    deadline = time.monotonic() + ANSWER_S_MAX
    with Overview(hosts, inbox.put):
        while waits:
            try:
                news = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                silent = sorted(label or "this machine" for label in waits)
                raise TillerError(f"no answer from {', '.join(silent)}") from None
            if news.whole or news.problem:
                waits.discard(news.label)
            yield news


def follow_json(hosts: Sequence[FollowedHost], wanted: Wanted, words: Filter) -> None:
    """Print each session, and then each change, as a line of JSON, until interrupted."""
    changes = Changes(wanted, words)
    for news in _all_news(hosts):
        for line in changes.take(news):
            print_json(line)


def watch(
    hosts: Sequence[FollowedHost], wanted: Wanted, words: Filter, *, limit: int | None
) -> None:
    """Print the first `limit` sessions, and then a line when one needs something else."""
    changes = Changes(wanted, words)
    shown: dict[Key, tuple[object, ...]] = {}
    theme, columns = stdout_theme(), stdout_columns()
    begun: set[str] = set()
    for news in _all_news(hosts):
        left = limit if news.label not in begun else None
        begun |= {news.label} if news.whole else set()
        for line in changes.take(news):
            if isinstance(line, SessionLine):
                row = row_of(Key(line.host, line.session.session_id), line.session, set())
                now = _state(row)
                if shown.get(row.key) != now and left != 0:
                    say(watch_line(row, news.time, columns, theme))
                    left = None if left is None else left - 1
                shown[row.key] = now
            elif isinstance(line, GoneLine):
                key = Key(line.host, line.session_id)
                if shown.pop(key, None) is not None:
                    say(f"{_clock(news.time)}  {key.short}  is gone: deleted, archived or filtered")
            elif line.message:
                name = line.host or "this machine"
                say(f"{_clock(news.time)}  {name} can't be reached: {one_line(line.message)}")
            elif shown:
                say(f"{_clock(news.time)}  {line.host or 'this machine'} answers again")
        flush()


def watch_line(row: Row, time_s: float, columns: int, theme: Theme) -> str:
    """A line about what a session needs or does since a time (Unix seconds)."""
    group = pad(GROUP_TITLES[row.group], GROUP_COLUMNS)
    tint = theme.asking if row.group == "needs_you" else theme.dim
    begin = f"{_clock(time_s)}  {row.key.short}  "
    about = " · ".join(filter(None, (row.name, activity(row))))
    return begin + tint(group) + cut(f"  {about}", columns - len(begin) - GROUP_COLUMNS)


def _clock(time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def _state(row: Row) -> tuple[object, ...]:
    """What a new line is printed for; a session's progress within a turn is not."""
    session = row.session
    return row.group, tuple(one.id for one in row.requests), session.last_outcome, session.turns


def _all_news(hosts: Sequence[FollowedHost]) -> Iterable[News]:
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    with Overview(hosts, inbox.put):
        while True:
            yield inbox.get()
