"""The loop: what one turn does with its model's responses, and in which order."""

from pathlib import Path

import pytest
import trio

from e2e.words import always, bash, calls, calls_in, hang, read, text
from support.daemon import Daemon
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, Failure, ScriptStep, TextPart
from tiller_protocol.answers import AnyResult, SessionListResult, Started, Steered
from tiller_protocol.events import ItemDelta, RequestOpened, SessionTitled, WarningRaised
from tiller_protocol.items import Notice
from tiller_protocol.ops import Answer, SessionList, UserInput
from tiller_protocol.settings import TurnOverrides


@pytest.mark.promise("B1")
async def test_text_and_stop_is_one_request_and_ends_the_turn(
    frontend: Frontend, workspace: Path
) -> None:
    """Text, stop → `turn_started`, `step_started`, item, deltas, `step_ended`, `turn_ended`."""
    session_id = await frontend.session(workspace, text("hello there", 3))
    started = await frontend.say(session_id, "hi")
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.steps, ended.last_message) == ("completed", 1, "hello there")
    events = frontend.events(session_id)
    kinds = [type(e.body).__name__ for e in events if not isinstance(e.body, ItemDelta)]
    assert kinds == [
        "SessionCreated", "SessionTitled", "TurnStarted", "StatusChanged", "ItemStarted",
        "ItemCompleted", "StepStarted", "ItemStarted", "ItemCompleted", "StepEnded", "TurnEnded",
        "StatusChanged",
    ]  # fmt: skip
    deltas = [e.body.delta for e in events if isinstance(e.body, ItemDelta)]
    assert "".join(deltas) == "hello there"
    assert isinstance(started, Started)
    assert {e.turn_id for e in events} == {None, started.turn_id}
    assert len(frontend.requests(session_id)) == 1


