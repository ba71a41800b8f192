"""Random programs: a scripted model, several frontends, and what they do to one session.

`play` runs a program against the real server, session, turn and recovery code and returns all that
was seen. A program prints as Python, and with its seed it replays exactly.
"""

from dataclasses import dataclass, field
from functools import partial

import trio
from hypothesis import strategies as st

from sim.deterministic import run_from_seed
from support.world import World
from tiller_client.catchup import Follower
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.models.scripted import (
    CallPart,
    Failure,
    HangPart,
    Part,
    ReasoningPart,
    Script,
    ScriptStep,
    TextPart,
    WaitPart,
)
from tiller_protocol.answers import (
    Accepted,
    AnyAnswer,
    Created,
    Rejected,
    ReplayResult,
    SessionResult,
)
from tiller_protocol.codec import decode_answer, decode_publication, encode_submission
from tiller_protocol.events import Event
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Interrupt,
    Replay,
    SessionConfigure,
    SessionCreate,
    SessionGet,
    Shell,
    Submission,
    UserInput,
)
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import Snapshot

RESEND_S = 60.0
"""nng's REQ sends again after a minute; so does a frontend here."""

SETTLE_ROUNDS_MAX = 200


@dataclass(frozen=True)
class Action:
    """After `wait_s`, one frontend does `kind`; `number` chooses among what there is."""

    wait_s: float
    kind: str
    number: int = 0


@dataclass(frozen=True)
class Program:
    """Everything that decides a run."""

    steps: tuple[ScriptStep, ...]
    actions: tuple[Action, ...]
    follow_ups: str
    seed: int


@dataclass
class Seen:
    """What came of a program."""

    log: list[Event] = field(default_factory=list)
    published: list[Event] = field(default_factory=list)
    published_too_early: list[int] = field(default_factory=list)
    followers: list[list[Event]] = field(default_factory=list)
    answers: dict[str, list[AnyAnswer]] = field(default_factory=dict)
    ops: dict[str, AnyOp] = field(default_factory=dict)
    requests: list[ModelRequest] = field(default_factory=list)
    spans: list[tuple[str, str, float, float]] = field(default_factory=list)
    alive_at_turn_end: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    snapshot: Snapshot | None = None
    rebuilt: Snapshot | None = None
    kills: int = 0


_TITLES = (
    None,
    ScriptStep(parts=(WaitPart(0.5), TextPart("a title"))),
    ScriptStep(parts=(HangPart(),)),
)
"""What the side request of the first turn comes to."""

_WAITS = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 3.0])
_WORDS = st.sampled_from(["", "a", "b", "said"])


def _calls() -> st.SearchStrategy[CallPart]:
    arguments = st.fixed_dictionaries(
        {"seconds": _WAITS, "say": _WORDS},
        optional={"fail": st.just(value=True), "crash": st.just(value=True)},
    )
    name = st.sampled_from(["look", "look", "peek", "change", "change", "guarded", "LOOK", "nope"])
    return st.builds(CallPart, name, arguments=arguments)


def _steps() -> st.SearchStrategy[ScriptStep]:
    part: st.SearchStrategy[Part] = st.one_of(
        st.builds(TextPart, st.sampled_from(["x", "some words"]), pieces=st.integers(1, 4)),
        st.builds(ReasoningPart, st.just("hm"), pieces=st.integers(1, 2)),
        _calls(),
        _calls(),
        st.builds(WaitPart, _WAITS),
        st.just(HangPart()),
        st.builds(CallPart, st.just("look"), arguments_text=st.just("{broken")),
    )
    failure = st.builds(
        Failure,
        st.sampled_from(["overloaded", "broken_stream", "rate_limit", "bad_request"]),
        after_parts=st.integers(0, 3),
    )
    return st.builds(
        ScriptStep,
        parts=st.lists(part, max_size=4).map(tuple),
        failures=st.lists(failure, max_size=2).map(tuple),
        finish=st.sampled_from([None, None, None, "stop", "length"]),
    )


