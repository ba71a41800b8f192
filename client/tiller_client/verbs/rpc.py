"""`rpc`: submissions, answers and events as lines of JSON, for editors and other programs.

There is a thread for each followed session, for each session with submissions, and for the state of
the connection. They all write to stdout, and wait if it is not read. Meanwhile nothing is read from
the daemon, nor from stdin if too many submissions wait.
"""

import contextlib
import os
import select
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tiller_client.connecting.pool import ConnectionPool
from tiller_client.connecting.runtime import my_places
from tiller_client.connecting.sockets import EventSocket
from tiller_client.errors import RejectedError, StartedOver, TillerError
from tiller_client.following.catchup import leaving
from tiller_client.following.feed import Feed
from tiller_client.following.watch import Wakeup
from tiller_client.json_lines import LINE_BYTES_MAX, Line, LineWriter, read_lines
from tiller_client.ordered_jobs import OrderedJobs
from tiller_protocol.codec import TOPIC_END, decode_event, decode_file_wanted
from tiller_protocol.errors import BadMessage
from tiller_protocol.events import LIFECYCLE_TOPIC
from tiller_protocol.ids import ULID_RANDOM_BYTES, Ulids
from tiller_protocol.lending import LENDER_TOPICS, SessionLend
from tiller_protocol.ops import AnyOp
from tiller_protocol.rpc import (
    CaughtUp,
    Followers,
    RpcError,
    RpcInput,
    RpcOutput,
    RpcSubmission,
    Tag,
    Unfollowed,
)

FOLLOWS_MAX = 64
"""Maximum number of sessions followed at a time; each has a thread and two sockets."""

RECONNECT_S = 0.2
"""Time between two attempts to find the daemon."""

START_AGAIN_S = 5.0
"""Time between two attempts to start a daemon that does not start, or to reach one that hangs."""


def run(arguments: Namespace) -> int:
    """Talk to the program at the other end until stdin ends."""
    pool = ConnectionPool(my_places(), arguments.name)
    with pool.connection() as connection:
        hello = connection.hello
    rpc = _Rpc(pool)
    rpc.writer.write(RpcOutput(state="connected", hello=hello))
    with EventSocket(pool.places, LIFECYCLE_TOPIC) as socket:
        rpc.start(_Monitor(rpc, socket).run)
        rpc.serve(sys.stdin.fileno())
    rpc.leave()
    return 0


class _Job(NamedTuple):
    """A submission to make."""

    line: int
    """The number of the line that asked for it."""
    submission_id: str
    """The id under which it takes effect once."""
    op: AnyOp
    """What is submitted."""
    client: str
    """Name of the sender; empty for the name of this program."""
    tag: Tag | None
    """Repeated with the answer; `None` if the line has no tag."""


class _Followed:
    """A session whose events are sent by a thread, which ends once `feed` is closed."""

    def __init__(self, feed: Feed, tag: Tag | None) -> None:
        self.feed = feed
        self.tag = tag
        self.thread: threading.Thread | None = None


class _Mistake(Exception):
    """A line that can't be carried out; its text says why."""


