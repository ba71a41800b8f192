"""Keeps the lists of sessions of several hosts up to date, for boards.

Each host has one link, in a thread of its own, so a slow or dead host delays nobody. Its cursor is
what it has told last of each session. Every publication names a session, whose summary is then
asked for anew. As publications can be lost, busy sessions are asked for from time to time, too, and
more rarely all sessions. A link that was lost is made again and asks for all sessions.
"""

import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import structs

from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.pool import ConnectionPool
from tiller_client.connecting.sockets import EventSocket
from tiller_client.errors import LinkLost, TillerError
from tiller_client.following.watch import Wakeup
from tiller_protocol.answers import SessionListResult
from tiller_protocol.codec import TOPIC_END
from tiller_protocol.events import LIFECYCLE_TOPIC
from tiller_protocol.ids import ULID_CHARS
from tiller_protocol.sessions import LIST_LIMIT_MAX, SessionList
from tiller_protocol.snapshot import SessionSummary

SESSIONS_MAX = LIST_LIMIT_MAX
"""How many sessions of a host are followed, the most recently active ones."""

REFRESH_S = 0.1
"""Shortest time between two questions: nobody reads faster."""

SILENCE_S = 4.0
"""Time without a question after which to ask for busy sessions: a publication may be lost. It is
also how often a host is told that somebody looks."""

WHOLE_S, WHOLE_MANY_S, MANY = 10.0, 60.0, 100
"""Time after which to ask for all sessions, as only that shows which ones were deleted. If there
are `MANY`, it is longer, as the answer has 400 bytes for each."""

RETRY_S = 0.5
"""Time between two attempts to reach a host."""

NEWEST = 20
"""How many sessions to ask for after a silence if none is busy: a lost event was of these."""


class FollowedHost(NamedTuple):
    """A machine with a daemon, and how to reach it."""

    label: str
    """The name before ids, as in `box:8K2Q`; empty for the host that needs no name."""
    pool: ConnectionPool
    options: Sequence[str] = ()
    """The options of `tiller` for a verb on this host, such as `--host me@box`."""


class News(NamedTuple):
    """What a host has said, or why it says nothing."""

    label: str
    """The host."""
    time: float
    """When it was heard, in Unix seconds."""
    changed: Sequence[SessionSummary] = ()
    """New and changed sessions."""
    gone: Sequence[str] = ()
    """Sessions that were deleted or archived."""
    whole: bool = False
    """Whether `changed` are all sessions of the host."""
    problem: str = ""
    """Why the host can't be reached; then its sessions stay as they were."""


Take = Callable[[News], None]
"""Takes the news; called by the threads of the hosts."""


