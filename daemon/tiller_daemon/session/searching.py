"""Searches all sessions: keeps the index up to date, and answers from it.

The index follows the log: the new events of a session are read from the log a moment later, or
when somebody searches. So a turn never waits for the index. After a crash, an upgrade or its loss,
the index only has to catch up.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Protocol, TypeVar

import structlog
import trio

from tiller_daemon.errors import RejectionError
from tiller_daemon.session.inputs.input_queue import CLIENT
from tiller_daemon.store.base import (
    BadCursor,
    Log,
    LogError,
    SessionRow,
    cursor_of,
    read_cursor,
)
from tiller_daemon.store.search_index import SearchError, SearchIndex, Text
from tiller_daemon.store.search_query import match_expression
from tiller_protocol.codec import decode_event
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import LIFECYCLE_TOPIC, Event, ItemCompleted
from tiller_protocol.items import AssistantMessage, Patch, UserMessage
from tiller_protocol.sessions import (
    FoundSession,
    InputHistory,
    InputHistoryResult,
    SessionSearch,
    SessionSearchResult,
    TextKind,
)
from tiller_protocol.snapshot import SessionSummary

log = structlog.get_logger()

FIRST_AFTER_S = 2.0
"""Seconds after the daemon's start until the index is compared with the log: users come first."""

REST_S = 5.0
"""Seconds after an event until its session is indexed, so that one pass covers a whole step."""

RETRY_S = 60.0
"""Seconds until the next try if the index could not be written, for example on a full disk."""

PAUSE_S = 0.01
"""Seconds between two reads in the background, in which the log's thread is free for turns."""

SEARCH_WAIT_S = 1.0
"""How long a search waits for the index to catch up; then it answers that sessions are missing."""

READ_EVENTS_MAX = 500
READ_BYTES_MAX = 512 * 1024
"""Limits of one read from the log, which takes a millisecond or two."""

INPUTS_BYTES_MAX = 1024 * 1024
"""A page of inputs ends after this many bytes."""

PAGE_ROWS = 1_000
"""How many sessions are read from the log's table at a time."""

_COMPLETED = b"item_completed"
_READ_BY_PEOPLE = (b"user_message", b"assistant_message", b"patch")
"""Every encoded event with text contains the first marker and one of the others; few others do."""

_NUMBER = re.compile(r"[0-9]{1,18}")
"""An input's number in a cursor, which must fit into 64 bits."""

BAD_CURSOR = "`after` must be the `next` of an earlier page: request the first page again"

Result = TypeVar("Result")


class InThread(Protocol):
    """Runs a function in a thread, where it delays nobody."""

    async def __call__(self, function: Callable[[], Result], /) -> Result:
        """Return the function's result, or raise its error."""
        ...


