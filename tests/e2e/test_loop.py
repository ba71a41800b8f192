"""Loop and order: what one turn does with what its model says."""

from pathlib import Path

import trio

from e2e.words import bash, calls, calls_in, read, text
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_protocol.answers import AnyResult, Started, Steered
from tiller_protocol.events import ItemDelta
from tiller_protocol.items import Notice
from tiller_protocol.ops import UserInput
from tiller_protocol.settings import TurnOverrides


async def test_b1_text_and_stop_is_one_request_and_ends_the_turn(
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


async def test_b2_the_second_request_holds_the_call_and_its_result(
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


async def test_b3_a_call_that_ends_with_stop_is_run(frontend: Frontend, workspace: Path) -> None:
    """Finish reason `stop` with a tool call in it → it runs and a second request is made."""
    stopped = ScriptStep(parts=(TextPart("Let me look."), bash("echo looked")), finish="stop")
    session_id = await frontend.session(workspace, stopped, text("done"))
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).last_message == "done"
    _, second = frontend.requests(session_id)
    assert [call.output.strip() for call in calls_in(second.items)] == ["looked"]


async def test_b4_an_empty_response_ends_the_turn(frontend: Frontend, workspace: Path) -> None:
    """Empty assistant message → the turn ends; no endless loop."""
    session_id = await frontend.session(workspace, ScriptStep())
    await frontend.say(session_id)
    assert (await frontend.turn_ended(session_id)).outcome == "completed"
    assert len(frontend.requests(session_id)) == 1


async def test_b5_an_unknown_tool_gets_an_error_and_case_is_repaired(
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


async def test_b5_a_close_tool_is_offered_and_never_called_instead(
    frontend: Frontend, workspace: Path
) -> None:
    """A name with a slip, or another program's name for it → a question, and nothing runs."""
    slip = CallPart("bahs", arguments={"command": "touch ran"})
    longer = CallPart("read_file", arguments={"path": "greeting.txt"})
    session_id = await frontend.session(workspace, calls(slip, longer), text("done"))
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    first, second = calls_in(frontend.requests(session_id)[1].items)
    assert first.error_kind == second.error_kind == "invalid"
    assert "There is no tool 'bahs'. Did you mean `bash`? Tools: bash, edit," in first.output
    assert "Did you mean `read`?" in second.output
    assert not (workspace / "ran").exists()


async def test_b6_a_misspelt_argument_is_not_passed_over(
    frontend: Frontend, workspace: Path
) -> None:
    """An optional field with a slip, at any depth → an error that names it and the right one."""
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


async def test_b6_arguments_that_do_not_fit_name_the_field_and_run_nothing(
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


async def test_b7_a_response_that_was_cut_off_runs_no_call(
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


async def test_b8_the_last_step_gets_the_notice_and_no_tools(
    frontend: Frontend, workspace: Path
) -> None:
    """`max_steps = 2`, a model that always calls → `limit_reached` when it calls anyway."""
    always = ScriptStep(parts=(bash("echo again >> calls"),), repeat=True)
    session_id = await frontend.session(workspace, always)
    await frontend.say(session_id, overrides=TurnOverrides(max_steps=2))
    ended = await frontend.turn_ended(session_id)
    assert (ended.outcome, ended.steps) == ("limit_reached", 2)
    first, last = frontend.requests(session_id)
    assert first.tools
    assert not last.tools
    assert [i.code for i in last.items if isinstance(i, Notice)] == ["last_step"]
    assert (workspace / "calls").read_text() == "again\n"


async def test_b12_a_second_start_is_busy_and_two_autos_share_a_turn(
    frontend: Frontend, workspace: Path
) -> None:
    """A second `start` → `busy`; two callers at once with `auto` → one turn, one steers it."""
    session_id = await frontend.session(workspace, calls(bash("sleep 100")), text("done"))
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
