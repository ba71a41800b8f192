"""Retry: which failures are tried again, after how long, and when it gives up (B46 to B48)."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from math import inf

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from support.each import each
from support.scripts import ModelInMemory
from tiller_daemon.config import Retry
from tiller_daemon.models.base import (
    RETRYABLE,
    Finished,
    ModelClient,
    ModelError,
    ModelErrorKind,
    ModelEvent,
    ModelRequest,
    TextDelta,
)
from tiller_daemon.models.scripted import Failure, Script, ScriptStep, TextPart
from tiller_daemon.turn.retry import (
    REFUSED_S_MAX,
    RetriedModel,
    RetryWait,
    refused_delay_s,
    retry_delay_s,
)

LIMITS = Retry()
REQUEST = ModelRequest("play", "", (), (), "s", 0)
WHOLE = [TextDelta("good"), Finished("stop")]


def failing(*failures: Failure) -> ModelInMemory:
    step = ScriptStep(parts=(TextPart("good"),), failures=failures)
    return ModelInMemory(lambda _: Script(steps=(step,)))


async def seen_with(
    client: ModelClient,
    seen: list[ModelEvent | RetryWait],
    request: ModelRequest = REQUEST,
    limits: Retry = LIMITS,
) -> None:
    async with aclosing(
        RetriedModel(client, limits, trio.current_time, lambda: 0.0).stream(request)
    ) as events:
        async for event in events:
            seen.append(event)  # noqa: PERF401


async def test_a_good_stream_passes_unchanged() -> None:
    seen: list[ModelEvent | RetryWait] = []
    await seen_with(failing(), seen)
    assert seen == WHOLE


async def test_the_wait_is_told_before_it_begins_and_the_next_try_follows(
    autojump_clock: MockClock,
) -> None:
    """B46, B47: the discarded piece, then the wait, then the good answer."""
    del autojump_clock
    client = failing(Failure("broken_stream", "cut", after_parts=1))
    start = trio.current_time()
    async with aclosing(
        RetriedModel(client, LIMITS, trio.current_time, lambda: 0.0).stream(REQUEST)
    ) as events:
        assert await anext(events) == TextDelta("good")
        assert await anext(events) == RetryWait(2, LIMITS.attempts, 1.0, "broken_stream", "cut")
        assert trio.current_time() == start
        assert [event async for event in events] == WHOLE
    assert trio.current_time() - start == pytest.approx(1.0)


async def test_a_provider_that_names_a_delay_gets_it(autojump_clock: MockClock) -> None:
    del autojump_clock
    seen: list[ModelEvent | RetryWait] = []
    start = trio.current_time()
    await seen_with(failing(Failure("rate_limit", "slow", retry_after_s=2.5)), seen)
    assert seen == [RetryWait(2, LIMITS.attempts, 2.5, "rate_limit", "slow"), *WHOLE]
    assert trio.current_time() - start == pytest.approx(2.5)


@each("kind", ["authentication", "quota", "content_policy", "not_found", "bad_request"])
async def test_what_can_not_get_better_is_not_tried_again(kind: ModelErrorKind) -> None:
    seen: list[ModelEvent | RetryWait] = []
    with pytest.raises(ModelError) as caught:
        await seen_with(failing(Failure(kind)), seen)
    assert caught.value.kind == kind
    assert seen == []


async def test_the_number_of_tries_is_bounded(autojump_clock: MockClock) -> None:
    del autojump_clock
    seen: list[ModelEvent | RetryWait] = []
    with pytest.raises(ModelError):
        await seen_with(failing(*[Failure("server")] * 50), seen)
    waits = [event for event in seen if isinstance(event, RetryWait)]
    assert [wait.attempt for wait in waits] == list(range(2, LIMITS.attempts + 1))
    assert [wait.delay_s for wait in waits] == [1, 2, 4, 8, 16, 30, 30]


async def test_a_refused_connection_waits_without_using_the_budget(
    autojump_clock: MockClock,
) -> None:
    """B48: it goes on when the server comes, with every try still there."""
    del autojump_clock
    seen: list[ModelEvent | RetryWait] = []
    await seen_with(failing(*[Failure("refused")] * 5, Failure("server")), seen)
    waits = [event for event in seen if isinstance(event, RetryWait)]
    assert [wait.delay_s for wait in waits] == [5, 10, 20, 40, 60, 1]
    assert [wait.attempt for wait in waits] == [2, 3, 4, 5, 6, 7]
    assert [wait.limit for wait in waits] == [*[None] * 5, LIMITS.attempts + 5]
    assert seen[-2:] == WHOLE


async def test_a_server_that_never_comes_is_given_up(autojump_clock: MockClock) -> None:
    del autojump_clock
    seen: list[ModelEvent | RetryWait] = []
    start = trio.current_time()
    with pytest.raises(ModelError, match="nothing listens"):
        await seen_with(failing(*[Failure("refused", "nothing listens")] * 100), seen)
    waited_s = trio.current_time() - start
    assert LIMITS.outage_s - REFUSED_S_MAX < waited_s <= LIMITS.outage_s


class Away:
    """A provider whose requests all fail with `failure` until `until_s`."""

    def __init__(self, failure: ModelError, until_s: float) -> None:
        self.failure, self.until_s = failure, until_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        del request
        if trio.current_time() < self.until_s:
            raise self.failure
        for event in WHOLE:
            yield event


OUTAGES = {
    "503": ModelError("overloaded", "away", status=503),
    "529": ModelError("overloaded", "away", status=529),
    "an error event": ModelError("overloaded", "away"),
    "502": ModelError("server", "away", status=502),
    "504": ModelError("server", "away", status=504),
    "522": ModelError("server", "away", status=522),
    "a delay asked for": ModelError("overloaded", "away", status=503, retry_after_s=120),
    "refused": ModelError("refused", "away"),
}


@pytest.mark.parametrize("name", OUTAGES)
@pytest.mark.promise("B48")
async def test_an_outage_of_ten_minutes_is_outlived(autojump_clock: MockClock, name: str) -> None:
    """B48: however the provider says that it is away."""
    del autojump_clock
    failure = OUTAGES[name]
    seen: list[ModelEvent | RetryWait] = []
    start = trio.current_time()
    await seen_with(Away(failure, start + 600), seen)
    waits = [event for event in seen if isinstance(event, RetryWait)]
    assert {wait.limit for wait in waits} == {None}
    if failure.retry_after_s:
        assert {wait.delay_s for wait in waits} == {failure.retry_after_s}
    assert seen[-2:] == WHOLE
    seen.clear()
    start = trio.current_time()
    with pytest.raises(ModelError, match="away"):
        await seen_with(Away(failure, inf), seen)
    assert LIMITS.outage_s - 120 <= trio.current_time() - start <= LIMITS.outage_s


async def test_a_provider_that_forbids_a_retry_during_an_outage_is_obeyed() -> None:
    seen: list[ModelEvent | RetryWait] = []
    with pytest.raises(ModelError, match="away"):
        await seen_with(Away(ModelError("overloaded", "away", status=503, final=True), inf), seen)
    assert seen == []


@pytest.mark.parametrize("asked_s", [121.0, 599.0, 600.0])
async def test_a_long_delay_is_waited_in_full(autojump_clock: MockClock, asked_s: float) -> None:
    del autojump_clock
    seen: list[ModelEvent | RetryWait] = []
    start = trio.current_time()
    await seen_with(failing(Failure("rate_limit", "slow", retry_after_s=asked_s)), seen)
    assert trio.current_time() - start == pytest.approx(asked_s)
    assert seen[-2:] == WHOLE


@pytest.mark.parametrize(
    ("asked_s", "when"),
    [(601, "in 11 min, after"), (6_000, "in 1 h 40 min, after"), (180_000, "in 2 d 2 h, after")],
)
async def test_a_longer_delay_ends_it_and_the_error_says_when_to_come_back(
    autojump_clock: MockClock, asked_s: float, when: str
) -> None:
    del autojump_clock
    seen: list[ModelEvent | RetryWait] = []
    start = trio.current_time()
    with pytest.raises(ModelError) as caught:
        await seen_with(failing(Failure("rate_limit", "Slow.", retry_after_s=asked_s)), seen)
    assert (caught.value.kind, seen, trio.current_time()) == ("rate_limit", [], start)
    assert caught.value.message.startswith(f"Slow. Try again {when}")
    assert caught.value.message.endswith(" UTC.")


async def test_a_delay_without_end_is_no_date(autojump_clock: MockClock) -> None:
    del autojump_clock
    for kind in ("rate_limit", "quota"):
        with pytest.raises(ModelError) as caught:
            await seen_with(failing(Failure(kind, "Slow.", retry_after_s=1e15)), [])
        assert "UTC" not in caught.value.message


async def test_the_limits_are_configuration(autojump_clock: MockClock) -> None:
    del autojump_clock
    seen: list[ModelEvent | RetryWait] = []
    limits = Retry(attempts=5, delay_s=2, outage_s=20, total_s=60, retry_after_s=50)
    with pytest.raises(ModelError):
        await seen_with(failing(*[Failure("server")] * 9), seen, limits=limits)
    waits = [event for event in seen if isinstance(event, RetryWait)]
    assert [(w.attempt, w.limit, w.delay_s) for w in waits] == [
        (2, 5, 1), (3, 5, 2), (4, 5, 2), (5, 5, 2),
    ]  # fmt: skip
    seen.clear()
    with pytest.raises(ModelError):
        await seen_with(failing(*[Failure("refused")] * 9), seen, limits=limits)
    assert [event.delay_s for event in seen if isinstance(event, RetryWait)] == [5, 10]
    seen.clear()
    # The second delay alone would be permitted, but not both together.
    slow = [Failure("rate_limit", "Slow.", retry_after_s=40)] * 2
    with pytest.raises(ModelError, match=r"Slow. Try again in 1 min, after .* UTC."):
        await seen_with(failing(*slow), seen, limits=limits)
    assert [event.delay_s for event in seen if isinstance(event, RetryWait)] == [40]
    with pytest.raises(ModelError):
        await seen_with(failing(Failure("server")), [], limits=Retry(attempts=1))


async def test_a_wait_ends_at_once_when_it_is_cancelled(autojump_clock: MockClock) -> None:
    """B28."""
    del autojump_clock
    start = trio.current_time()
    with trio.move_on_after(1) as scope:
        await seen_with(failing(Failure("rate_limit", retry_after_s=100)), [])
    assert scope.cancelled_caught
    assert trio.current_time() - start == pytest.approx(1)


class Silent:
    """A client that breaks the rule: its stream ends without `Finished`."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        yield TextDelta(f"try {request.attempt}")


