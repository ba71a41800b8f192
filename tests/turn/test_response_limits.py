"""The limits on one response: what is counted, and when a stream is stopped."""

from collections.abc import Callable, Iterator

import pytest

from support.each import each
from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.turn.response_limits import (
    RESPONSE_BYTES_MAX,
    RESPONSE_CALLS_MAX,
    RESPONSE_ITEMS_MAX,
    RESPONSE_TEXT_BYTES_MAX,
    ResponseLimits,
)
from tiller_daemon.turn.unfinished import CONTINUATIONS_MAX
from tiller_protocol.codec import MESSAGE_BYTES_MAX
from tiller_protocol.items import Citation, Image, Usage

MB = 1_000_000
PIECE = 50_000

Response = Callable[[int], Iterator[ModelEvent]]
"""Returns the first events of an endless response, at least as many as the argument says."""


def calls(count: int) -> Iterator[ModelEvent]:
    for number in range(count):
        yield ToolCallStarted(number, f"call_{number}", "read")
        yield ToolCallDelta(number, "{}")
        yield ToolCallDone(number)


def alternating(count: int) -> Iterator[ModelEvent]:
    for _ in range(count):
        yield TextDelta("x")
        yield ReasoningDelta("x")


def hosted(count: int) -> Iterator[ModelEvent]:
    for number in range(count):
        yield HostedCall(f"h{number}", "web_search", "running")
        yield HostedCall(f"h{number}", "web_search", "completed")


def images(count: int) -> Iterator[ModelEvent]:
    for number in range(count):
        image = Image("image/png", bytes(MB))
        yield HostedCall(f"h{number}", "image_generation", "completed", images=(image,))


def arguments_of_two(count: int) -> Iterator[ModelEvent]:
    yield ToolCallStarted(0, "a", "write")
    yield ToolCallStarted(1, "b", "write")
    for number in range(count):
        yield ToolCallDelta(number % 2, "x" * PIECE)


def growing_opaque(count: int) -> Iterator[ModelEvent]:
    for number in range(1, count + 1):
        yield ReasoningDelta("", "x" * MB * number)


def opaque_items(count: int) -> Iterator[ModelEvent]:
    for _ in range(count):
        yield TextDelta("x")
        yield ReasoningDelta("", "x" * MB)


def of(event: ModelEvent) -> Response:
    return lambda count: iter([event] * count)


ENDLESS: dict[str, Response] = {
    "calls": calls,
    "calls with the same id": of(ToolCallStarted(0, "same", "read")),
    "names of calls": of(ToolCallStarted(0, "a", "x" * PIECE)),
    "ids of calls": of(ToolCallStarted(0, "x" * PIECE, "read")),
    "text and thinking in turns": alternating,
    "calls of the provider": hosted,
    "text": of(TextDelta("x" * PIECE)),
    "text in one piece": of(TextDelta("x" * 20 * MB)),
    "text of four bytes a character": of(TextDelta("\U0001f600" * PIECE)),
    "text that JSON must escape": of(TextDelta("\x01" * PIECE)),
    "thinking": of(ReasoningDelta("x" * PIECE)),
    "arguments": of(ToolCallDelta(0, "x" * PIECE)),
    "arguments of two calls in turns": arguments_of_two,
    "short pieces of text": of(TextDelta("x" * 100)),
    "citations": of(Cited(Citation("https://example.org/" + "x" * PIECE, "title"))),
    "arguments of one call of the provider": of(HostedCall("h", "x", "running", "x" * PIECE)),
    "images": images,
    "data for the provider that grows": growing_opaque,
    "data for the provider after each text": opaque_items,
}


def size_of(event: ModelEvent) -> int:
    """A lower bound of what an event adds to the response."""
    match event:
        case TextDelta(text) | ReasoningDelta(text):
            return len(text.encode())
        case ToolCallDelta(_, text):
            return len(text.encode())
        case HostedCall():
            return sum(len(image.data) for image in event.images) + len(event.arguments)
        case _:
            return 0


@each("name", ENDLESS)
def test_a_response_without_end_is_stopped(name: str) -> None:
    limits, seen = ResponseLimits("play"), list[ModelEvent]()

    def count_all() -> None:
        for event in ENDLESS[name](RESPONSE_TEXT_BYTES_MAX):
            limits.count(event)
            seen.append(event)

    with pytest.raises(ModelError, match=r"model play has more than [0-9,]+ .*discarded") as caught:
        count_all()
    assert caught.value.kind == "response_too_long"
    assert not caught.value.retryable
    assert sum(isinstance(event, ToolCallStarted) for event in seen) <= RESPONSE_CALLS_MAX
    opaque = max(
        len(event.opaque) if isinstance(event, ReasoningDelta) else 0
        for event in seen or [TextDelta("")]
    )
    assert opaque + sum(map(size_of, seen)) <= RESPONSE_BYTES_MAX


def test_a_response_may_have_as_much_as_the_limits_allow() -> None:
    limits = ResponseLimits("play")
    for event in calls(RESPONSE_CALLS_MAX):
        limits.count(event)
    for _ in range((RESPONSE_ITEMS_MAX - RESPONSE_CALLS_MAX) // 2):
        limits.count(TextDelta("x"))
        limits.count(ReasoningDelta("x"))
    limits.count(ReasoningDelta("x" * (RESPONSE_TEXT_BYTES_MAX - 100_000)))
    limits.count(Finished("stop"))


def test_data_for_the_provider_counts_once_although_it_is_repeated_as_it_grows() -> None:
    limits = ResponseLimits("play")
    for number in range(100):
        limits.count(ReasoningDelta("x", "x" * (RESPONSE_BYTES_MAX // 2 + number)))


def test_reports_of_usage_do_not_count() -> None:
    limits = ResponseLimits("play")
    for _ in range(RESPONSE_ITEMS_MAX * 10):
        limits.count(UsageReported(Usage(1, 1)))


def test_whatever_the_limits_allow_fits_into_a_message() -> None:
    assert RESPONSE_BYTES_MAX < MESSAGE_BYTES_MAX
    assert RESPONSE_TEXT_BYTES_MAX * (1 + CONTINUATIONS_MAX) < MESSAGE_BYTES_MAX
