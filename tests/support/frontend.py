"""A frontend for tests, which uses real nng sockets, and keeps and checks all that it sees.

It follows its sessions as any frontend should (subscribe, replay, live events, replay again after a
doubt), as trio tasks that do not block each other. `daemon` runs the process that it talks to.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pynng
import trio

from support.daemon import Daemon, marked
from support.wires import check_on_every_wire
from tiller_client.following.catchup import Follower
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.scripted import ScriptStep
from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import (
    Accepted,
    AnyAnswer,
    AnyResult,
    Created,
    HelloResult,
    Rejected,
    ReplayResult,
    SessionResult,
)
from tiller_protocol.codec import (
    MESSAGE_BYTES_MAX,
    decode_answer,
    decode_event,
    encode_event,
    encode_submission,
)
from tiller_protocol.events import (
    LIFECYCLE_BODIES,
    AnyBody,
    BackgroundChanged,
    Event,
    ItemCompleted,
    RequestOpened,
    StatusChanged,
    TurnEnded,
)
from tiller_protocol.ids import ULID_RANDOM_BYTES, ulid
from tiller_protocol.items import Request, ToolCall
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.ops import (
    AnyOp,
    Hello,
    Interrupt,
    Replay,
    SessionCreate,
    SessionGet,
    Submission,
    UserInput,
)
from tiller_protocol.places import EVENTS_SOCKET, OPS_SOCKET, TOKEN_FILE
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot

TIMEOUT_S = 30.0
"""The longest wait for anything; only a defect or a dead machine takes so long."""

SILENCE_S = 0.5
"""Seconds of silence after which a replay looks for a lost last event."""

EVENTS_SHOWN = 12


@dataclass
class Followed:
    """One session as this frontend sees it: its events, once and in order, and raw publications."""

    follower: Follower
    events: list[Event] = field(default_factory=list[Event])
    published: dict[int, bytes] = field(default_factory=dict[int, bytes])


class Frontend:
    """A frontend connected to `daemon`; `close` checks every session that was followed.

    `alive_at_end` holds processes of a turn that were alive when `turn_ended` was received (G8).
    """

    def __init__(self, daemon: Daemon, nursery: trio.Nursery, name: str) -> None:
        self.daemon = daemon
        self.name = name
        self.alive_at_end: list[str] = []
        self.lifecycle: list[Event] = []
        self._nursery = nursery
        self._sessions: dict[str, Followed] = {}
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._silence = trio.CancelScope()
        self._left = trio.Event()
        self._left.set()
        self._idle: list[pynng.Req0] = []

    @classmethod
    async def connect(cls, daemon: Daemon, nursery: trio.Nursery, name: str = "e2e") -> "Frontend":
        frontend = cls(daemon, nursery, name)
        await frontend.reconnect()
        return frontend

    async def reconnect(self) -> None:
        """Connect to the daemon that runs now, and keep all events seen so far."""
        await self.disconnect()
        runtime = self.daemon.places.runtime
        self.token = (runtime / TOKEN_FILE).read_text()
        hello = await self.must(Hello(PROTOCOL_VERSION, self.name))
        assert isinstance(hello, HelloResult)
        self.log_id = hello.log_id
        self.daemon.log_ids.add(self.log_id)
        for followed in self._sessions.values():
            followed.follower.suspect_gap()
        await self._nursery.start(self._listen)

    async def disconnect(self) -> None:
        """Close every socket, as a dying frontend does."""
        self._scope.cancel()
        await self._left.wait()
        for one in self._idle:
            one.close()
        self._idle.clear()

    async def close(self) -> None:
        """Wait until every session is idle, check all events, and disconnect."""
        if self.daemon.process is None:
            self.daemon.start()
            await self.reconnect()
        with trio.fail_after(TIMEOUT_S):
            for session_id in self._sessions:
                await self._rest(session_id)
        for session_id in self._sessions:
            await self._check(session_id)
        assert self.alive_at_end == [], "alive when turn_ended was received"
        assert not self.daemon.crashes, "\n".join(self.daemon.crashes)
        await self.disconnect()

    async def ask(
        self, op: AnyOp, submission_id: str | None = None, *, token: str | None = None
    ) -> AnyAnswer:
        """Submit an op and return the answer."""
        token = self.token if token is None else token
        submission = Submission(submission_id or new_id(), op, self.name, token)
        return decode_answer(await self.exchange(encode_submission(submission)))

    async def must(self, op: AnyOp, submission_id: str | None = None) -> AnyResult | None:
        """Submit an op that must be accepted; returns its result."""
        answer = await self.ask(op, submission_id)
        assert isinstance(answer, Accepted), answer
        return answer.result

    async def refused(self, op: AnyOp) -> Rejected:
        """Submit an op that must be rejected."""
        answer = await self.ask(op)
        assert isinstance(answer, Rejected), answer
        return answer

    async def exchange(self, frame: bytes) -> bytes:
        """Send bytes to the ops socket and return the bytes that come back."""
        one = self._idle.pop() if self._idle else self._dial()
        try:
            with trio.fail_after(TIMEOUT_S):
                while not await _sent(one, frame):
                    one.close()
                    one = self._dial()
                answer = await _received(one)
        except BaseException:
            one.close()
            raise
        self._idle.append(one)
        return answer

    async def session(
        self, workspace: Path, *steps: ScriptStep, model: str | None = None, **settings: object
    ) -> str:
        """Make and follow a session whose model plays `steps`; by default no call asks first."""
        model = model or self.daemon.script(*steps)
        chosen = Settings(**({"approve": "always"} | settings))  # pyright: ignore[reportArgumentType]
        created = await self.must(SessionCreate(str(workspace), model=model, settings=chosen))
        assert isinstance(created, Created)
        self.follow(created.session_id)
        return created.session_id

    def follow(self, session_id: str, after: int = 0) -> None:
        """Follow a session after that event."""
        self._sessions[session_id] = Followed(Follower(self.log_id, after))
        self._silence.cancel()

    async def say(self, session_id: str, text: str = "go", **fields: object) -> AnyResult | None:
        """Send user input that must be accepted."""
        return await self.must(UserInput(session_id, text, **fields))  # pyright: ignore[reportArgumentType]

    def forget(self, session_id: str) -> None:
        """Stop following a session, because it is gone."""
        del self._sessions[session_id]

    def events(self, session_id: str) -> list[Event]:
        """Return the events of a session that were seen so far."""
        return self._sessions[session_id].events

    async def log(self, session_id: str) -> list[Event]:
        """Return all events that the daemon has for a session."""
        events: list[Event] = []
        while True:
            result = await self.must(Replay(session_id, len(events)))
            assert isinstance(result, ReplayResult)
            events += result.events
            if result.upto >= result.head:
                return events

    async def snapshot(self, session_id: str) -> Snapshot:
        """Return the daemon's snapshot of a session."""
        result = await self.must(SessionGet(session_id))
        assert isinstance(result, SessionResult)
        return result.snapshot

    async def until(
        self, session_id: str, wanted: Callable[[Event], bool], number: int = 1
    ) -> Event:
        """Wait until `number` wanted events were seen; return the last of them."""
        with trio.move_on_after(TIMEOUT_S):
            while True:
                found = [event for event in self.events(session_id) if wanted(event)]
                if len(found) >= number:
                    return found[number - 1]
                await self._changed.wait()
        shown = "\n".join(str(event) for event in self.events(session_id)[-EVENTS_SHOWN:])
        raise AssertionError(f"it did not come; the last events are:\n{shown}")

    async def until_body(self, session_id: str, kind: type[AnyBody], number: int = 1) -> Event:
        """Wait for the `number`-th event of a kind."""
        return await self.until(session_id, lambda event: isinstance(event.body, kind), number)

    async def until_call(self, session_id: str, state: str, number: int = 1) -> Event:
        """Wait for the `number`-th time that a call reaches this state."""
        return await self.until(
            session_id, lambda event: getattr(event.body, "state", "") == state, number
        )

    async def turn_ended(self, session_id: str, number: int = 1) -> TurnEnded:
        """Wait until `number` turns have ended and the session is idle; return the last ending."""
        ended = await self.until_body(session_id, TurnEnded, number)
        idle = StatusChanged("idle")
        await self.until(session_id, lambda event: event.seq > ended.seq and event.body == idle)
        assert isinstance(ended.body, TurnEnded)
        return ended.body

    async def request_opened(self, session_id: str, number: int = 1) -> Request:
        """Wait for the `number`-th request of a session."""
        opened = await self.until_body(session_id, RequestOpened, number)
        assert isinstance(opened.body, RequestOpened)
        return opened.body.request

    def requests(self, session_id: str) -> list[ModelRequest]:
        """Return the requests to the session's model."""
        return self.daemon.requests(session_id)

    def completed_calls(self, session_id: str) -> list[ToolCall]:
        """The calls of a session in the order in which they completed."""
        bodies = [event.body for event in self.events(session_id)]
        items = [body.item for body in bodies if isinstance(body, ItemCompleted)]
        return [item for item in items if isinstance(item, ToolCall)]

    def _dial(self) -> pynng.Req0:
        address = f"ipc://{self.daemon.places.runtime / OPS_SOCKET}"
        return pynng.Req0(dial=address, block_on_dial=True, recv_max_size=MESSAGE_BYTES_MAX)

    async def _listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        events = pynng.Sub0(recv_max_size=MESSAGE_BYTES_MAX, recv_buffer_size=8192)
        self._scope, self._left = trio.CancelScope(), trio.Event()
        try:
            events.subscribe(b"")
            events.dial(f"ipc://{self.daemon.places.runtime / EVENTS_SOCKET}", block=True)
            with self._scope:
                task_status.started()
                await self._follow_all(events)
        finally:
            events.close()
            self._left.set()

    async def _follow_all(self, events: pynng.Sub0) -> None:
        while True:
            for session_id, followed in list(self._sessions.items()):
                await self._catch_up(session_id, followed)
            with trio.move_on_after(SILENCE_S) as self._silence:
                await trio.lowlevel.wait_readable(events.recv_fd)
            if self._silence.cancelled_caught:
                for followed in self._sessions.values():
                    followed.follower.suspect_gap()
            self._drain(events)

    async def _catch_up(self, session_id: str, followed: Followed) -> None:
        while (after := followed.follower.wanted) is not None:
            try:
                answer = await self.ask(Replay(session_id, after))
            except pynng.ConnectionRefused:
                return  # the daemon is dead; the test calls `reconnect` when it runs again
            if isinstance(answer, Rejected):
                return
            assert isinstance(answer.result, ReplayResult)
            delivery = followed.follower.take_replay(answer.result, self.log_id)
            assert not delivery.started_over
            self._deliver(followed, delivery.events)

    def _drain(self, events: pynng.Sub0) -> None:
        while True:
            try:
                topic, _, body = events.recv(block=False).partition(b"\0")
            except pynng.TryAgain:
                return
            if topic == b"daemon":
                self.lifecycle.append(decode_event(body))
            elif followed := self._sessions.get(topic.decode()):
                event = decode_event(body)
                assert topic.decode() == event.session_id
                assert followed.published.setdefault(event.seq, body) == body
                self._deliver(followed, followed.follower.take_live([event]))

    def _deliver(self, followed: Followed, events: list[Event]) -> None:
        for event in events:
            followed.events.append(event)
            if isinstance(event.body, TurnEnded):
                self._look_for_survivors(followed)
        if events:
            self._changed.set()
            self._changed = trio.Event()

    def _look_for_survivors(self, followed: Followed) -> None:
        bodies = [event.body for event in followed.events]
        lists = [body.background for body in bodies if isinstance(body, BackgroundChanged)]
        adopted = {command.item_id for background in lists for command in background}
        calls = [body.item.id for body in bodies if isinstance(body, ItemCompleted)]
        calls = [call_id for call_id in calls if call_id not in adopted]
        marks = [f"TILLER_CALL={call_id}" for call_id in calls]
        self.alive_at_end += [f"pid {pid}" for pid in marked(*marks)]

    async def _rest(self, session_id: str) -> None:
        """End the turn that a test left running, and see all there is."""
        snapshot = await self.snapshot(session_id)
        if snapshot.turn is not None:
            await self.ask(Interrupt(session_id))
            await self.turn_ended(session_id, snapshot.turns)
            snapshot = await self.snapshot(session_id)
        await self.until(session_id, lambda event: event.seq >= snapshot.seq)

    async def _check(self, session_id: str) -> None:
        """G1, G2, G4, G7: what holds for every session whatever was done to it."""
        followed = self._sessions[session_id]
        log = await self.log(session_id)
        # A session may still add what a turn changed, so that the log is longer than what was seen.
        await self.until(session_id, lambda event: event.seq >= log[-1].seq)
        seen, logged = followed.events, log[followed.events[0].seq - 1 :]
        assert seen[: len(logged)] == logged, _difference(seen, logged)
        state = LifecycleState()
        for event in log:
            advance(state, event)
        assert state.turn_id is None
        for seq, body in followed.published.items():
            if seq <= len(log):
                assert body == encode_event(log[seq - 1]), f"event {seq} was published otherwise"
        for event in self.lifecycle:
            if event.session_id == session_id and event.seq <= len(log):
                assert isinstance(event.body, LIFECYCLE_BODIES)
                assert event == log[event.seq - 1]
        for request in self.requests(session_id):
            check_on_every_wire(request)


def _difference(seen: list[Event], logged: list[Event]) -> str:
    """What a frontend saw and the log does not have, and the other way round."""
    only_seen = [event for event in seen if event not in logged]
    only_logged = [event for event in logged if event not in seen]
    return f"only seen: {only_seen[:EVENTS_SHOWN]}\nonly logged: {only_logged[:EVENTS_SHOWN]}"


async def _sent(one: pynng.Req0, frame: bytes) -> bool:
    """Send; false when the daemon at the other end is gone."""
    await trio.lowlevel.wait_readable(one.send_fd)
    try:
        one.send(frame, block=False)
    except pynng.TryAgain:
        return False
    return True


async def _received(one: pynng.Req0) -> bytes:
    while True:
        await trio.lowlevel.wait_readable(one.recv_fd)
        try:
            return one.recv(block=False)
        except pynng.TryAgain:
            continue


def new_id() -> str:
    """A fresh submission id."""
    return ulid(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))
