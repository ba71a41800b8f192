"""Recordings: what was said is played back exactly, and written for the owner alone."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from tiller_daemon.models.base import (
    Finished,
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
from tiller_daemon.models.recording import RecordingModel, load_recording
from tiller_daemon.models.scripted import ScriptedModel
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Usage, UserMessage

Outcomes = list[ModelEvent | ModelError]
"""What a model says: events, and a failure at most at the end."""


class FakeModel:
    """A model that says `plan[n]` to its request number n; without an end it hangs."""

    def __init__(self, *plan: Outcomes) -> None:
        self._plan = list(plan)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        outcomes = self._plan.pop(0)
        for one in outcomes:
            await trio.lowlevel.checkpoint()
            if isinstance(one, ModelError):
                raise one
            yield one
        if not (outcomes and isinstance(outcomes[-1], Finished)):
            await trio.sleep_forever()


def asked(ordinal: int = 0, attempt: int = 0, **fields: object) -> ModelRequest:
    said = (UserMessage(ItemId("u"), str(fields.pop("opening", "hello")), "start"),)
    return ModelRequest("S", "", said, (), "S", ordinal, attempt, **fields)  # pyright: ignore


async def collect(model: RecordingModel | ScriptedModel, request: ModelRequest) -> Outcomes:
    """What comes, until there is an end or nothing more."""
    seen: Outcomes = []

    async def read() -> None:
        try:
            async with aclosing(model.stream(request)) as events:
                async for event in events:
                    seen.append(event)
        except ModelError as error:
            seen.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return seen


def plain(outcomes: Outcomes) -> list[object]:
    """Errors can't be compared; their fields can."""
    return [vars(one) if isinstance(one, ModelError) else one for one in outcomes]


async def played_back(directory: Path, *plan: Outcomes) -> None:
    """Say the plan, one attempt each, and compare what the recording says."""
    model = RecordingModel(FakeModel(*plan), directory)
    requests = [asked(0, attempt) for attempt in range(len(plan))]
    first = [await collect(model, request) for request in requests]
    again = ScriptedModel(directory)
    assert [plain(await collect(again, one)) for one in requests] == [plain(one) for one in first]


@pytest.mark.parametrize(
    "outcomes",
    [
        [TextDelta("Hél"), TextDelta("lo"), TextDelta(""), Finished("stop")],
        [ReasoningDelta("hm"), ReasoningDelta("", "sealed"), TextDelta("x"), Finished("stop")],
        [
            ToolCallStarted(0, "call_x", "bash"),
            ToolCallDelta(0, '{"com'),
            ToolCallStarted(1, "call_y", "read"),
            ToolCallDelta(1, "no json"),
            ToolCallDelta(0, 'mand":"ls"}'),
            ToolCallDone(0),
            ToolCallDone(1),
            UsageReported(Usage(100, 40, 10, 3, 7)),
            Finished("tool_calls"),
        ],
        [UsageReported(Usage(1)), TextDelta("a"), UsageReported(Usage(2)), Finished("length")],
        [TextDelta("half"), ModelError("rate_limit", "slow", status=429, retry_after_s=1.5)],
        [ModelError("server", "no", final=True)],
        [TextDelta("and then nothing")],
        [],
    ],
)
async def test_what_was_said_is_said_again(tmp_path: Path, outcomes: Outcomes) -> None:
    await played_back(tmp_path, outcomes)


events = st.one_of(
    st.builds(TextDelta, st.text(max_size=5)),
    st.builds(ReasoningDelta, st.text(max_size=5), st.text(max_size=3)),
    st.builds(ToolCallStarted, st.integers(0, 3), st.text(max_size=5), st.text(max_size=5)),
    st.builds(ToolCallDelta, st.integers(0, 3), st.text(max_size=5)),
    st.builds(ToolCallDone, st.integers(0, 3)),
    st.builds(UsageReported, st.builds(Usage, *[st.integers(0, 2**40)] * 5)),
)
endings = st.just(Finished("stop")) | st.builds(
    ModelError, st.sampled_from(["server", "quota"]), st.text(max_size=9)
)


