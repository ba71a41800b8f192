"""The scripted model: what it answers depends on ordinal, attempt and purpose alone."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from support.scripts import ModelInMemory
from tiller_daemon.models.base import (
    Finished,
    ModelClient,
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
from tiller_daemon.models.scripted import Part, Script, ScriptedModel, ScriptStep, load_script
from tiller_protocol.ids import CallId, ItemId
from tiller_protocol.items import AssistantMessage, Item, ToolCall, Usage, UserMessage

HELLO = UserMessage(ItemId("u1"), "hello", "start")


def request(
    ordinal: int = 0,
    *,
    items: Sequence[Item] = (HELLO,),
    attempt: int = 0,
    purpose: Literal["turn", "title", "compaction"] = "turn",
    model: str = "play",
) -> ModelRequest:
    return ModelRequest(model, "", tuple(items), (), "s", ordinal, attempt, purpose)


def model(*steps: dict[str, Any], **side: Any) -> ModelInMemory:
    return ModelInMemory(lambda _: msgspec.convert({"steps": list(steps), **side}, Script))


async def collect(
    client: ModelClient, sent: ModelRequest, seen: list[ModelEvent]
) -> list[ModelEvent]:
    async with aclosing(client.stream(sent)) as events:
        async for event in events:
            seen.append(event)  # noqa: PERF401
    return seen


async def answer(client: ModelClient, sent: ModelRequest) -> list[ModelEvent]:
    return await collect(client, sent, [])


async def test_every_kind_of_part_becomes_its_events() -> None:
    step = {
        "parts": [
            {"type": "reasoning", "text": "hm", "opaque": "sig"},
            {"type": "text", "text": "one two", "pieces": 2},
            {"type": "tool_call", "name": "ls", "arguments": {"path": "."}},
            {"type": "tool_call", "name": "bad", "arguments_text": "{no", "call_id": "mine"},
        ],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    assert await answer(model({}, {}, step), request(2)) == [
        ReasoningDelta("hm", "sig"),
        TextDelta("one "),
        TextDelta("two"),
        ToolCallStarted(0, "call_2_0", "ls"),
        ToolCallDelta(0, '{"path":"."}'),
        ToolCallDone(0),
        ToolCallStarted(1, "mine", "bad"),
        ToolCallDelta(1, "{no"),
        ToolCallDone(1),
        UsageReported(Usage(7, 0, 3)),
        Finished("tool_calls"),
    ]


@given(text=st.text(), pieces=st.integers(1, 40))
def test_pieces_join_to_the_text_and_are_never_more_than_asked(text: str, pieces: int) -> None:
    play = model({"parts": [{"type": "text", "text": text, "pieces": pieces}]})
    *deltas, finished = trio.run(answer, play, request())
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text
    assert 1 <= len(deltas) <= pieces
    assert finished == Finished("stop")


async def test_the_same_request_gets_the_same_answer_in_any_order() -> None:
    play = model(*({"parts": [{"type": "text", "text": str(n)}]} for n in range(3)))
    for ordinal in (2, 0, 1, 1):
        assert await answer(play, request(ordinal)) == [TextDelta(str(ordinal)), Finished("stop")]


async def test_the_first_attempts_fail_as_written_after_so_many_parts() -> None:
    play = model(
        {
            "parts": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "failures": [
                {"kind": "rate_limit", "status": 429, "retry_after_s": 2, "message": "slow"},
                {"kind": "broken_stream", "after_parts": 1},
            ],
        }
    )
    seen: list[ModelEvent] = []
    with pytest.raises(ModelError, match="slow") as first:
        await answer(play, request())
    assert (first.value.kind, first.value.status) == ("rate_limit", 429)
    assert first.value.retry_after_s == 2
    with pytest.raises(ModelError) as second:
        await collect(play, request(attempt=1), seen)
    assert second.value.kind == "broken_stream"
    assert seen == [TextDelta("a")]
    assert await answer(play, request(attempt=2)) == [
        TextDelta("a"),
        TextDelta("b"),
        Finished("stop"),
    ]


async def test_a_script_that_is_over_says_so() -> None:
    with pytest.raises(ModelError, match=r"has ended: it has no `steps\[1\]`") as caught:
        await answer(model({}), request(1))
    assert caught.value.kind == "bad_request"


async def test_a_repeated_last_step_never_ends() -> None:
    play = model({}, {"parts": [{"type": "text", "text": "again"}], "repeat": True})
    assert await answer(play, request(1000)) == [TextDelta("again"), Finished("stop")]


async def test_what_fails_is_told_by_its_place_in_the_script() -> None:
    fails = {"failures": [{"kind": "server"}], "expect": {"contains": "h"}, "repeat": True}
    play = model({}, fails)
    with pytest.raises(ModelError, match=r"`server` in `steps\[1\]\.failures\[0\]`"):
        await answer(play, request(1000))
    with pytest.raises(ModelError, match=r"`steps\[1\]\.expect` requires input"):
        await answer(play, request(1000, items=()))
    play = model(compaction={"failures": [{"kind": "server"}]})
    with pytest.raises(ModelError, match=r"`compaction\.failures\[0\]`"):
        await answer(play, request(1000, purpose="compaction"))


async def test_side_requests_have_their_own_steps() -> None:
    play = model({}, title={"parts": [{"type": "text", "text": "A title"}]})
    assert await answer(play, request(9, purpose="title")) == [
        TextDelta("A title"),
        Finished("stop"),
    ]
    with pytest.raises(ModelError, match="no `compaction` step"):
        await answer(play, request(purpose="compaction"))


async def test_an_expectation_looks_at_what_came_after_the_models_last_words() -> None:
    play = model({"expect": {"contains": "2 passed"}, "parts": []})
    call = ToolCall(ItemId("c"), CallId("c"), "bash", "{}", "completed", output="== 2 passed ==")
    problem = AssistantMessage(ItemId("a"), "Now what?", "completed")
    assert await answer(play, request(items=(HELLO, call))) == [Finished("stop")]
    with pytest.raises(ModelError, match=r"contains '2 passed', but got 'hello'") as caught:
        await answer(play, request(items=(call, problem, HELLO)))
    assert caught.value.kind == "bad_request"


def test_a_wait_lasts_as_long_as_written_on_trios_clock() -> None:
    play = model({"parts": [{"type": "wait", "seconds": 90}, {"type": "text", "text": "late"}]})

    async def timed() -> float:
        start = trio.current_time()
        await answer(play, request())
        return trio.current_time() - start

    assert trio.run(timed, clock=MockClock(autojump_threshold=0)) == pytest.approx(90)


async def test_a_hanging_answer_ends_when_it_is_cancelled(autojump_clock: MockClock) -> None:
    del autojump_clock
    play = model({"parts": [{"type": "text", "text": "a"}, {"type": "hang"}]})
    with trio.move_on_after(3600) as scope:
        await answer(play, request())
    assert scope.cancelled_caught


async def test_requests_are_recorded_one_json_line_each(tmp_path: Path) -> None:
    record = tmp_path / "requests.jsonl"
    (tmp_path / "play.json").write_text('{"steps": []}')
    play = ScriptedModel(tmp_path, record)
    for ordinal in (0, 1):
        with pytest.raises(ModelError):
            await answer(play, request(ordinal))
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["ordinal"] for line in lines] == [0, 1]
    assert lines[0]["items"][0]["text"] == "hello"


async def test_a_models_name_is_the_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "play.json").write_text('{"steps": [{"parts": [{"type": "text", "text": "x"}]}]}')
    play = ScriptedModel(tmp_path)
    assert await answer(play, request()) == [TextDelta("x"), Finished("stop")]
    with pytest.raises(ModelError, match=r"absent\.json can't be read"):
        await answer(play, request(model="absent"))
    with pytest.raises(ModelError, match="not a valid script name"):
        await answer(play, request(model="../play"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"steps": [{"part": []}]}', r"unknown field `part` - at `\$\.steps\[0\]`"),
        ('{"steps": [{"parts": [{"type": "say"}]}]}', r"\$\.steps\[0\]\.parts\[0\]\.type"),
        ('{"steps": [{"failures": [{"kind": "x"}]}]}', r"failures\[0\]\.kind"),
        ('{"steps": [{"usage": {"tokens": 1}}]}', r"unknown field `tokens`"),
        ('{"steps": [{"repeat": true}, {}]}', "only the last step can `repeat`"),
        (
            '{"steps": [{"parts": [{"type": "tool_call", "name": "a", "arguments": {},'
            ' "arguments_text": ""}]}]}',
            "not both",
        ),
        ("{", "truncated"),
        ("[" * 100_000, "wrong"),
    ],
)
def test_a_wrong_script_is_refused_by_file_and_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=problem) as caught:
        load_script(path)
    assert str(path) in caught.value.message


def test_the_script_in_the_manual_is_one() -> None:
    manual = Path(__file__, "../../../docs/scripted-model.md").resolve().read_text()
    example = manual.partition("```json\n")[2].partition("```")[0]
    script = msgspec.json.decode(example, type=Script)
    assert len(script.steps) == 2
    kinds = {tag.__struct_config__.tag for tag in get_args(Part)}
    assert all(f"| `{kind}` |" in manual for kind in kinds)
    fields = {field for struct in (Script, ScriptStep) for field in struct.__struct_fields__}
    assert all(f"| `{field}` |" in manual for field in fields)
