"""Calls that begin before their response has ended: when, and what a failed stream leaves (B33).

Random responses against an oracle, on a virtual clock: a call begins exactly when it may.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.deterministic import run_from_seed
from support.world import World
from tiller_daemon.models.base import (
    Finished,
    ModelClient,
    ModelEvent,
    ModelRequest,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
)
from tiller_daemon.models.scripted import (
    CallPart,
    Failure,
    HangPart,
    Part,
    Script,
    ScriptStep,
    TextPart,
    WaitPart,
)
from tiller_protocol.answers import Started
from tiller_protocol.events import (
    Event,
    FinishReason,
    ItemCompleted,
    ItemStarted,
)
from tiller_protocol.ids import ItemId
from tiller_protocol.items import AssistantMessage, ToolCall
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.ops import Interrupt

EPOCH = 1_700_000_000.0
DONE = ScriptStep(parts=(TextPart("done"),), repeat=True)


@dataclass(frozen=True)
class Disturbance:
    """What the user does at some time: steer or interrupt."""

    at: float
    kind: str


@dataclass
class Seen:
    """What came of one turn: events, and when each call ran by its item id."""

    world: World
    events: list[Event]
    begun: float

    def __post_init__(self) -> None:
        self.spans = {ItemId(span.call_id): span.times for span in self.world.usage.spans}
        completed = [e.body.item for e in self.events if isinstance(e.body, ItemCompleted)]
        self.calls = [item for item in completed if isinstance(item, ToolCall)]
        started = [e.body.item.id for e in self.events if isinstance(e.body, ItemStarted)]
        self.calls.sort(key=lambda call: started.index(call.id))

    @property
    def kept(self) -> list[ToolCall]:
        """The calls of history, in call order."""
        return [call for call in self.calls if not call.discarded]


async def _play(
    steps: Sequence[ScriptStep],
    disturbances: Sequence[Disturbance] = (),
    model: ModelClient | None = None,
) -> Seen:
    async with trio.open_nursery() as nursery:
        world = await World.start(nursery, {"s": Script((*steps, DONE))})
        world.model.inner = model or world.model.inner
        session_id = await world.session(approve="always")
        begun = trio.current_time()
        turns = [await world.say(session_id, "go")]
        for number, one in enumerate(disturbances):
            await trio.sleep_until(begun + one.at)
            if one.kind == "steer":
                turns.append(await world.say(session_id, f"look here {number}"))
            else:
                await world.ask(Interrupt(session_id))
        await world.ended(session_id, sum(isinstance(turn, Started) for turn in turns))
        seen = Seen(world, await world.events(session_id), begun)
        nursery.cancel_scope.cancel()
    return seen


def play(seed: int, *steps: ScriptStep, disturbances: Sequence[Disturbance] = ()) -> Seen:
    return run_from_seed(partial(_play, steps, disturbances), seed)


SILENCE_S = st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])
CALLS_S = st.sampled_from([0.0, 0.2, 0.7, 1.2, 5.2])
"""No call ends in the moment in which a stream fails: what is seen of it then would be chance."""


@st.composite
def responses(draw: st.DrawFn) -> ScriptStep:
    """A response of calls with silence between them; each call is another one."""
    parts: list[Part] = []
    for number in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(["look", "look", "peek", "change", "LOOK", "nope"]))
        arguments = {"seconds": draw(CALLS_S), "say": f"{number}"}
        if arguments["seconds"]:
            arguments["lingers"] = draw(SILENCE_S)
        parts.append(CallPart(name, arguments=arguments))
        if draw(st.booleans()):
            parts.append(WaitPart(draw(SILENCE_S)))
    failures = draw(
        st.lists(
            st.builds(
                Failure,
                st.sampled_from(["broken_stream", "overloaded"]),
                after_parts=st.integers(0, len(parts)),
                retry_after_s=st.just(1.0),
            ),
            max_size=2,
        )
    )
    finishes: tuple[FinishReason | None, ...] = (None, None, None, "stop", "length")
    finish = draw(st.sampled_from(finishes))
    return ScriptStep(parts=tuple(parts), failures=tuple(failures), finish=finish)


DISTURBANCES = st.lists(
    st.builds(Disturbance, st.floats(0.0, 12.0), st.sampled_from(["steer", "steer", "interrupt"])),
    max_size=2,
).map(lambda some: sorted(some, key=lambda one: one.at))
SEEDS = st.integers(0, 2**32 - 1)

many = settings(max_examples=80, deadline=None)


def dropped_after(step: ScriptStep, failure: Failure, began: float) -> float:
    """When nothing of a failed attempt runs any more, if it began to stream then."""
    failed = began + waits(step.parts[: failure.after_parts])
    ends = [failed]
    streamed = ScriptStep(parts=step.parts[: failure.after_parts])
    calls = [part for part in streamed.parts if isinstance(part, CallPart)]
    for part, span in zip(calls, expected_spans(streamed, began), strict=True):
        if part.name == "change":
            break
        if span and span[1] > failed:
            ends.append(failed + (part.arguments or {}).get("lingers", 0.0))
    return max(ends)


def waits(parts: Sequence[Part]) -> float:
    """How long the silence in parts of a response takes."""
    return sum(part.seconds for part in parts if isinstance(part, WaitPart))


def expected_spans(step: ScriptStep, began: float) -> list[tuple[float, float] | None]:
    """When each call of a response that begins to stream then runs; None for one that does not."""
    end = began + waits(step.parts)
    spans: list[tuple[float, float] | None] = []
    all_ended = writes_ended = 0.0
    for place, part in enumerate(step.parts):
        if not isinstance(part, CallPart):
            continue
        if part.name == "nope":
            spans.append(None)
            continue
        if part.name == "change":
            begin = max(end, all_ended)
        else:
            begin = writes_ended or began + waits(step.parts[:place])
        ended = begin + (part.arguments or {})["seconds"]
        spans.append((begin, ended))
        all_ended = max(all_ended, ended)
        if part.name == "change":
            writes_ended = all_ended
    return spans


@many
@given(responses(), SEEDS)
@pytest.mark.promise("B33", "G9")
def test_a_call_begins_as_soon_as_it_may_and_no_sooner(step: ScriptStep, seed: int) -> None:
    """A read at once, unless a write stands before it; a write when all before it have ended.

    Streams that failed before change nothing but the time.
    """
    seen = play(seed, step)
    if step.finish == "length":
        assert {call.error_kind for call in seen.kept} == {"invalid"}
        return
    began = seen.begun
    for failure in step.failures:
        began = dropped_after(step, failure, began) + 1.0
    expected = expected_spans(step, began)
    spans = [seen.spans.get(call.id) for call in seen.kept]
    assert [s is None for s in spans] == [s is None for s in expected]
    for span, wanted in zip(spans, expected, strict=True):
        assert span == (wanted and pytest.approx(wanted))


@many
@given(responses(), SEEDS, DISTURBANCES)
@pytest.mark.promise("B33")
def test_nothing_of_a_failed_stream_is_doubled_or_reaches_the_model(
    step: ScriptStep, seed: int, disturbances: list[Disturbance]
) -> None:
    """Whatever the user does meanwhile: one completion for each call, and none that was dropped."""
    seen = play(seed, step, disturbances=disturbances)
    state = LifecycleState()
    for event in seen.events:
        advance(state, event)
    assert not state.open_items
    dropped = {call.id for call in seen.calls if call.discarded}
    sent = [i.id for r in seen.world.model.requests for i in r.items if isinstance(i, ToolCall)]
    assert not dropped & set(sent)
    made = sum(isinstance(part, CallPart) for part in step.parts)
    assert len(seen.kept) <= made
    for request in seen.world.model.requests[1:]:
        told = [item for item in request.items if isinstance(item, ToolCall)]
        assert told == seen.kept[: len(told)]
    for call in seen.kept:
        assert call.state in ("completed", "error")
        if call.state == "completed":
            assert call.id in seen.spans


@many
@given(responses(), SEEDS, DISTURBANCES)
@pytest.mark.promise("B33", "G8")
def test_what_began_early_has_ended_before_a_retry_and_before_the_turn_ends(
    step: ScriptStep, seed: int, disturbances: list[Disturbance]
) -> None:
    """No dropped call is alive when its items are closed, and none at all in the end."""
    seen = play(seed, step, disturbances=disturbances)
    closed = {
        e.body.item.id: e.time - EPOCH for e in seen.events if isinstance(e.body, ItemCompleted)
    }
    assert not seen.world.usage.running
    assert all(ended <= closed[i] + 1e-6 for i, (_, ended) in seen.spans.items())


@many
@given(responses(), SEEDS, DISTURBANCES)
@pytest.mark.promise("B33", "G9")
def test_a_write_is_alone_whatever_began_early(
    step: ScriptStep, seed: int, disturbances: list[Disturbance]
) -> None:
    seen = play(seed, step, disturbances=disturbances)
    for one in seen.world.usage.spans:
        others = [other for other in seen.world.usage.spans if other.call_id != one.call_id]
        alone = all(one.ended < other.began or other.ended < one.began for other in others)
        assert alone or one.effect == "read"


def call(name: str, **arguments: object) -> CallPart:
    return CallPart(name, arguments=arguments)


@pytest.mark.promise("B33")
def test_a_result_that_was_there_is_kept_when_the_stream_is_interrupted() -> None:
    step = ScriptStep(parts=(call("look", seconds=1, say="a"), call("look", seconds=9), HangPart()))
    seen = play(1, step, disturbances=[Disturbance(3.0, "interrupt")])
    quick, slow = seen.kept
    assert (quick.state, quick.output, quick.duration_s) == ("completed", "a", pytest.approx(1))
    assert slow.error_kind == "aborted"
    assert "aborted after 3.0 s" in slow.output


@pytest.mark.promise("B33")
def test_a_result_that_was_there_is_kept_when_the_stream_fails_for_good() -> None:
    failure = Failure("content_policy", after_parts=3)
    parts = (call("look", seconds=1, say="a"), call("look", seconds=9), WaitPart(3))
    seen = play(1, ScriptStep(parts=parts, failures=(failure,)))
    assert [c.error_kind for c in seen.kept] == [None, "aborted"]
    assert seen.kept[0].output == "a"


@pytest.mark.promise("B7", "B33")
def test_a_response_that_is_cut_off_runs_no_call_on() -> None:
    parts = (call("look", seconds=1, say="a"), call("look", seconds=99), WaitPart(3))
    seen = play(1, ScriptStep(parts=parts, finish="length"))
    assert [c.error_kind for c in seen.kept] == ["invalid", "invalid"]
    assert max(ended - seen.begun for _, ended in seen.spans.values()) == pytest.approx(3)


@pytest.mark.promise("B33")
def test_completions_come_when_the_response_is_whole_in_the_order_of_their_ends() -> None:
    slow, quick, late = (call("look", seconds=s, say=f"{s}") for s in (2.0, 1.0, 5.0))
    seen = play(1, ScriptStep(parts=(slow, quick, late, WaitPart(3), TextPart("so"))))
    items = [e.body.item for e in seen.events if isinstance(e.body, ItemCompleted)]
    calls = [item.output for item in items if isinstance(item, ToolCall)]
    assert calls == ["1.0", "2.0", "5.0"]
    assert [c.output for c in seen.kept] == ["2.0", "1.0", "5.0"]
    (said,) = [n for n, i in enumerate(items) if isinstance(i, AssistantMessage) and i.text == "so"]
    assert all(not isinstance(item, ToolCall) for item in items[:said])


@pytest.mark.promise("B33")
def test_steering_that_waits_lets_nothing_begin_any_more() -> None:
    parts = (call("look", seconds=9, say="a"), WaitPart(2), call("look", say="b"), WaitPart(2))
    seen = play(1, ScriptStep(parts=parts), disturbances=[Disturbance(1.0, "steer")])
    assert [c.error_kind for c in seen.kept] == [None, "skipped"]


@pytest.mark.promise("B33")
def test_what_asks_or_is_seen_by_the_user_waits_for_the_whole_response() -> None:
    """A plan that was shown and a question that was asked could not be dropped unseen."""
    plan = CallPart("plan", arguments={"items": []})
    seen = play(1, ScriptStep(parts=(plan, WaitPart(2), TextPart("so"))))
    running = [e for e in seen.events if getattr(e.body, "state", "") == "running"]
    assert [event.time - EPOCH for event in running] == [pytest.approx(seen.begun + 2)]


@pytest.mark.promise("B9", "B33")
def test_a_call_that_goes_in_circles_does_not_begin_before_the_user_was_asked() -> None:
    same = [call("look", say="same")] * 3
    seen = play(1, ScriptStep(parts=(*same, WaitPart(2))))
    begins = [seen.spans[c.id][0] - seen.begun for c in seen.kept]
    assert begins == pytest.approx([0, 0, 2])


class Mixed:
    """A model whose two calls stream at once: the second one is whole before the first one."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        await trio.lowlevel.checkpoint()
        if request.ordinal == 0:
            for number in (0, 1):
                yield ToolCallStarted(number, f"call{number}", "look")
            yield ToolCallDelta(1, '{"seconds": 0}')
            yield ToolCallDone(1)
            await trio.sleep(2)
            yield ToolCallDelta(0, '{"seconds": 1}')
            yield ToolCallDone(0)
            await trio.sleep(2)
        yield Finished("stop")


@pytest.mark.promise("B33")
def test_calls_that_stream_at_once_begin_in_call_order() -> None:
    seen = run_from_seed(partial(_play, (), (), Mixed()), 1)
    begins = [seen.spans[c.id][0] - seen.begun for c in seen.kept]
    assert [c.call_id for c in seen.kept] == ["call0", "call1"]
    assert begins == pytest.approx([2, 2])
