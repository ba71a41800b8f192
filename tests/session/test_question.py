"""The tool `question` through the whole core: asked, answered, refused, cancelled, unattended."""

import trio
from msgspec import structs

from support.world import World
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_protocol.events import RequestOpened, RequestResolved
from tiller_protocol.items import Request, ToolCall
from tiller_protocol.ops import Answer, Interrupt, SessionGet
from tiller_protocol.settings import Rule

DONE = ScriptStep(parts=(TextPart("done"),))


def question(text: str, *choices: str) -> CallPart:
    return CallPart("question", arguments={"text": text, "choices": choices})


def ask(*parts: CallPart) -> ScriptStep:
    return ScriptStep(parts=parts)


async def opened(world: World, session_id: str, count: int = 1) -> list[Request]:
    """Wait until `count` requests were opened, and return them."""
    await world.until_body(session_id, RequestOpened, count)
    bodies = [e.body for e in world.published[session_id]]
    return [body.request for body in bodies if isinstance(body, RequestOpened)]


def results(world: World) -> list[str]:
    """Return the results of calls in the last model request."""
    return [i.output for i in world.model.requests[-1].items if isinstance(i, ToolCall)]


async def test_the_answer_is_the_result_and_the_request_shows_the_choices(autojump_clock, start):
    world, session_id = await start(ask(question("Tabs\nor blanks?", "tabs", "blanks")), DONE)
    await world.say(session_id, "go")
    (request,) = await opened(world, session_id)
    assert (request.kind, request.title) == ("question", "Tabs or blanks?")
    assert (request.detail, request.choices) == ("Tabs\nor blanks?", ("tabs", "blanks"))
    assert (await world.must(SessionGet(session_id))).snapshot.status == "waiting"
    assert (await world.refused(Answer(request.id, "once"))).code == "bad_message"
    await world.must(Answer(request.id, "answer", "four blanks"))
    assert (await world.ended(session_id)).outcome == "completed"
    assert results(world) == ["four blanks"]


async def test_questions_of_one_response_are_open_at_once_and_answered_in_any_order(
    autojump_clock, start
):
    world, session_id = await start(ask(question("one?"), question("two?")), DONE)
    await world.say(session_id, "go")
    requests = {request.title: request.id for request in await opened(world, session_id, 2)}
    await world.must(Answer(requests["two?"], "answer", "2"))
    await world.must(Answer(requests["one?"], "answer", "1"))
    await world.ended(session_id)
    assert results(world) == ["1", "2"]


async def test_a_question_that_is_rejected_ends_neither_the_turn_nor_other_questions(
    autojump_clock, start
):
    world, session_id = await start(ask(question("one?"), question("two?")), DONE)
    await world.say(session_id, "go")
    requests = {request.title: request.id for request in await opened(world, session_id, 2)}
    await world.must(Answer(requests["one?"], "reject", "not now"))
    await world.must(Answer(requests["two?"], "answer", "yes"))
    assert (await world.ended(session_id)).outcome == "completed"
    assert results(world) == ["The user did not answer. They said: not now", "yes"]


async def test_headless_nobody_is_asked_and_the_model_is_told(autojump_clock, start):
    world, _ = await start(ask(question("one?")), DONE)
    session_id = await world.session(approve="never")
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "completed"
    assert not [e for e in world.published[session_id] if isinstance(e.body, RequestOpened)]
    assert results(world)[0].startswith("Nobody can answer")


async def test_an_interrupt_cancels_a_question(autojump_clock, start):
    world, session_id = await start(ask(question("one?")), DONE)
    await world.say(session_id, "go")
    (request,) = await opened(world, session_id)
    await world.must(Interrupt(session_id))
    assert (await world.ended(session_id)).outcome == "interrupted"
    resolved = [e.body for e in world.published[session_id] if isinstance(e.body, RequestResolved)]
    assert resolved == [RequestResolved(request.id, "cancelled")]
    assert (await world.refused(Answer(request.id, "answer", "late"))).code == "already_resolved"


async def test_a_question_waits_as_long_as_it_takes(autojump_clock, start):
    world, session_id = await start(ask(question("one?")), DONE)
    await world.say(session_id, "go")
    (request,) = await opened(world, session_id)
    await trio.sleep(3 * 24 * 3600)
    await world.must(Answer(request.id, "answer", "at last"))
    await world.ended(session_id)
    assert results(world) == ["at last"]


async def test_a_rule_that_allows_everything_answers_no_question(autojump_clock, start):
    world, _ = await start(ask(question("one?"), CallPart("peek", arguments={"say": "a"})), DONE)
    session_id = await world.session(permissions=(Rule("read", "*", "allow"),))
    world.configuration = structs.replace(
        world.configuration, permissions=(Rule("*", "*", "allow"), Rule("*", "a", "ask"))
    )
    await world.say(session_id, "go")
    requests = {request.kind: request.id for request in await opened(world, session_id, 2)}
    await world.must(Answer(requests["approval"], "always"))
    await world.must(Answer(requests["question"], "answer", "mine"))
    await world.ended(session_id)
    assert results(world)[0] == "mine"