@settings(max_examples=60)
@given(plan=st.lists(st.tuples(st.lists(events, max_size=6), endings), min_size=1, max_size=4))
def test_whatever_was_said_is_said_again(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[Outcomes, ModelEvent | ModelError]]
) -> None:
    directory = tmp_path_factory.mktemp("r")
    responses = [[*events, ending] for events, ending in plan]
    trio.run(lambda: played_back(directory, *responses))


def line_of(directory: Path) -> str:
    (file,) = directory.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    return file.read_text(encoding="utf-8")


async def test_what_the_user_said_is_not_in_it(tmp_path: Path) -> None:
    model = RecordingModel(FakeModel([Finished("stop")]), tmp_path)
    await collect(model, asked(opening="my very own words"))
    assert "very own" not in line_of(tmp_path)


async def test_a_summary_is_told_from_another_of_the_same_turn_by_the_history(
    tmp_path: Path,
) -> None:
    plan = [[TextDelta(f"summary {n}"), Finished("stop")] for n in range(2)]
    model = RecordingModel(FakeModel(*plan), tmp_path)
    short = asked(purpose="compaction")
    long = asked(purpose="compaction")
    long = ModelRequest("S", "", (*long.items, *long.items), (), "S", 0, purpose="compaction")
    said = [await collect(model, one) for one in (short, long)]
    again = ScriptedModel(tmp_path)
    assert [await collect(again, one) for one in (long, short)] == said[::-1]


async def test_a_sub_agent_plays_the_recording_that_began_with_its_task(tmp_path: Path) -> None:
    for name, opening in (("PARENT", "fix it"), ("CHILD", "look at it")):
        outcomes = [TextDelta(name), Finished("stop")]
        model = RecordingModel(FakeModel(outcomes), tmp_path)
        request = asked(opening=opening)
        await collect(model, ModelRequest("S", "", request.items, (), name, 0))
    again = ScriptedModel(tmp_path)
    for opening, name in (("fix it", "PARENT"), ("look at it", "CHILD"), ("else", "PARENT")):
        items = asked(opening=opening).items
        said = await collect(again, ModelRequest("PARENT", "", items, (), "new", 0))
        assert said[0] == TextDelta(name)


async def test_a_session_that_goes_another_way_is_said(tmp_path: Path) -> None:
    model = RecordingModel(FakeModel([Finished("stop")]), tmp_path)
    await collect(model, asked())
    (said,) = await collect(ScriptedModel(tmp_path), asked(3, 1))
    assert isinstance(said, ModelError)
    assert "no line with `purpose` turn, `ordinal` 3 and `attempt` 1" in said.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}\n", "line 1"),
        (b"nonsense\n", "line 1"),
        (b'{"purpose":"turn","ordinal":0,"attempt":0,"items":1}\n\xff\n', "line 2"),
        (b'{"purpose":"turn","ordinal":0,"attempt":0,"items":1,"events":[{}]}\n', "event None"),
        (
            b'{"purpose":"turn","ordinal":0,"attempt":0,"items":1,"events":[{"type":"text"}]}\n',
            "invalid event `text`",
        ),
    ],
)
async def test_what_is_no_recording_is_said_with_its_place(
    tmp_path: Path, content: bytes, said: str
) -> None:
    await trio.Path(tmp_path / "S.jsonl").write_bytes(content)
    (error,) = await collect(ScriptedModel(tmp_path), asked())
    assert isinstance(error, ModelError)
    assert said in error.message


async def test_a_line_that_a_kill_cut_off_is_passed_over(tmp_path: Path) -> None:
    model = RecordingModel(FakeModel([TextDelta("x"), Finished("stop")]), tmp_path)
    await collect(model, asked())
    file = tmp_path / "S.jsonl"
    os.truncate(file, file.stat().st_size - 5)
    assert load_recording(file).opening == ""
    later = RecordingModel(FakeModel([TextDelta("y"), Finished("stop")]), tmp_path)
    said = await collect(later, asked(1))
    assert await collect(ScriptedModel(tmp_path), asked(1)) == said


async def test_a_directory_that_can_not_be_written_fails_no_turn(tmp_path: Path) -> None:
    await trio.Path(tmp_path / "file").write_bytes(b"")
    model = RecordingModel(FakeModel([TextDelta("x"), Finished("stop")]), tmp_path / "file")
    assert await collect(model, asked()) == [TextDelta("x"), Finished("stop")]
