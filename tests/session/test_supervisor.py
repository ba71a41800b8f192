"""The supervisor loads, unloads, lists and deletes sessions; a broken one harms no other."""

import msgspec
import pytest
import trio

from support.world import World
from tiller_daemon.models.scripted import CallPart, Failure, Script, ScriptStep, TextPart, WaitPart
from tiller_daemon.session.actor import SUBMISSIONS_WAITING_MAX
from tiller_daemon.session.inputs.input_queue import QUEUED_INPUTS_MAX
from tiller_daemon.session.loaded_sessions import UNLOAD_AFTER_S, UNLOAD_CHECK_S
from tiller_protocol.answers import Accepted, Queued, Rejected, SessionListResult, SessionResult
from tiller_protocol.events import SessionArchived, SessionConfigured, StepStarted
from tiller_protocol.items import ToolCall
from tiller_protocol.ops import (
    Interrupt,
    Replay,
    SessionArchive,
    SessionConfigure,
    SessionCreate,
    SessionDelete,
    SessionGet,
    SessionList,
    UserInput,
)
from tiller_protocol.settings import Settings

SLOW = ScriptStep(parts=(TextPart("a"), WaitPart(50), TextPart("b")))
QUICK = ScriptStep(parts=(TextPart("done"),))


async def snapshot(world: World, session_id: str):
    result = await world.must(SessionGet(session_id))
    assert isinstance(result, SessionResult)
    return result.snapshot


async def test_an_idle_session_is_unloaded_and_the_next_op_loads_it(autojump_clock, start):
    world, session_id = await start(QUICK, QUICK)
    await world.say(session_id, "hi")
    await world.ended(session_id)
    before = await snapshot(world, session_id)
    await trio.sleep(UNLOAD_AFTER_S + 2 * UNLOAD_CHECK_S)
    assert world.supervisor.loaded == 0
    assert await snapshot(world, session_id) == before
    await world.say(session_id, "again")
    assert (await world.ended(session_id, 2)).last_message == "done"


async def test_a_session_at_work_is_not_unloaded(autojump_clock, start):
    long = ScriptStep(parts=(TextPart("a"), WaitPart(2 * UNLOAD_AFTER_S), TextPart("b")))
    world, session_id = await start(long)
    await world.say(session_id, "hi")
    await trio.sleep(UNLOAD_AFTER_S + 2 * UNLOAD_CHECK_S)
    assert world.supervisor.loaded == 1
    assert (await world.ended(session_id)).outcome == "completed"


async def test_a_failed_commit_rejects_the_op_and_the_session_goes_on_later(autojump_clock, start):
    world, session_id = await start(QUICK, QUICK)
    other = await world.session()
    world.log.fail_next = "full"
    failed = await world.refused(UserInput(session_id, "hi"))
    assert failed.code == "unavailable"
    assert world.supervisor.loaded == 1
    await world.say(other, "hi")
    await world.ended(other)
    world.published.pop(session_id, None)
    await world.say(session_id, "hi")
    ended = await world.ended(session_id)
    assert ended.outcome == "completed"
    world.published.pop(session_id)


async def test_a_commit_that_fails_in_mid_turn_leaves_nothing_busy(autojump_clock, start):
    world, session_id = await start(SLOW, QUICK)
    await world.say(session_id, "hi")
    await world.until_body(session_id, StepStarted)
    await trio.sleep(1)
    world.log.fail_next = "io"
    assert (await world.refused(Interrupt(session_id))).code == "unavailable"
    assert world.supervisor.turns_running == 0
    closed = await snapshot(world, session_id)
    assert closed.turn is None
    assert closed.status == "idle"
    await world.say(session_id, "again")
    assert (await world.ended(session_id, 2)).outcome == "completed"


async def test_a_defect_while_a_session_is_made_is_an_answer_and_no_endless_wait(
    autojump_clock, start
):
    world, session_id = await start(QUICK)

    async def defect() -> None:
        raise ZeroDivisionError

    passing, world.log.before_commit = world.log.before_commit, defect
    with trio.fail_after(10):
        made = await world.refused(SessionCreate("/"))
    world.log.before_commit = passing
    assert made.code == "unavailable"
    await world.say(session_id, "hi")
    assert (await world.ended(session_id)).outcome == "completed"


async def test_too_many_submissions_at_once_are_overloaded_and_handed_back(autojump_clock, start):
    world, session_id = await start(SLOW, *[QUICK] * 3)
    await world.say(session_id, "hi")
    answers: list[Accepted | Rejected] = []

    async def send(number: int) -> None:
        answers.append(await world.ask(UserInput(session_id, f"{number}", delivery="queue")))

    async with trio.open_nursery() as nursery:
        for number in range(4 * SUBMISSIONS_WAITING_MAX):
            nursery.start_soon(send, number)
    refused = [answer for answer in answers if isinstance(answer, Rejected)]
    assert refused
    assert {answer.code for answer in refused} == {"overloaded"}
    assert all(answer.data["input"]["text"] for answer in refused)
    queue = (await snapshot(world, session_id)).queue
    assert len(queue) == len(answers) - len(refused) <= QUEUED_INPUTS_MAX
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    assert (await snapshot(world, session_id)).queue == queue


