"""Plays a program: frontends against the real server, session, turn and recovery code.

`play` returns all that was seen. What must hold of it is said in the tests.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio
from msgspec import structs
from structlog.testing import capture_logs

from sim.deeds import LOOKS_FIRST, NEEDS_REST, answer_to, op_after_look, op_of
from sim.deterministic import run_from_seed
from sim.program import STOPS_THE_DAEMON, Action, Program
from support.memory_log import MemoryLog
from support.world import Span, World
from tiller_client.following.catchup import Follower
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.session.turns.title import TITLE_S_MAX
from tiller_protocol.answers import (
    Accepted,
    AnyAnswer,
    Created,
    Rejected,
    ReplayResult,
    SessionResult,
)
from tiller_protocol.codec import decode_answer, decode_publication, encode_submission
from tiller_protocol.events import Event, TurnEnded
from tiller_protocol.ops import (
    AnyOp,
    Interrupt,
    Replay,
    SessionConfigure,
    SessionCreate,
    SessionFork,
    SessionGet,
    Submission,
    TurnContinue,
)
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot

RESEND_S = 60.0
"""nng's REQ sends again after a minute; so does a frontend here."""

STOP_S = 5.0
"""How long a daemon that is told to stop may take; as in `app`."""

COMMIT_S_MAX = 10.0
"""Longer than any commit of a program takes."""

SETTLE_S = 100.0
SETTLE_ROUNDS_MAX = 60
PATIENT_ROUNDS = 3
"""So often a turn is given time before it is interrupted."""

SILENCE_S = 40.0
"""After so long without an event a follower asks whether it lost some."""

REST_S_MAX = 20 * 24 * 3600.0
"""Virtual time by which every program is over."""

REST_LOOKS = 15
"""So often, each second, a frontend looks whether the turn has ended."""

SESSIONS_MAX = 3
FOLLOWERS_MAX = 3

BUFFERS_EVENTS = (16, 1, 4)
"""How much followers hold; all of it is tiny, so that they lose events and ask for them again."""


@dataclass
class SessionSeen:
    """What came of one session. `commits` are the heads after each commit."""

    session_id: str
    log: list[Event] = field(default_factory=list)
    published: list[Event] = field(default_factory=list)
    followers: list[tuple[int, list[Event]]] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(""))
    rebuilt: Snapshot = field(default_factory=lambda: Snapshot(""))