_KINDS = [
    "auto", "auto", "steer", "queue", "start", "wrong_steer", "interrupt", "wrong_interrupt",
    "once", "always", "reject", "again", "configure", "get", "kill", "attach",
    "shell", "no_reply",
]  # fmt: skip


def programs(*, kills: bool = True) -> st.SearchStrategy[Program]:
    """Random programs; without `kills` the daemon lives through all of it."""
    kinds = _KINDS if kills else [kind for kind in _KINDS if kind != "kill"]
    action = st.builds(Action, _WAITS, st.sampled_from(kinds), st.integers(0, 3))
    return st.builds(
        Program,
        steps=st.lists(_steps(), min_size=1, max_size=6).map(tuple),
        actions=st.lists(action, min_size=1, max_size=12).map(tuple),
        follow_ups=st.sampled_from(["one_at_a_time", "all"]),
        seed=st.integers(0, 2**32 - 1),
    )


def play(program: Program) -> Seen:
    """Run a program to its end, where the session rests and no daemon is stopped."""
    return run_from_seed(partial(_play, program), program.seed)


async def _play(program: Program) -> Seen:
    seen = Seen()
    script = Script(
        (*program.steps, ScriptStep(parts=(TextPart("the end"),), repeat=True)),
        title=_TITLES[program.seed % len(_TITLES)],
    )
    async with trio.open_nursery() as nursery:
        world = await World.start(nursery, {"s": script}, program.seed)
        player = _Player(world, nursery, seen)
        created = await player.send(
            SessionCreate("/", settings=Settings(follow_ups=program.follow_ups))
        )
        assert isinstance(created, Accepted)
        assert isinstance(created.result, Created)
        player.session_id = created.result.session_id
        player.watch()
        async with trio.open_nursery() as frontends:
            for number, action in enumerate(program.actions):
                await trio.sleep(action.wait_s)
                if action.kind == "kill":
                    await player.restart()
                else:
                    frontends.start_soon(player.act, action, number)
            await player.settle()
        await player.settle()
        await player.finish()
        nursery.cancel_scope.cancel()
    return seen