@pytest.mark.promise("B2")
async def test_the_second_request_holds_the_call_and_its_result(
    frontend: Frontend, workspace: Path
) -> None:
    """A tool call, then text → request 2 holds the call and its result under the same id."""
    session_id = await frontend.session(
        workspace, calls(read("greeting.txt", "call-of-mine")), text("it says hello")
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    first, second = frontend.requests(session_id)
    assert calls_in(first.items) == []
    (call,) = calls_in(second.items)
    assert (call.call_id, call.state) == ("call-of-mine", "completed")
    assert "hello" in call.output


@pytest.mark.promise("B3")
async def test_a_call_that_ends_with_stop_is_run(frontend: Frontend, workspace: Path) -> None:
    """Finish reason `stop` with a tool call in it → it runs and a second request is made."""
    stopped = ScriptStep(parts=(TextPart("Let me look."), bash("echo looked")), finish="stop")
    session_id = await frontend.session(workspace, stopped, text("done"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).last_message == "done"
    _, second = frontend.requests(session_id)
    assert [call.output.strip() for call in calls_in(second.items)] == ["looked"]


@pytest.mark.promise("B4")
async def test_an_empty_response_is_asked_about_once_then_the_turn_fails(
    frontend: Frontend, workspace: Path
) -> None:
    """Empty assistant message → a notice and a second request; empty again → `failed`."""
    session_id = await frontend.session(
        workspace, ScriptStep(), text("oh"), ScriptStep(repeat=True)
    )
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message, ended.steps) == ("completed", "oh", 2)
    await frontend.say(session_id, "again")
    ended = await frontend.turn_ended(session_id, 2)
    assert ended.error is not None
    assert (ended.outcome, ended.error.code) == ("failed", "empty_response")
    assert len(frontend.requests(session_id)) == 4


@pytest.mark.promise("B5")
async def test_an_unknown_tool_gets_an_error_and_case_is_repaired(
    frontend: Frontend, workspace: Path
) -> None:
    """Unknown tool → an `invalid` call that lists the tools; `READ` is repaired to `read`."""
    shouted = CallPart("READ", arguments={"path": "greeting.txt"})
    session_id = await frontend.session(
        workspace, calls(CallPart("teleport", arguments={}), shouted), text("done")
    )
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    unknown, repaired = calls_in(frontend.requests(session_id)[1].items)
    assert unknown.error_kind == "invalid"
    assert "bash" in unknown.output
    assert "read" in unknown.output
    assert (repaired.name, repaired.state) == ("read", "completed")
    assert "hello" in repaired.output


@pytest.mark.promise("B5")
async def test_a_close_tool_is_offered_and_never_called_instead(
    frontend: Frontend, workspace: Path
) -> None:
    """A misspelt name, or another program's name for a tool → a suggestion, and nothing runs."""
    slip = CallPart("bahs", arguments={"command": "touch ran"})
    longer = CallPart("read_file", arguments={"path": "greeting.txt"})
    session_id = await frontend.session(workspace, calls(slip, longer), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    first, second = calls_in(frontend.requests(session_id)[1].items)
    assert first.error_kind == second.error_kind == "invalid"
    assert (
        "There is no tool 'bahs'. Did you mean `bash`? Tools: apply_patch, bash, bash_input,"
        in first.output
    )
    assert "Did you mean `read`?" in second.output
    assert not (workspace / "ran").exists()


@pytest.mark.promise("B6")
async def test_a_misspelt_argument_is_not_passed_over(frontend: Frontend, workspace: Path) -> None:
    """A misspelt optional field, at any depth → an error that names it and the right field."""
    slip = CallPart("bash", arguments={"command": "touch ran", "timout_s": 5})
    longer = CallPart("read", arguments={"file_path": "greeting.txt"})
    deep = CallPart("plan", arguments={"items": [{"text": "a", "sate": "pending"}]})
    session_id = await frontend.session(workspace, calls(slip, longer, deep), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    results = calls_in(frontend.requests(session_id)[1].items)
    assert [call.error_kind for call in results] == ["invalid"] * 3
    assert "unknown field `timout_s`. Did you mean `timeout_s`?" in results[0].output
    assert "unknown field `file_path`. Did you mean `path`?" in results[1].output
    assert "unknown field `sate` - at `$.items[0]`. Did you mean `state`?" in results[2].output
    assert not (workspace / "ran").exists()


@pytest.mark.promise("B6")
async def test_arguments_that_do_not_fit_name_the_field_and_run_nothing(
    frontend: Frontend, workspace: Path
) -> None:
    """Arguments that are no JSON, or of the wrong type → an error result, the tool does not run."""
    broken = CallPart("bash", arguments_text='{"command": "touch broken')
    wrong = CallPart("bash", arguments={"command": "touch wrong", "timeout_s": "soon"})
    missing = CallPart("bash", arguments={"timeout_s": 5})
    session_id = await frontend.session(workspace, calls(broken, wrong, missing), text("done"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    results = calls_in(frontend.requests(session_id)[1].items)
    assert [call.error_kind for call in results] == ["invalid"] * 3
    assert "timeout_s" in results[1].output
    assert "command" in results[2].output
    assert not (workspace / "wrong").exists()


@pytest.mark.promise("B7")
async def test_a_response_that_was_cut_off_runs_no_call(
    frontend: Frontend, workspace: Path
) -> None:
    """Finish reason `length` with calls → each call gets an error result, none runs."""
    cut = ScriptStep(parts=(bash("touch one"), bash("touch two")), finish="length")
    session_id = await frontend.session(workspace, cut, text("done"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    results = calls_in(frontend.requests(session_id)[1].items)
    assert [call.state for call in results] == ["error", "error"]
    assert not (workspace / "one").exists()
    assert not (workspace / "two").exists()


@pytest.mark.promise("B7")
async def test_an_answer_that_was_cut_off_is_continued_twice_at_most(
    frontend: Frontend, workspace: Path
) -> None:
    """Finish reason `length` without calls → up to two more requests; then `limit_reached`."""
    cut = [ScriptStep(parts=(TextPart(piece),), finish="length") for piece in ("a", "b", "c")]
    session_id = await frontend.session(workspace, cut[0], text("nd so on"), *cut)
    await frontend.say(session_id)
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.last_message) == ("completed", "and so on")
    await frontend.say(session_id, "again")
    ended = await frontend.turn_ended(session_id, 2)
    assert ended.error is not None
    assert (ended.outcome, ended.error.code) == ("limit_reached", "cut_off")
    assert ended.last_message == "abc"


@pytest.mark.promise("B8")
async def test_the_last_step_gets_the_notice_and_no_tools(
    frontend: Frontend, workspace: Path
) -> None:
    """`max_steps = 2`, a model that always calls → `limit_reached` when it calls anyway."""
    calling = ScriptStep(parts=(bash("echo again >> calls"),), repeat=True)
    session_id = await frontend.session(workspace, calling)
    await frontend.say(session_id, overrides=TurnOverrides(max_steps=2))
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 2)
    first, last = frontend.requests(session_id)
    assert first.tools
    assert not last.tools
    assert [i.code for i in last.items if isinstance(i, Notice)] == ["last_step"]
    assert (workspace / "calls").read_text() == "again\n"


@pytest.mark.promise("B9")
async def test_the_third_same_call_in_a_row_asks_and_a_no_ends_the_turn(
    frontend: Frontend, workspace: Path
) -> None:
    """Same tool and arguments three times in a row → a `doom_loop` request; reject → `blocked`.

    With a reason, the model gets it and the turn goes on; the next such call asks again.
    """
    session_id = await frontend.session(
        workspace, *[calls(read("greeting.txt"))] * 4, text("I see"), approve="ask"
    )
    await frontend.say(session_id)
    request = await frontend.request_opened(session_id)
    assert (request.kind, len(frontend.completed_calls(session_id))) == ("doom_loop", 2)
    await frontend.must(Answer(request.id, "reject", "it stays the same"))
    again = await frontend.request_opened(session_id, 2)
    assert again.kind == "doom_loop"
    await frontend.must(Answer(again.id, "reject"))
    assert (await frontend.turn_ended(session_id)).outcome == "blocked"
    await frontend.say(session_id, "go on")
    assert (await frontend.turn_ended(session_id, 2)).outcome == "completed"
    one, two, third, fourth = calls_in(frontend.requests(session_id)[-1].items)
    kinds = [call.error_kind for call in (one, two, third, fourth)]
    assert kinds == [None, None, "denied", "denied"]
    assert third.output == "rejected by the user: it stays the same"


@pytest.mark.promise("B9")
async def test_always_is_asked_no_more_in_this_session(frontend: Frontend, workspace: Path) -> None:
    """`always` → no further question in this session, but another session does ask."""
    same = calls(read("greeting.txt"))
    steps = (*[same] * 7, text("one"), *[same] * 4, text("two"))
    session_id = await frontend.session(workspace, *steps, approve="ask")
    await frontend.say(session_id)
    await frontend.must(Answer((await frontend.request_opened(session_id)).id, "always"))
    assert (await frontend.turn_ended(session_id)).last_message == "one"
    await frontend.say(session_id, "again")
    assert (await frontend.turn_ended(session_id, 2)).last_message == "two"
    opened = [e for e in frontend.events(session_id) if isinstance(e.body, RequestOpened)]
    assert len(opened) == 1
    other_id = await frontend.session(workspace, *steps, approve="ask")
    await frontend.say(other_id)
    assert (await frontend.request_opened(other_id)).kind == "doom_loop"


SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
}


@pytest.mark.promise("B10")
async def test_an_answer_by_a_schema_validates_or_fails_after_one_repair(
    frontend: Frontend, workspace: Path
) -> None:
    """A turn with an output schema → the final message validates, or the turn fails, typed."""
    right, wrong = text('{"answer": 42}'), text('{"answer": "42"}')
    session_id = await frontend.session(workspace, right, wrong, right, wrong, wrong, text("fine"))
    by_schema = TurnOverrides(output_schema=SCHEMA)
    for number, steps in ((1, 1), (2, 2)):
        await frontend.say(session_id, overrides=by_schema)
        ended = await frontend.turn_ended(session_id, number)
        assert (ended.outcome, ended.steps) == ("completed", steps)
        assert ended.last_message == '{"answer": 42}'
    repair = frontend.requests(session_id)[2].items[-1]
    assert isinstance(repair, Notice)
    assert "$.answer" in repair.text
    await frontend.say(session_id, overrides=by_schema)
    failed = await frontend.turn_ended(session_id, 3)
    assert failed.error is not None
    assert (failed.outcome, failed.steps, failed.error.code) == ("failed", 2, "output_schema")
    assert "$.answer" in failed.error.message
    await frontend.say(session_id, "and now without")
    assert (await frontend.turn_ended(session_id, 4)).last_message == "fine"


@pytest.mark.promise("B11")
async def test_the_first_turn_gets_a_title_by_a_side_request(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """First turn → a title by a side request, for every list; later turns have none."""
    model = daemon.script(always("done"), title=text("Greet the world"))
    session_id = await frontend.session(workspace, model=model)
    for number in (1, 2):
        await frontend.say(session_id, "say hello")
        await frontend.turn_ended(session_id, number)
        await frontend.until_body(session_id, SessionTitled, 2)
    titles = [e.body for e in frontend.events(session_id) if isinstance(e.body, SessionTitled)]
    assert [body.title for body in titles] == ["say hello", "Greet the world"]
    purposes = [request.purpose for request in daemon.asked(session_id)]
    assert sorted(purposes) == ["title", "turn", "turn"]
    listed = await frontend.must(SessionList(str(workspace)))
    assert isinstance(listed, SessionListResult)
    assert listed.sessions[0].title == "Greet the world"


TITLES = {
    "failing": ScriptStep(failures=(Failure("server"),)),
    "empty": ScriptStep(),
    "hanging": hang("half a ti"),
}


@pytest.mark.parametrize("kind", TITLES)
@pytest.mark.promise("B11")
async def test_a_title_that_fails_or_hangs_changes_nothing_else(
    frontend: Frontend, workspace: Path, daemon: Daemon, kind: str
) -> None:
    """The title model failing or hanging → the events are those without one, and a warning."""
    steps = (calls(bash("echo x")), text("done"))
    session_id = await frontend.session(workspace, model=daemon.script(*steps, title=TITLES[kind]))
    other_id = await frontend.session(workspace, *steps)
    for one in (session_id, other_id):
        await frontend.say(one)
        assert (await frontend.turn_ended(one)).outcome == "completed"
    assert [r.purpose for r in daemon.asked(session_id)].count("title") == 1
    kinds = [
        [
            type(e.body).__name__
            for e in frontend.events(one)
            if not isinstance(e.body, ItemDelta | WarningRaised)
        ]
        for one in (session_id, other_id)
    ]
    assert kinds[0] == kinds[1]
    assert (await frontend.snapshot(session_id)).title == "go"


@pytest.mark.promise("B12")
async def test_a_second_start_is_busy_and_two_autos_share_a_turn(
    frontend: Frontend, workspace: Path
) -> None:
    """A second `start` → `busy`; two callers at once with `auto` → one turn, one steers it."""
    # Steering skips the first call if it has not begun, but not the second call.
    steps = (calls(bash("sleep 100")), calls(bash("sleep 100")), text("done"))
    session_id = await frontend.session(workspace, *steps)
    results: list[AnyResult | None] = []

    async def send(words: str) -> None:
        results.append(await frontend.say(session_id, words))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, "one")
        nursery.start_soon(send, "two")
    assert {type(result) for result in results} == {Started, Steered}
    (turn_id,) = {result.turn_id for result in results if isinstance(result, Started | Steered)}
    busy = await frontend.refused(UserInput(session_id, "three", delivery="start"))
    assert (busy.code, busy.data["turn_id"]) == ("busy", turn_id)