@dataclass
class Seen:
    """What came of a program. `ops` and `answers` are by submission id.

    `harms` counts how often somebody set out to end the daemon or to let its log fail.
    """

    program: Program
    sessions: dict[str, SessionSeen] = field(default_factory=dict)
    ops: dict[str, AnyOp] = field(default_factory=dict)
    answers: dict[str, list[AnyAnswer]] = field(default_factory=dict)
    requests: list[ModelRequest] = field(default_factory=list)
    cut: list[tuple[ModelRequest, float]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    published_too_early: list[Event] = field(default_factory=list)
    alive_at_turn_end: list[str] = field(default_factory=list)
    defects: list[Any] = field(default_factory=list)
    store: MemoryLog = field(default_factory=MemoryLog)
    kills: int = 0
    harms: int = 0


def play(program: Program) -> Seen:
    """Run a program to its end, where every session rests and the daemon lives."""
    with capture_logs() as lines:
        seen = run_from_seed(partial(_play, program), program.seed)
    seen.defects = [line for line in lines if line["event"].endswith("_crashed")]
    return seen


async def _play(program: Program) -> Seen:
    seen = Seen(program)
    with trio.fail_after(REST_S_MAX):
        async with trio.open_nursery() as machine:
            world = World({"s": program.script}, program.seed)
            world.context_window = program.context_window
            if program.resumes:
                world.configuration = structs.replace(world.configuration, resume="auto")
            world.commit_s = lambda: world.random.choice(program.commits_s)
            async with trio.open_nursery() as followers:
                player = _Player(world, followers, seen)
                await machine.start(player.keep_alive, machine)
                await player.begin(program.settings)
                async with trio.open_nursery() as frontends:
                    for number, action in enumerate(program.actions):
                        await trio.sleep(action.wait_s)
                        for copy in range(action.copies):
                            frontends.start_soon(player.act, action, f"{number}.{copy}")
                    await player.wait_until_idle()
                await player.wait_until_idle()
                await player.finish()
            await player.collect()
            machine.cancel_scope.cancel()
    return seen


class _Player:
    def __init__(self, world: World, followers: trio.Nursery, seen: Seen) -> None:
        self.world = world
        self.seen = seen
        self._followers = followers
        self._finished = False
        self._silences: list[trio.CancelScope] = []
        world.on_publish = self._look

    async def keep_alive(
        self, machine: trio.Nursery, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Start the daemon, and again whenever it is gone, as a service manager does."""
        await self.world.boot(machine)
        task_status.started()
        while True:
            await self.world.gone.wait()
            await self.world.boot(machine)

    def _look(self, event: Event) -> None:
        """Check a publication at the moment it is made."""
        session_id = event.session_id
        if event.seq > self.world.log.head_now(session_id):
            self.seen.published_too_early.append(event)
        if isinstance(event.body, TurnEnded):
            running = self.world.usage.running
            self.seen.alive_at_turn_end += [c for c in running if running[c] == session_id]

    async def begin(self, settings: Settings) -> None:
        """Make the first session."""
        self._add(await self.send(SessionCreate("/", settings=settings)))

    async def send(
        self, op: AnyOp, submission_id: str | None = None, client: str = ""
    ) -> AnyAnswer:
        """Send an op as a frontend does: again with the same id until there is an answer."""
        submission_id = submission_id or self.world.new_id()
        self.seen.ops[submission_id] = op
        frame = encode_submission(Submission(submission_id, op, client, "token-of-the-world"))
        while True:
            with trio.move_on_after(RESEND_S):
                answer = decode_answer(await self.world.transport.ask(frame))
                self.seen.answers.setdefault(submission_id, []).append(answer)
                return answer

    async def act(self, action: Action, name: str) -> None:
        """Do one action; every answer is kept. `name` makes its text one of a kind."""
        session_ids = list(self.seen.sessions)
        session_id = session_ids[action.number % len(session_ids)]
        if action.kind in STOPS_THE_DAEMON:
            await self._harm(action)
        elif action.kind == "attach":
            after = (await self.get(session_id)).seq if action.number % 2 else 0
            self._attach(session_id, after, BUFFERS_EVENTS[action.number % len(BUFFERS_EVENTS)])
        elif action.kind == "again":
            ids = list(self.seen.answers)
            chosen = ids[action.number * 7 % len(ids)]
            await self.send(self.seen.ops[chosen], chosen)
        else:
            await self._submit(action, session_id, name)

    async def _submit(self, action: Action, session_id: str, name: str) -> None:
        if action.kind in NEEDS_REST and action.number % 2:
            await self._rest(session_id)
        if action.kind == "unrevert" and action.number % 2:
            await self._submit(structs.replace(action, kind="revert", number=0), session_id, name)
        if action.kind in LOOKS_FIRST:
            snapshot = await self.get(session_id)
            op = op_after_look(action.kind, snapshot, action.number, name)
        else:
            op = op_of(action.kind, session_id, action.number, name)
        if op is None or (isinstance(op, SessionFork) and len(self.seen.sessions) >= SESSIONS_MAX):
            return
        answer = await self.send(op, client=f"frontend {name}")
        if isinstance(op, SessionFork):
            self._add(answer)

    async def _rest(self, session_id: str) -> None:
        """Wait some time for the end of a turn."""
        for _ in range(REST_LOOKS):
            if (await self.get(session_id)).turn is None:
                return
            await trio.sleep(1.0)

    async def _harm(self, action: Action) -> None:
        self.seen.harms += 1
        match action.kind:
            case "kill":
                await self.world.kill()
            case "kill_before" | "kill_after":
                durable = action.kind == "kill_after"
                self.world.kill_at_commit(1 + action.number, durable=durable)
            case "stop":
                await self._stop()
            case _:
                self.world.log.fail_next = "io"

    async def wait_until_idle(self) -> None:
        """Answer and interrupt until every session rests."""
        for session_id in list(self.seen.sessions):
            await self._settle(session_id)

    async def finish(self) -> None:
        """Let what is queued run, then let every follower have all of it and leave."""
        self.world.commits_left = self.world.log.fail_next = None
        for session_id in self.seen.sessions:
            if (await self.get(session_id)).queue:
                await self.send(SessionConfigure(session_id, Settings(max_steps=50)))
                await self.send(TurnContinue(session_id))
                await self._settle(session_id)
        # The last turn of a session may have left a request for its title on the way.
        await trio.sleep(TITLE_S_MAX + COMMIT_S_MAX)
        self._finished = True
        for silence in self._silences:
            silence.cancel()

    async def collect(self) -> None:
        """Take down all that there is, and once more after a restart."""
        world, seen = self.world, self.seen
        for session in seen.sessions.values():
            session_id = session.session_id
            session.log = await world.events(session_id)
            session.published = world.published.get(session_id, [])
            session.commits = [head for one, head in world.log.commits if one == session_id]
            session.snapshot = await self.get(session_id)
        seen.requests, seen.cut = world.model.requests, world.model.cut
        seen.spans, seen.begun = world.usage.spans, world.usage.begun
        seen.kills, seen.store = world.kills, world.log
        await world.kill()
        for session in seen.sessions.values():
            session.rebuilt = await self.get(session.session_id)

    async def get(self, session_id: str) -> Snapshot:
        """The session as the daemon shows it."""
        while True:
            answer = await self.send(SessionGet(session_id))
            if isinstance(answer, Accepted):
                assert isinstance(answer.result, SessionResult)
                return answer.result.snapshot
            assert answer.code == "unavailable", answer

    async def _follow(self, session_id: str, after: int, buffer: int) -> None:
        """A frontend that attaches now, loses what does not fit, and follows to the end."""
        delivered: list[Event] = []
        self.seen.sessions[session_id].followers.append((after, delivered))
        follower = Follower(self.world.log.log_id, after)
        while not self._finished:
            await self._follow_daemon(session_id, buffer, follower, delivered)
            follower.suspect_gap()
        await self._catch_up(session_id, follower, delivered)

    async def _follow_daemon(
        self, session_id: str, buffer: int, follower: Follower, into: list[Event]
    ) -> None:
        transport = self.world.transport
        channel = transport.subscribe(session_id, buffer)
        while transport is self.world.transport and not self._finished:
            await self._catch_up(session_id, follower, into)
            with trio.move_on_after(SILENCE_S) as silence:
                self._silences.append(silence)
                _, event = decode_publication(await channel.receive())
                into += follower.take_live([event])
            self._silences.remove(silence)
            if silence.cancelled_caught:
                follower.suspect_gap()

    async def _catch_up(self, session_id: str, follower: Follower, into: list[Event]) -> None:
        while (after := follower.wanted) is not None:
            answer = await self.send(Replay(session_id, after, 20))
            if isinstance(answer, Rejected):
                assert answer.code == "unavailable", answer
                return
            assert isinstance(answer.result, ReplayResult)
            delivery = follower.take_replay(answer.result, self.world.log.log_id)
            assert not delivery.started_over
            into += delivery.events

    async def _settle(self, session_id: str) -> None:
        for number in range(SETTLE_ROUNDS_MAX):
            snapshot = await self.get(session_id)
            if snapshot.turn is None:
                return
            if snapshot.requests:
                await self.send(_first_answer(snapshot))
            elif number > PATIENT_ROUNDS:
                await self.send(Interrupt(session_id))
            await trio.sleep(SETTLE_S)
        raise AssertionError(f"session {session_id} is stuck busy")

    def _add(self, answer: AnyAnswer) -> None:
        if isinstance(answer, Accepted):
            assert isinstance(answer.result, Created)
            session_id = answer.result.session_id
            self.seen.sessions.setdefault(session_id, SessionSeen(session_id))

    def _attach(self, session_id: str, after: int, buffer: int) -> None:
        """Let one more frontend follow a session."""
        if len(self.seen.sessions[session_id].followers) < FOLLOWERS_MAX:
            self._followers.start_soon(self._follow, session_id, after, buffer)

    async def _stop(self) -> None:
        """End the daemon as SIGTERM does: turns are interrupted, all is in the log."""
        with trio.move_on_after(STOP_S):
            await self.world.supervisor.shut_down()
        self.world.scope.cancel()


def _first_answer(snapshot: Snapshot) -> AnyOp:
    answer = answer_to(snapshot, 0, "once")
    assert answer is not None
    return answer