class SearchableSessions:
    """Searches the texts that people read in all sessions. `run` keeps the index up to date."""

    def __init__(
        self, log: Log, index: SearchIndex, in_thread: InThread = trio.to_thread.run_sync
    ) -> None:
        self._log = log
        self._index = index
        self._in_thread = in_thread
        self._using = trio.Lock()
        self._catching_up = trio.Lock()
        self._is_compared = False
        self._stale: dict[str, None] = {}
        self._unreadable: set[str] = set()
        self._noted = trio.Event()

    def note(self, topic: str, _event: bytes = b"") -> None:
        """Note that a session has an event or was deleted; `topic` is the event's topic."""
        if topic != LIFECYCLE_TOPIC:
            # Sessions are taken from the end, so that new events are indexed first.
            self._stale.pop(topic, None)
            self._stale[topic] = None
            self._noted.set()

    async def run(self) -> None:
        """Bring the index up to date after events, until cancelled."""
        await trio.sleep(FIRST_AFTER_S)
        while True:
            self._noted = trio.Event()
            try:
                await self._catch_up(PAUSE_S)
            except (LogError, SearchError) as error:
                log.warning("sessions_not_indexed", reason=str(error))
                await trio.sleep(RETRY_S)
                continue
            await self._noted.wait()
            await trio.sleep(REST_S)

    async def forget(self, session_ids: Sequence[str]) -> None:
        """Remove the texts of sessions that are no longer in the log.

        If that takes long or fails, it is done later, but searches no longer find the texts.
        """
        self._unreadable.difference_update(session_ids)
        for session_id in session_ids:
            self.note(session_id)
        with trio.move_on_after(SEARCH_WAIT_S):
            for session_id in session_ids:
                async with self._catching_up:
                    try:
                        await self._use(partial(self._index.forget, session_id))
                    except SearchError as error:
                        log.warning("sessions_not_forgotten", reason=str(error))
                        return
                    self._stale.pop(session_id, None)

    async def find(
        self,
        op: SessionSearch,
        summary: Callable[[SessionRow], SessionSummary],
        beside: Sequence[str] = (),
    ) -> SessionSearchResult:
        """Answer a search in a workspace and those `beside` it.

        Raises `RejectionError` or `LogError`.
        """
        match = match_expression(op.query)
        if not match:
            raise RejectionError("empty_input", "The query has no word to search for.")
        before = _before(op.after)
        places = None if op.workspace is None else (op.workspace, *beside)
        page = await self._up_to_date(
            lambda: self._index.find(
                match, places, archived=op.archived, limit=op.limit, before=before
            )
        )
        found = [
            FoundSession(summary(row), texts)
            for session_id, _, texts in page
            if (row := await self._log.session(session_id)) is not None
        ]
        more = f"{page[-1][1]!r} {page[-1][0]}" if len(page) == op.limit else None
        return SessionSearchResult(tuple(found), more, self._not_indexed)

    async def inputs(self, op: InputHistory) -> InputHistoryResult:
        """List the user's inputs; raises `RejectionError` or `LogError`."""
        time, number = _before(op.after)
        if op.after is not None and not _NUMBER.fullmatch(number):
            raise RejectionError("bad_message", BAD_CURSOR)
        page = await self._up_to_date(
            lambda: self._index.inputs(op.workspace, op.limit, (time, int(number or 0)))
        )
        sizes = accumulate(len(found.text.encode()) for _, found in page)
        # The first input always fits.
        fitting = max(1, sum(size <= INPUTS_BYTES_MAX for size in sizes))
        more = None
        if fitting < len(page) or len(page) == op.limit:
            page = page[:fitting]
            last, found = page[-1]
            more = f"{found.time!r} {last}"
        return InputHistoryResult(tuple(found for _, found in page), more, self._not_indexed)

    @property
    def _not_indexed(self) -> int:
        return len(self._stale) + len(self._unreadable) + self._catching_up.locked()

    async def _up_to_date(self, read: Callable[[], Result]) -> Result:
        """Catch up, then read from the index."""
        try:
            with trio.move_on_after(SEARCH_WAIT_S):
                await self._catch_up(0)
            return await self._use(read)
        except SearchError as error:
            raise RejectionError("unavailable", str(error)) from error

    async def _catch_up(self, pause_s: float) -> None:
        """Index the new events in the log; pause for `pause_s` seconds after each read."""
        async with self._catching_up:
            if not self._is_compared:
                await self._compare()
        while True:
            # Needed even if nothing is left to take: another task may be indexing the last session.
            async with self._catching_up:
                if not self._stale:
                    return
                session_id, _ = self._stale.popitem()
                try:
                    await self._index_session(session_id, pause_s)
                except LogError as error:
                    if error.kind != "corrupt":
                        raise
                    self._unreadable.add(session_id)
                except BaseException:
                    self._stale.setdefault(session_id)
                    raise

    async def _compare(self) -> None:
        """Find the sessions whose index differs from the log, and forget what it has of them.

        They may have lost events in a power failure, and then got others with these numbers.
        """
        heads = await self._use(self._index.heads)
        for archived in (True, False):
            rows: list[SessionRow] = []
            after: str | None = None
            while page := await self._log.sessions(
                workspace=None, archived=archived, limit=PAGE_ROWS, after=after
            ):
                rows += page
                after = cursor_of(page[-1])
            for row in reversed(rows):  # the newest last, so that they are taken first
                if heads.get(row.session_id) == (row.head, row.updated_at):
                    del heads[row.session_id]
                else:
                    self._stale.setdefault(row.session_id)
        for session_id in heads:
            await self._use(partial(self._index.forget, session_id))
        self._is_compared = True

    async def _index_session(self, session_id: str, pause_s: float) -> None:
        head = await self._use(lambda: self._index.head(session_id))
        while True:
            bodies = await self._log.events(session_id, head, READ_EVENTS_MAX, READ_BYTES_MAX)
            # The row is read after the events, so that it is not older than the events.
            row = await self._log.session(session_id)
            if row is None:
                await self._use(lambda: self._index.forget(session_id))
                return
            if not bodies or row.owner_id:
                return
            head += len(bodies)
            await self._use(partial(self._index.add, row, head, texts_of(bodies)))
            await trio.sleep(pause_s)

    async def _use(self, function: Callable[[], Result]) -> Result:
        """Run a function that uses the index."""
        async with self._using:
            try:
                return await self._in_thread(function)
            except SearchError:
                self._is_compared = False  # the index may have been lost
                raise


def texts_of(bodies: Iterable[bytes]) -> Iterator[Text]:
    """Yield the texts that people read in encoded events, except titles (in the session's row)."""
    for body in bodies:
        # Most events contain no such text, and searching bytes is much quicker than decoding.
        if _COMPLETED not in body or not any(mark in body for mark in _READ_BY_PEOPLE):
            continue
        try:
            event = decode_event(body)
        # A damaged event must not keep the others from being found.
        except BadMessage:
            continue
        if isinstance(event.body, ItemCompleted):
            match event.body.item:
                case UserMessage(client=client) as item if client != CLIENT:
                    yield _text("input", item.text, event, item.id)
                case AssistantMessage(state=state) as item if state != "discarded":
                    yield _text("answer", item.text, event, item.id)
                case Patch() as item:
                    yield _text("files", "\n".join(item.files), event, item.id)
                case _:
                    pass


def _text(kind: TextKind, text: str, event: Event, item_id: str) -> Text:
    return Text(kind, text.strip(), event.time, event.seq, event.turn_id or "", item_id)


def _before(after: str | None) -> tuple[float, str]:
    """Return the time and the name in a cursor; for the first page, values above all others."""
    if after is None:
        return math.inf, ""
    try:
        return read_cursor(after)
    except BadCursor as error:
        raise RejectionError("bad_message", str(error)) from None