class Overview:
    """The sessions of some hosts, until it is closed; a context manager."""

    def __init__(
        self,
        hosts: Iterable[FollowedHost],
        take: Take,
        is_seen: Callable[[], bool] = lambda: False,
    ) -> None:
        """`take` gets everything that the hosts say, each from its own thread.

        `is_seen` says whether somebody looks at the lists now.
        """
        self._links = [_Link(host, take, is_seen) for host in hosts]

    def __enter__(self) -> "Overview":
        for link in self._links:
            threading.Thread(target=link.run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            link.close()


class _Link:
    """The link to one host; `run` works until `close`."""

    def __init__(self, host: FollowedHost, take: Take, is_seen: Callable[[], bool]) -> None:
        self._host = host
        self._take = take
        self._is_seen = is_seen
        self._closed = threading.Event()
        self._wakeup = Wakeup()
        self._known: dict[str, SessionSummary] = {}
        self._dirty: set[str] = set()
        self._asked_at = self._whole_at = 0.0
        """When sessions, and all sessions, were last asked for, by `time.monotonic`."""
        self._problem = ""
        self._may_start = True
        """Whether no daemon was reached yet; later, one that the user has stopped stays stopped."""

    def close(self) -> None:
        """End `run`, at the latest when the host has answered."""
        self._wakeup.wake()
        self._closed.set()

    def run(self) -> None:
        """Follow the host, and connect again whenever the link is lost."""
        while not self._closed.is_set():
            try:
                if not self._may_start:
                    self._host.pool.start_crashed()
                self._follow()
            except (TillerError, OSError) as error:
                self._fail(str(error))
            self._wait([], RETRY_S)
        self._wakeup.close()

    def _follow(self) -> None:
        pool = self._host.pool
        with pool.connect(may_start=self._may_start) as connection:
            self._may_start = False
            with EventSocket(connection.places, LIFECYCLE_TOPIC) as socket:
                self._ask_all(connection)
                while not self._closed.is_set():
                    if not socket.sources:
                        raise LinkLost("the connection to the daemon was lost")
                    self._wait(socket.sources, self._wait_s)
                    self._dirty |= _sessions_of(socket.drain_all())
                    if self._wait_s <= 0:
                        self._ask_due(connection)

    @property
    def _wait_s(self) -> float:
        """How long to wait for publications until the next question is due."""
        since = time.monotonic() - self._asked_at
        return (REFRESH_S if self._dirty else SILENCE_S) - since

    def _wait(self, sources: list[int], longest_s: float) -> None:
        select.select([*sources, self._wakeup.fd], [], [], max(0.0, longest_s))

    def _ask_due(self, connection: DaemonConnection) -> None:
        whole_s = WHOLE_S if len(self._known) < MANY else WHOLE_MANY_S
        if time.monotonic() - self._whole_at > whole_s:
            self._ask_all(connection)
            return
        wanted = self._dirty or {one.session_id for one in self._known.values() if _is_busy(one)}
        self._dirty = set()
        if not wanted:
            found = self._list(connection, SessionList(limit=NEWEST))
            self._tell(found, ())
        for part in _parts(sorted(wanted)):
            op = SessionList(sub_agents=True, limit=len(part), sessions=tuple(part))
            found = [one for one in self._list(connection, op) if _is_listed(one)]
            here = {one.session_id for one in found}
            self._tell(found, [one for one in part if one in self._known and one not in here])
        self._asked_at = time.monotonic()

    def _ask_all(self, connection: DaemonConnection) -> None:
        self._dirty = set()
        found = self._list(connection, SessionList(limit=SESSIONS_MAX))
        # Before the sub-agents, which only some sessions have.
        kept = [one for one in self._known.values() if one.owner_id]
        self._tell([*found, *kept], (), whole=True)
        agents = self._list(connection, SessionList(limit=SESSIONS_MAX, sub_agents=True))
        asking = {one.session_id: one for one in agents if one.owner_id and _is_listed(one)}
        self._tell(
            [*asking.values()], [one.session_id for one in kept if one.session_id not in asking]
        )
        self._asked_at = self._whole_at = time.monotonic()

    def _list(self, connection: DaemonConnection, op: SessionList) -> Sequence[SessionSummary]:
        asked = structs.replace(op, focus=self._is_seen())
        return connection.look(asked, SessionListResult).sessions

    def _tell(
        self, found: Sequence[SessionSummary], gone: Sequence[str], *, whole: bool = False
    ) -> None:
        """Pass on what is new; what is as before only shows that the host still answers."""
        changed = [one for one in found if whole or self._known.get(one.session_id) != one]
        if whole:
            self._known = {}
        self._known |= {one.session_id: one for one in changed}
        for session_id in gone:
            self._known.pop(session_id, None)
        self._problem = ""
        self._take(News(self._host.label, time.time(), changed, gone, whole))

    def _fail(self, problem: str) -> None:
        """Say once why the host can't be reached."""
        if problem != self._problem and not self._closed.is_set():
            self._problem = problem
            self._take(News(self._host.label, time.time(), problem=problem))


def _sessions_of(messages: Iterable[bytes]) -> set[str]:
    """The sessions that publications are about; life-cycle events come under these topics, too."""
    topics = {message.partition(TOPIC_END)[0] for message in messages}
    return {topic.decode(errors="replace") for topic in topics if len(topic) == ULID_CHARS}


def _is_busy(session: SessionSummary) -> bool:
    return session.status != "idle"


def _is_listed(session: SessionSummary) -> bool:
    """Whether a session has a row: sub-agents have one only while they ask something."""
    return not session.archived and (session.owner_id is None or bool(session.requests))


def _parts(session_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (
        session_ids[at : at + LIST_LIMIT_MAX] for at in range(0, len(session_ids), LIST_LIMIT_MAX)
    )