class _Rpc:
    """All followed sessions and submissions; `serve` runs in the main thread."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.writer = LineWriter(sys.stdout.fileno())
        self.notifies = False
        self.loans = _Loans()
        self._followed: dict[str, _Followed] = {}
        self._jobs = OrderedJobs(self._submit, self.start)
        self._ulids = Ulids()
        self._wakeup = Wakeup()
        self._failure: BaseException | None = None

    def start(self, target: Callable[[], None]) -> threading.Thread:
        """Run `target` in a thread; an exception in it ends `serve`."""
        thread = threading.Thread(target=self._guard, args=(target,), daemon=True)
        thread.start()
        return thread

    def serve(self, descriptor: int) -> None:
        """Carry out every line; return once the answers to all of them are written."""
        for line in read_lines(descriptor, self._wakeup):
            self._carry_out(line)
        if self._failure is None:
            self._jobs.join()
        self.writer.end()
        if self._failure:
            raise self._failure

    def leave(self) -> None:
        """End all loans, and close the followed sessions."""
        followed = [one for one, of in self._followed.items() if not of.feed.closed]
        self._tell([*self.loans.endings(), *map(leaving, followed)])

    def _tell(self, ops: Sequence[AnyOp]) -> None:
        """Submit ops that matter only to a running daemon, which knows what they end."""
        if not ops:
            return
        with contextlib.suppress(TillerError):
            connection = self.pool.connect(may_start=False)
            for op in ops:
                with contextlib.suppress(RejectedError):  # the session is gone
                    connection.submit(op)
            connection.close()

    def _guard(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            self._failure = self._failure or error
            self._wakeup.wake()

    def _carry_out(self, line: Line) -> None:
        try:
            wanted = _decode(line.text)
            if wanted.submit:
                self._put(line.number, wanted.submit, wanted.tag)
            elif wanted.follow:
                self._follow(wanted.follow, wanted.after, wanted.tag)
            elif wanted.unfollow:
                self._unfollow(wanted.unfollow, wanted.tag)
        except _Mistake as mistake:
            error = RpcError(line.number, str(mistake))
            self.writer.write(RpcOutput(error=error, tag=_tag_of(line.text or b"")))

    def _put(self, number: int, submit: RpcSubmission, tag: Tag | None) -> None:
        made = self._ulids.make(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))
        job = _Job(number, submit.id or made, submit.op, submit.client, tag)
        if isinstance(submit.op, SessionLend):
            self.loans.note(submit.op)
        self._jobs.put(job, getattr(submit.op, "session_id", None))

    def _submit(self, job: _Job) -> None:
        _, submission_id, op, client, tag = job
        try:
            with self.pool.connection() as connection:
                answer = connection.submit(op, submission_id=submission_id, client=client)
        except RejectedError as error:
            answer = error.answer
        except TillerError as error:
            failed = RpcError(job.line, str(error), submission_id)
            self.writer.write(RpcOutput(error=failed, tag=tag))
            return
        self.writer.write(RpcOutput(answer=answer, tag=tag))

    def _follow(self, session_id: str, after: int, tag: Tag | None) -> None:
        if session_id == LIFECYCLE_TOPIC:
            self.notifies = True
            return
        before = self._followed.get(session_id)
        if before and not before.feed.closed:
            raise _Mistake(f"{session_id} is followed already; unfollow it first")
        if before and before.thread:
            before.thread.join()  # until that thread has written its last line
        if sum(not one.feed.closed for one in self._followed.values()) >= FOLLOWS_MAX:
            raise _Mistake(f"{FOLLOWS_MAX} sessions are followed already; unfollow one first")
        followed = _Followed(Feed(self.pool, session_id, after), tag)
        self._followed[session_id] = followed
        followed.thread = self.start(lambda: self._send_events(followed))

    def _unfollow(self, session_id: str, tag: Tag | None) -> None:
        if session_id == LIFECYCLE_TOPIC:
            self.notifies = False
            self.writer.write(RpcOutput(unfollowed=Unfollowed(session_id), tag=tag))
            return
        followed = self._followed.get(session_id)
        if followed is None or followed.feed.closed:
            raise _Mistake(f"{session_id} is not followed")
        followed.tag = tag
        followed.feed.close()

    def _send_events(self, followed: _Followed) -> None:
        """Write the events of a session until it is unfollowed, or there is no such session."""
        feed, message = followed.feed, ""
        try:
            self._send_until_closed(feed)
        except RejectedError as error:
            message = str(error)
            feed.close()
        self._tell([leaving(feed.session_id)])
        end = Unfollowed(feed.session_id, message)
        self.writer.write(RpcOutput(unfollowed=end, tag=followed.tag))

    def _send_until_closed(self, feed: Feed) -> None:
        is_behind = True
        others: Sequence[str] = ()
        while not feed.closed:
            try:
                feed.wait()
                while not feed.closed and (event := feed.take()):
                    self.writer.write(RpcOutput(event=event))
            except RejectedError:
                raise
            except StartedOver:
                is_behind = True
                self.writer.write(RpcOutput(started_over=feed.session_id))
            except TillerError:  # the monitor reports why
                time.sleep(START_AGAIN_S)
            if others != feed.others:
                others = feed.others
                followers = Followers(feed.session_id, tuple(others))
                self.writer.write(RpcOutput(followers=followers))
            if is_behind and feed.caught_up:
                is_behind = False
                caught_up = CaughtUp(feed.session_id, feed.last)
                self.writer.write(RpcOutput(caught_up=caught_up))


class _Loans:
    """The loans made by lines of stdin, so that they can be ended when it ends."""

    def __init__(self) -> None:
        self._lent: set[tuple[str, str]] = set()
        """Sessions and the lenders that lend to them."""

    def note(self, op: SessionLend) -> None:
        """Note that a loan was made or taken back."""
        loan = op.session_id, op.lender
        if op.mcp_servers or op.reads_files:
            self._lent.add(loan)
        else:
            self._lent.discard(loan)

    def has(self, session_id: str, lender: str) -> bool:
        """Whether this process has made that loan."""
        return (session_id, lender) in self._lent

    def endings(self) -> list[SessionLend]:
        """The ops that end all loans; loans to a daemon that is gone have ended with it."""
        return [SessionLend(session_id, lender) for session_id, lender in self._lent]


class _Monitor:
    """Reports whether there is a daemon, and starts one that has crashed.

    It also passes on life-cycle events of sessions, and questions to lenders.
    """

    def __init__(self, rpc: _Rpc, socket: EventSocket) -> None:
        self._rpc = rpc
        self._socket = socket
        self._connected = True

    def run(self) -> None:
        """Run until the program ends."""
        while True:
            self._drain()
            try:
                if not self._socket.sources:
                    self._tell_lost()
                    self._rpc.pool.start_crashed()
                    time.sleep(RECONNECT_S)
                elif not self._connected:
                    self._greet()
                else:
                    select.select(self._socket.sources, [], [])
            except TillerError as error:
                self._rpc.writer.write(RpcOutput(state="reconnecting", message=str(error)))
                time.sleep(START_AGAIN_S)

    def _drain(self) -> None:
        for message in self._socket.drain_all():
            topic, _, body = message.partition(TOPIC_END)
            with contextlib.suppress(BadMessage):
                if topic == LIFECYCLE_TOPIC.encode() and self._rpc.notifies:
                    self._rpc.writer.write(RpcOutput(notification=decode_event(body)))
                elif topic.startswith(LENDER_TOPICS.encode()):
                    self._ask(topic.decode().removeprefix(LENDER_TOPICS), body)

    def _ask(self, lender: str, body: bytes) -> None:
        wanted = decode_file_wanted(body)
        if self._rpc.loans.has(wanted.session_id, lender):
            self._rpc.writer.write(RpcOutput(file_wanted=wanted))

    def _tell_lost(self) -> None:
        if self._connected:
            self._connected = False
            self._rpc.writer.write(RpcOutput(state="reconnecting"))

    def _greet(self) -> None:
        connection = self._rpc.pool.connect(may_start=False)
        connection.close()
        self._connected = True
        self._rpc.writer.write(RpcOutput(state="connected", hello=connection.hello))


class _Tagged(msgspec.Struct):
    """The part of a line that is read even if the rest can't be."""

    tag: Tag | None = None


def _decode(text: bytes | None) -> RpcInput:
    if text is None:
        raise _Mistake(f"the line has more than {LINE_BYTES_MAX} bytes")
    try:
        wanted = msgspec.json.decode(text, type=RpcInput)
    except (ValueError, RecursionError) as error:
        raise _Mistake(f"the line can't be used: {error}") from None
    if sum(map(bool, (wanted.submit, wanted.follow, wanted.unfollow))) != 1:
        raise _Mistake("the line needs exactly one of: submit, follow, unfollow")
    return wanted


def _tag_of(text: bytes) -> Tag | None:
    try:
        return msgspec.json.decode(text, type=_Tagged).tag
    except (ValueError, RecursionError):
        return None