class _Player:
    def __init__(self, world: World, nursery: trio.Nursery, seen: Seen) -> None:
        self.world = world
        self.seen = seen
        self.session_id = ""
        self._nursery = nursery
        self._restarted = trio.Event()
        self._finished = trio.Event()
        self._watching = trio.CancelScope()

    def watch(self) -> None:
        """Check each publication against the log at the moment it is made."""
        inner = self.world.transport.publish
        log = self.world.log

        def publish(topic: str, body: bytes) -> None:
            if topic == self.session_id:
                _, event = decode_publication(topic.encode() + b"\0" + body)
                self.seen.published.append(event)
                if event.seq > log._head(topic):
                    self.seen.published_too_early.append(event.seq)
                if type(event.body).__name__ == "TurnEnded":
                    self.seen.alive_at_turn_end += sorted(self.world.usage.running)
            inner(topic, body)

        self.world.transport.publish = publish
        self.world.supervisor._services.__dict__["publish"] = publish
        for session in self.world.supervisor._sessions.values():
            session.outbox._publish = publish

    async def restart(self) -> None:
        """`kill -9`, then a start."""
        await self.world.kill()
        self.seen.kills += 1
        await self.world.boot(self._nursery)
        self.watch()
        self._restarted.set()
        self._restarted = trio.Event()

    async def send(self, op: AnyOp, submission_id: str | None = None) -> AnyAnswer:
        """Send an op as a frontend does: again with the same id until there is an answer."""
        submission_id = submission_id or self.world.new_id()
        self.seen.ops[submission_id] = op
        submission = Submission(submission_id, op, "frontend", "token-of-the-world")
        while True:
            with trio.move_on_after(RESEND_S):
                answer = decode_answer(
                    await self.world.transport.ask(encode_submission(submission))
                )
                self.seen.answers.setdefault(submission_id, []).append(answer)
                return answer

    async def act(self, action: Action, number: int) -> None:
        """Do one action; every answer is kept."""
        words = f"input {number}"
        session_id = self.session_id
        match action.kind:
            case "auto" | "steer" | "queue" | "start":
                await self.send(UserInput(session_id, words, delivery=action.kind))
            case "shell":
                await self.send(Shell(session_id, f"{action.number / 2} {words}"))
            case "no_reply":
                await self.send(UserInput(session_id, words, no_reply=True))
            case "wrong_steer":
                op = UserInput(session_id, words, delivery="steer", expected_turn_id="wrong")
                await self.send(op)
            case "interrupt":
                await self.send(Interrupt(session_id))
            case "wrong_interrupt":
                await self.send(Interrupt(session_id, "wrong"))
            case "once" | "always" | "reject":
                await self._answer_one(action.kind, action.number)
            case "again":
                ids = list(self.seen.answers)
                chosen = ids[action.number % len(ids)]
                await self.send(self.seen.ops[chosen], chosen)
            case "configure":
                await self.send(SessionConfigure(session_id, Settings(max_steps=3 + number)))
            case "attach":
                self._nursery.start_soon(self._follow)
            case _:
                await self._get()

    async def settle(self) -> None:
        """Answer and interrupt until the session rests."""
        for number in range(SETTLE_ROUNDS_MAX):
            snapshot = await self._get()
            if snapshot.turn is None:
                return
            if snapshot.requests:
                await self._answer_one("once", 0)
            elif number > 4:
                await self.send(Interrupt(self.session_id))
            await trio.sleep(100)
        raise AssertionError("the session is stuck busy")

    async def finish(self) -> None:
        """Let what is queued run, wait until every follower has all of it, then collect."""
        while (await self._get()).queue:
            await self.send(UserInput(self.session_id, f"last {self.world.new_id()}"))
            await self.settle()
        await self._follow_to_the_end()
        self.seen.log = await self.world.events(self.session_id)
        self.seen.requests = self.world.model.requests
        self.seen.spans = self.world.usage.spans
        self.seen.begun = self.world.usage.begun
        self.seen.snapshot = await self._get()
        await self.restart()
        self.seen.rebuilt = await self._get()

    async def _get(self) -> Snapshot:
        answer = await self.send(SessionGet(self.session_id))
        assert isinstance(answer, Accepted), answer
        assert isinstance(answer.result, SessionResult)
        return answer.result.snapshot

    async def _answer_one(self, decision: str, number: int) -> None:
        requests = (await self._get()).requests
        if requests:
            request = requests[number % len(requests)]
            await self.send(Answer(request.id, decision, "because"))

    async def _follow(self) -> None:
        """A frontend with a tiny buffer that attaches now and follows to the end."""
        delivered: list[Event] = []
        self.seen.followers.append(delivered)
        follower = Follower(self.world.log.log_id)
        while not self._finished.is_set():
            transport = self.world.transport
            channel = transport.subscribe(self.session_id, 2)
            while transport is self.world.transport:
                await self._catch_up(follower, delivered)
                if self._finished.is_set():
                    return
                with trio.move_on_after(7) as silence:
                    publication = await channel.receive()
                    _, event = decode_publication(publication)
                    delivered += follower.live([event])
                if silence.cancelled_caught:
                    follower.doubt()
            follower.doubt()

    async def _catch_up(self, follower: Follower, delivered: list[Event]) -> None:
        while (after := follower.wanted) is not None:
            answer = await self.send(Replay(self.session_id, after, 5))
            assert isinstance(answer, Accepted), answer
            assert isinstance(answer.result, ReplayResult)
            delivery = follower.replayed(answer.result, self.world.log.log_id)
            assert not delivery.started_over
            delivered += delivery.events

    async def _follow_to_the_end(self) -> None:
        await trio.sleep(RESEND_S)
        self._finished.set()
        await trio.sleep(RESEND_S)


def rejected(answer: AnyAnswer, *codes: str) -> bool:
    """Whether an answer is a rejection with one of these codes."""
    return isinstance(answer, Rejected) and answer.code in codes