async def test_an_end_without_the_terminal_event_is_a_failure(autojump_clock: MockClock) -> None:
    del autojump_clock
    with pytest.raises(ModelError) as caught:
        await seen_with(Silent(), [])
    assert caught.value.kind == "broken_stream"


@given(
    failures=st.integers(1, LIMITS.attempts),
    retry_after_s=st.none() | st.floats(-10, 1e9),
    random=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_what_was_asked_or_within_its_bounds(
    failures: int, retry_after_s: float | None, random: float
) -> None:
    delay_s = retry_delay_s(failures, retry_after_s, random, LIMITS.delay_s)
    if retry_after_s is None:
        assert 0.5 <= delay_s <= LIMITS.delay_s
    else:
        assert delay_s == max(retry_after_s, 0)


@given(waited_s=st.floats(0, 1e6))
def test_a_refused_delay_is_between_five_and_sixty_seconds(waited_s: float) -> None:
    assert 5 <= refused_delay_s(waited_s) <= 60


kinds: Sequence[ModelErrorKind] = sorted(RETRYABLE)


@given(plan=st.lists(st.sampled_from(kinds), max_size=5))
def test_as_many_waits_as_failures_and_then_the_answer(plan: list[ModelErrorKind]) -> None:
    seen: list[ModelEvent | RetryWait] = []
    client = failing(*(Failure(kind) for kind in plan))
    trio.run(seen_with, client, seen, clock=MockClock(autojump_threshold=0))
    waits = [event for event in seen if isinstance(event, RetryWait)]
    assert [wait.kind for wait in waits] == plan
    assert [wait.attempt for wait in waits] == list(range(2, len(plan) + 2))
    assert all(wait.limit is None or wait.attempt <= wait.limit for wait in waits)
    assert seen[-2:] == WHOLE