async def test_settings_are_merged_checked_and_said(autojump_clock, start):
    world, session_id = await start(QUICK)
    await world.must(SessionConfigure(session_id, Settings(max_steps=7)))
    await world.must(SessionConfigure(session_id, Settings(approve="never")))
    event = await world.until_body(session_id, SessionConfigured, 2)
    assert event.body.settings == Settings(max_steps=7, approve="never")
    for bad in (Settings(model="no/such"), Settings(agent="nobody")):
        refused = await world.refused(SessionConfigure(session_id, bad))
        assert refused.code == "invalid_settings"


async def test_a_workspace_must_be_a_directory_that_can_be_read(autojump_clock, start, tmp_path):
    world, _ = await start(QUICK)
    file = tmp_path / "file"
    file.write_text("")
    for workspace in ("relative", str(tmp_path / "missing"), str(file)):
        refused = await world.refused(SessionCreate(workspace))
        assert refused.code == "invalid_settings"
        assert workspace in refused.message


async def test_lists_come_in_pages_and_archived_sessions_apart(autojump_clock, start):
    world, session_id = await start(QUICK)
    others = [await world.session() for _ in range(4)]
    found: list[str] = []
    after = None
    while True:
        page = await world.must(SessionList(limit=2, after=after))
        assert isinstance(page, SessionListResult)
        found += [summary.session_id for summary in page.sessions]
        if (after := page.next) is None:
            break
    assert sorted(found) == sorted([session_id, *others])
    await world.must(SessionArchive(session_id))
    await world.until_body(session_id, SessionArchived)
    archived = await world.must(SessionList(archived=True))
    assert [s.session_id for s in archived.sessions] == [session_id]


async def test_after_a_restart_a_list_tells_how_the_last_turns_ended_and_loads_no_session(
    autojump_clock, start, nursery
):
    world, good = await start(QUICK)
    bad = await world.session()
    world.scripts["s"] = Script((QUICK,))
    await world.say(good, "go")
    await world.ended(good)
    world.scripts["s"] = Script((ScriptStep(failures=(Failure("bad_request"),)),))
    await world.say(bad, "go")
    await world.ended(bad)
    await world.kill()
    await world.boot(nursery)
    listed = await world.must(SessionList())
    assert isinstance(listed, SessionListResult)
    outcomes = {one.session_id: (one.status, one.last_outcome) for one in listed.sessions}
    assert outcomes == {good: ("idle", "completed"), bad: ("idle", "failed")}
    assert b'"status":"idle"' in msgspec.json.encode(listed)


async def test_a_deleted_session_is_gone_and_one_at_work_is_busy(autojump_clock, start):
    world, session_id = await start(SLOW)
    await world.say(session_id, "hi")
    assert (await world.refused(SessionDelete(session_id))).code == "busy"
    assert (await world.refused(SessionArchive(session_id))).code == "busy"
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    await world.must(SessionDelete(session_id))
    assert (await world.refused(SessionGet(session_id))).code == "not_found"
    assert (await world.refused(Replay(session_id))).code == "not_found"


async def test_queued_input_runs_after_an_interrupt_in_the_order_it_came(autojump_clock, start):
    world, session_id = await start(SLOW, QUICK, QUICK, QUICK)
    await world.say(session_id, "first")
    queued = [await world.say(session_id, f"later {n}", delivery="queue") for n in range(2)]
    assert all(isinstance(answer, Queued) for answer in queued)
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    last = await world.say(session_id, "last", delivery="queue")
    assert isinstance(last, Queued)
    await world.ended(session_id, 2)
    said = [i.text for i in world.model.requests[-1].items if hasattr(i, "delivery")]
    assert said == ["first", "later 0", "later 1", "last"]


async def test_a_kill_in_a_call_leaves_it_lost_and_it_never_runs_again(
    autojump_clock, start, nursery
):
    world, session_id = await start(
        ScriptStep(parts=(CallPart("change", arguments={"seconds": 50}),)), QUICK
    )
    await world.say(session_id, "go")
    await world.until(session_id, lambda e: getattr(e.body, "state", "") == "running")
    await world.kill()
    world.usage.running.clear()
    await world.boot(nursery)
    closed = await snapshot(world, session_id)
    call = next(item for item in closed.items if isinstance(item, ToolCall))
    assert call.error_kind == "lost"
    world.scripts["s"] = Script((QUICK, QUICK))
    await world.say(session_id, "again")
    assert (await world.ended(session_id, 2)).outcome == "completed"
    assert len(world.usage.begun) == 1


@pytest.mark.promise("G3")
async def test_a_rejected_submission_stays_rejected_though_its_reason_is_gone(
    autojump_clock, start, nursery, tmp_path
):
    """Here the supervisor rejects the submission before it reaches a session's loop."""
    world, _ = await start(QUICK)
    op, submission_id = SessionCreate(str(tmp_path / "later")), world.new_id()
    refused = await world.ask(op, submission_id)
    assert isinstance(refused, Rejected)
    (tmp_path / "later").mkdir()
    assert await world.ask(op, submission_id) == refused
    await world.kill()
    await world.boot(nursery)
    assert await world.ask(op, submission_id) == refused
    assert isinstance(await world.ask(op), Accepted)
