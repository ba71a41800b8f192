"""A response that is too long ends its turn: it is discarded, and the session goes on."""

import pytest
from msgspec import structs

from tiller_daemon.models.scripted import (
    CallPart,
    CitationPart,
    HostedCallPart,
    Part,
    ReasoningPart,
    ScriptStep,
    TextPart,
)
from tiller_daemon.turn.response_limits import (
    RESPONSE_BYTES_MAX,
    RESPONSE_CALLS_MAX,
    RESPONSE_ITEMS_MAX,
    RESPONSE_TEXT_BYTES_MAX,
)
from tiller_protocol.codec import MESSAGE_BYTES_MAX, encode_event
from tiller_protocol.events import ErrorRaised, ItemCompleted, ItemStarted, StatusChanged
from tiller_protocol.items import AssistantMessage, Reasoning, ToolCall
from tiller_protocol.ops import Compact

LOOK = CallPart("look", {"say": "x"})
LONG = "x" * (RESPONSE_TEXT_BYTES_MAX + 1)
OPAQUE = "x" * (RESPONSE_BYTES_MAX // 2 + 1)

TOO_LONG: dict[str, tuple[Part, ...]] = {
    "20,000 calls": tuple(CallPart("look", {"say": f"{n}"}) for n in range(20_000)),
    "one call too many": (LOOK,) * (RESPONSE_CALLS_MAX + 1),
    "calls that write": (CallPart("change"),) * (RESPONSE_CALLS_MAX + 1),
    "calls to no tool": (CallPart("nonsense"),) * (RESPONSE_CALLS_MAX + 1),
    "calls after a text": (TextPart("Look:"), *(LOOK,) * (RESPONSE_CALLS_MAX + 1)),
    "a text": (TextPart(LONG),),
    "a text in pieces": (TextPart(LONG, pieces=500),),
    "a text of 22 MB": (TextPart("x" * 22_000_000, pieces=370),),
    "thinking": (ReasoningPart(LONG, pieces=50), TextPart("done")),
    "arguments": (CallPart("look", arguments_text=LONG),),
    "arguments in pieces": (CallPart("look", arguments_text=LONG, pieces=500),),
    "arguments of a second call": (LOOK, CallPart("look", {"say": LONG})),
    "the name of a call": (CallPart(LONG, {}),),
    "text and thinking in turns": (TextPart("x"), ReasoningPart("x")) * RESPONSE_ITEMS_MAX,
    "the provider's calls": tuple(
        HostedCallPart("web_search", call_id=f"{n}") for n in range(RESPONSE_ITEMS_MAX + 1)
    ),
    "data for the provider": (ReasoningPart("a", opaque=OPAQUE), TextPart("b")) * 2,
    "a citation": (TextPart("x"), CitationPart("https://example.org", "x" * RESPONSE_BYTES_MAX)),
}


@pytest.mark.parametrize("name", TOO_LONG)
async def test_a_response_that_is_too_long_is_discarded_and_the_session_goes_on(
    autojump_clock, start, name
):
    answer = ScriptStep(parts=(TextPart("good"),), repeat=True)
    world, session_id = await start(ScriptStep(parts=TOO_LONG[name]), answer)
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert ended.outcome == "failed"
    assert ended.error is not None
    assert ended.error.code == "response_too_long"
    assert len(ended.error.message) < 1_000
    events = await world.events(session_id)
    (raised,) = [event.body for event in events if isinstance(event.body, ErrorRaised)]
    assert not raised.fatal
    # No attempt was repeated, and every item that had started is complete, as discarded.
    assert len(world.model.requests) == 1
    assert not [e for e in events if e.body == StatusChanged("retry")]
    started = [e.body.item.id for e in events if isinstance(e.body, ItemStarted)]
    completed = [e.body.item for e in events if isinstance(e.body, ItemCompleted)]
    assert sorted(started) == sorted(item.id for item in completed)
    assert sum(isinstance(item, ToolCall) for item in completed) <= RESPONSE_ITEMS_MAX
    assert not world.usage.running
    for item in completed:
        if isinstance(item, ToolCall):
            assert item.discarded or item.by_provider
        elif isinstance(item, AssistantMessage | Reasoning):
            assert item.state == "discarded"
    assert max(len(encode_event(event)) for event in events) < MESSAGE_BYTES_MAX
    await world.say(session_id, "again")
    assert (await world.ended(session_id, 2)).last_message == "good"
    sent = world.model.requests[-1].items
    assert sum(len(item.text) for item in sent if hasattr(item, "text")) < 1_000


async def test_as_many_calls_as_the_limit_run(autojump_clock, start):
    done = ScriptStep(parts=(TextPart("done"),))
    many = tuple(CallPart("look", {"say": f"{n}"}) for n in range(RESPONSE_CALLS_MAX))
    world, session_id = await start(ScriptStep(parts=many), done)
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "completed"
    assert len(world.usage.spans) == RESPONSE_CALLS_MAX


async def test_an_answer_that_is_continued_twice_fits_into_a_message(autojump_clock, start):
    long = "\x01" * (RESPONSE_TEXT_BYTES_MAX // 6 - 100)
    cut = ScriptStep(parts=(TextPart(long),), finish="length")
    world, session_id = await start(cut, cut, ScriptStep(parts=(TextPart(long),)))
    world.context_window = 10**9
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert len(ended.last_message) == 3 * len(long)
    events = await world.events(session_id)
    assert max(len(encode_event(event)) for event in events) < MESSAGE_BYTES_MAX


async def test_a_summary_that_is_too_long_fails_the_compaction_only(autojump_clock, start):
    world, session_id = await start(ScriptStep(parts=(TextPart("good" * 50_000),), repeat=True))
    world.context_window = 10**9
    world.scripts["s"] = structs.replace(
        world.scripts["s"], compaction=ScriptStep(parts=(TextPart(LONG, pieces=50),))
    )
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.must(Compact(session_id))
    ended = await world.ended(session_id, 2)
    assert ended.error is not None
    assert ended.error.code == "compaction_failed"
    assert "bytes of text" in ended.error.message
