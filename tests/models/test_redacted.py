"""What models say comes out without keys, wherever a provider repeats one and however it is cut."""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.models.base import (
    Cited,
    Finished,
    HostedCall,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStarted,
    UsageReported,
)
from tiller_daemon.models.redacted import RedactedModel
from tiller_protocol.items import Citation, Usage

KEY = "sk-canary-0123456789"
REQUEST = ModelRequest("m", "", (), (), "S", 0)

Outcomes = list[ModelEvent | ModelError]


class FakeModel:
    """A model that says this, and learns its key when it is asked."""

    def __init__(self, outcomes: Outcomes, key: str = KEY) -> None:
        self._outcomes = outcomes
        self._key = key
        self.secrets: tuple[str, ...] = ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        assert request == REQUEST
        self.secrets = (self._key,) if self._key else ()
        for one in self._outcomes:
            await trio.lowlevel.checkpoint()
            if isinstance(one, ModelError):
                raise one
            yield one


async def collect(outcomes: Outcomes, key: str = KEY) -> Outcomes:
    """What comes out."""
    seen: Outcomes = []
    speaker = FakeModel(outcomes, key)
    try:
        model = RedactedModel(speaker, lambda: speaker.secrets)
        async with aclosing(model.stream(REQUEST)) as events:
            async for event in events:
                seen.append(event)
    except ModelError as error:
        seen.append(error)
    return seen


def words(outcomes: Outcomes) -> str:
    """The text of an answer."""
    return "".join(event.text for event in outcomes if isinstance(event, TextDelta))


def plain(outcomes: Outcomes) -> list[object]:
    """Errors can't be compared; their fields can."""
    return [vars(one) if isinstance(one, ModelError) else one for one in outcomes]


@each(
    ("outcomes", "told"),
    [
        ([TextDelta(f"it is {KEY}!")], [TextDelta("it is [secret]!")]),
        (
            [TextDelta("a" + KEY[:5]), TextDelta(KEY[5:9]), TextDelta(KEY[9:] + ".")],
            [TextDelta("a"), TextDelta("[secret].")],
        ),
        (
            [TextDelta("a" + KEY[:3]), TextDelta(KEY[3:] + ".")],
            [TextDelta("a" + KEY[:3]), TextDelta("[secret].")],
        ),
        (
            [ReasoningDelta(KEY[:5]), ReasoningDelta(KEY[5:], "o")],
            [ReasoningDelta("[secret]", "o")],
        ),
        ([ReasoningDelta("", f"sealed {KEY}")], [ReasoningDelta("", "sealed [secret]")]),
        (
            [ReasoningDelta("ask-can"), TextDelta("ary")],
            [ReasoningDelta("a"), ReasoningDelta("sk-can"), TextDelta("ary")],
        ),
        (
            [TextDelta("ask-can"), ReasoningDelta("", "o"), TextDelta("b")],
            [TextDelta("a"), TextDelta("sk-can"), ReasoningDelta("", "o"), TextDelta("b")],
        ),
        (
            [TextDelta("ask-can"), ToolCallStarted(0, f"call-{KEY}", f"{KEY}.read")],
            [
                TextDelta("a"),
                TextDelta("sk-can"),
                ToolCallStarted(0, "call-[secret]", "[secret].read"),
            ],
        ),
        (
            [
                ToolCallDelta(0, '{"a":"' + KEY[:7]),
                ToolCallDelta(1, KEY[:5]),
                ToolCallDelta(0, KEY[7:] + '"}'),
                ToolCallDone(0),
                ToolCallDone(1),
            ],
            [
                ToolCallDelta(0, '{"a":"'),
                ToolCallDelta(0, '[secret]"}'),
                ToolCallDone(0),
                ToolCallDelta(1, KEY[:5]),
                ToolCallDone(1),
            ],
        ),
        (
            [TextDelta("ask-can"), HostedCall("c", KEY, "failed", f'{{"q":"{KEY}"}}', f"a {KEY}")],
            [
                TextDelta("a"),
                TextDelta("sk-can"),
                HostedCall("c", "[secret]", "failed", '{"q":"[secret]"}', "a [secret]"),
            ],
        ),
        (
            [TextDelta(KEY[:5]), Cited(Citation(f"https://x/{KEY}", KEY, KEY)), TextDelta(KEY[5:])],
            [Cited(Citation("https://x/[secret]", "[secret]", "[secret]")), TextDelta("[secret]")],
        ),
        ([UsageReported(Usage(1)), TextDelta("")], [UsageReported(Usage(1)), TextDelta("")]),
    ],
)
@pytest.mark.promise("G13")
async def test_a_key_is_taken_out_wherever_a_model_says_it(
    outcomes: Outcomes, told: Outcomes
) -> None:
    assert await collect([*outcomes, Finished("stop")]) == [*told, Finished("stop")]


@pytest.mark.promise("G13")
async def test_a_key_is_taken_out_of_an_error_that_is_else_the_same() -> None:
    failure = ModelError("quota", f"no {KEY}", status=429, retry_after_s=2.0, final=True)
    told = ModelError("quota", "no [secret]", status=429, retry_after_s=2.0, final=True)
    assert plain(await collect([failure])) == plain([told])


async def test_what_waited_is_said_before_the_error_that_ends_it_but_no_half_key() -> None:
    for held, shown in (("sk-can", "sk-can"), (KEY[:-1], "[secret]")):
        seen = await collect([TextDelta(f"so {held}"), ModelError("server", "broken")])
        assert words(seen) == f"so {shown}"
        assert isinstance(seen[-1], ModelError)


async def test_without_a_key_every_event_passes_as_it_is() -> None:
    outcomes: Outcomes = [TextDelta("s"), TextDelta(KEY), ReasoningDelta("", "o"), Finished("stop")]
    assert await collect(outcomes, key="") == outcomes


def pieces_of(text: str, cuts: list[int]) -> Iterator[str]:
    """The text, cut at these places."""
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    for begin, end in pairwise(places):
        yield text[begin:end]


@given(
    parts=st.lists(st.sampled_from([KEY, KEY[:9], KEY[5:], "s", "sk-", " x ", "é"]), max_size=6),
    cuts=st.lists(st.integers(0, 200), max_size=9),
    kind=st.sampled_from(["text", "thinking", "arguments"]),
)
@pytest.mark.promise("G13")
def test_no_cut_lets_a_key_through_and_the_rest_is_as_it_was(
    parts: list[str], cuts: list[int], kind: str
) -> None:
    text = "".join(parts)

    def said(piece: str) -> ModelEvent:
        match kind:
            case "text":
                return TextDelta(piece)
            case "thinking":
                return ReasoningDelta(piece)
            case _:
                return ToolCallDelta(0, piece)

    outcomes = [*(said(piece) for piece in pieces_of(text + ".", cuts)), Finished("stop")]
    *told, _ = trio.run(collect, outcomes)
    whole = "".join(
        event.arguments if isinstance(event, ToolCallDelta) else event.text
        for event in told
        if isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta)
    )
    taken_out = r"(?:|s|sk|sk-)\[secret\]"  # three characters are no key, and wait for nothing
    expected = taken_out.join(re.escape(part) for part in f"{text}.".split(KEY))
    assert re.fullmatch(expected, whole)


async def test_a_placeholder_for_a_key_stays_a_word_in_what_is_written() -> None:
    outcomes: Outcomes = [
        TextDelta("base_url of lm-studio"),
        ToolCallDelta(0, '{"a": "lm-studio"}'),
    ]
    assert await collect(outcomes, "lm-studio") == outcomes
