"""A late answer, also after a restart, gets a reply that says how the request ended (B40)."""

import pytest
import trio
import trio.testing

from support.memory_log import MemoryLog
from support.world import World
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import CANCELLED, OpenRequests, Reply
from tiller_daemon.store.projection import request_rows
from tiller_protocol.answers import Accepted, AnyAnswer, Rejected
from tiller_protocol.events import RequestOpened
from tiller_protocol.items import Request
from tiller_protocol.ops import Answer, Interrupt, SessionDelete
from tiller_protocol.snapshot import Snapshot

DONE = ScriptStep(parts=(TextPart("done"),), repeat=True)
GUARDED = ScriptStep(parts=(CallPart("guarded"),))


async def opened(world: World, session_id: str, number: int = 1) -> str:
    event = await world.until_body(session_id, RequestOpened, number)
    assert isinstance(event.body, RequestOpened)
    return event.body.request.id


async def told(world: World, request_id: str) -> tuple[str, str, str]:
    refused = await world.refused(Answer(request_id, "once"))
    return refused.code, refused.data["resolution"], refused.data["by"]


async def check_rows(world: World, session_id: str, request_id: str) -> None:
    """Check that the table of requests agrees with the events."""
    rows = {row.request_id: row for row in request_rows(await world.events(session_id))}
    assert await world.log.requests(request_id) == [rows[request_id]]


@pytest.mark.promise("B40")
async def test_of_answers_at_the_same_moment_one_wins_and_the_others_are_told_who(
    autojump_clock, start
):
    world, session_id = await start(GUARDED, DONE)
    await world.say(session_id, "go")
    request_id = await opened(world, session_id)
    answers = {}

    async def answer(client: str) -> None:
        answers[client] = await world.ask(Answer(request_id, "once"), client=client)

    async with trio.open_nursery() as nursery:
        for client in ("one", "two", "three"):
            nursery.start_soon(answer, client)
    (winner,) = [client for client, said in answers.items() if isinstance(said, Accepted)]
    losers = [said for said in answers.values() if isinstance(said, Rejected)]
    assert [said.code for said in losers] == ["already_resolved"] * 2
    assert [said.data for said in losers] == [{"resolution": "once", "by": winner}] * 2
    await world.ended(session_id)
    await check_rows(world, session_id, request_id)


@pytest.mark.promise("B40")
async def test_an_answer_after_a_kill_is_told_how_each_request_ended(
    autojump_clock, start, nursery
):
    world, session_id = await start(GUARDED, DONE)
    await world.say(session_id, "go")
    answered = await opened(world, session_id)
    await world.ask(Answer(answered, "once"), client="phone")
    await world.ended(session_id)
    world.scripts["again"] = world.scripts["s"]
    other_id = await world.session("again")
    await world.say(other_id, "go")
    left_open = await opened(world, other_id)
    await world.kill()
    await world.boot(nursery)
    assert world.supervisor.loaded == 1
    assert await told(world, answered) == ("already_resolved", "once", "phone")
    assert await told(world, left_open) == ("already_resolved", "cancelled", "")
    for session, request in ((session_id, answered), (other_id, left_open)):
        await check_rows(world, session, request)


@pytest.mark.promise("B40")
async def test_an_answer_beside_an_interrupt_wins_or_finds_the_request_cancelled(
    autojump_clock, start
):
    """Even when nobody waits for the answer any more, but the log does not say so yet."""
    world, _ = await start(GUARDED, DONE)
    for _ in range(20):
        session_id = await world.session()
        await world.say(session_id, "go")
        request_id = await opened(world, session_id)
        answers: list[AnyAnswer] = []

        async def answer(request_id: str = request_id, answers: list[AnyAnswer] = answers) -> None:
            answers.append(await world.ask(Answer(request_id, "once")))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(answer)
                nursery.start_soon(world.ask, Interrupt(session_id))
        await world.ended(session_id)
        late = [said for said in answers if isinstance(said, Rejected)]
        (row,) = await world.log.requests(request_id)
        assert len(late) == (2 if row.resolution == "once" else 3)
        assert all(said.code == "already_resolved" for said in late)
        assert all(said.data == {"resolution": row.resolution, "by": row.by} for said in late)
        await check_rows(world, session_id, request_id)


@pytest.mark.promise("B40")
async def test_a_request_whose_turn_is_ending_is_cancelled_before_the_log_says_so(
    autojump_clock, start
):
    """Commits are delayed; chance decides whether the first one contains the turn's end."""
    world, _ = await start(GUARDED, DONE)
    seen = 0
    for _ in range(30):
        session_id = await world.session()
        await world.say(session_id, "go")
        request_id = await opened(world, session_id)
        permits = trio.Semaphore(1)
        world.log.before_commit = permits.acquire
        await world.must(Interrupt(session_id))
        (row,) = await world.log.requests(request_id)
        seen += row.resolution == ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_is_cancelled, world, request_id)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(99):
                permits.release()
        await world.ended(session_id)
        await check_rows(world, session_id, request_id)
    assert seen


async def _is_cancelled(world: World, request_id: str) -> None:
    assert await told(world, request_id) == ("already_resolved", "cancelled", "")


@pytest.mark.promise("B40")
async def test_an_answer_right_behind_a_withdrawal_is_too_late():
    """Even before the waiting task has run."""
    outbox = Outbox(Snapshot("s"), MemoryLog(), lambda *_: None, lambda: 0.0)
    requests = OpenRequests(outbox)
    replies: list[Reply] = []

    async def ask() -> None:
        replies.append(
            await requests.ask(Request("r", "question", "Which?", "i"), "t", lambda: False)
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        requests.withdraw("i")
        with pytest.raises(RejectionError) as refused:
            requests.answer("r", Reply("answer", "this one", "late"), lambda _place, _rules: None)
    assert refused.value.code == "already_resolved"
    assert replies == [CANCELLED]


async def test_a_request_of_a_deleted_session_is_not_found(autojump_clock, start):
    world, session_id = await start(GUARDED, DONE)
    await world.say(session_id, "go")
    request_id = await opened(world, session_id)
    await world.must(Answer(request_id, "once"))
    await world.ended(session_id)
    await world.must(SessionDelete(session_id))
    assert (await world.refused(Answer(request_id, "once"))).code == "not_found"
    assert await world.log.requests(request_id) == []


async def test_a_log_that_fails_is_said_and_the_answer_can_be_sent_again(autojump_clock, start):
    world, session_id = await start(GUARDED, DONE)
    await world.say(session_id, "go")
    request_id = await opened(world, session_id)
    world.log.fail_next = "full"
    refused = await world.refused(Answer(request_id, "once"))
    assert refused.code == "unavailable"
    again = await world.refused(Answer(request_id, "once"))
    assert (again.code, again.data["resolution"]) == ("already_resolved", "cancelled")
    await world.ended(session_id)
