"""The title of a session (B11) is requested after the first turn and never affects the turn."""

import pytest
import trio
from msgspec import structs

from support.each import each
from support.world import EPOCH, World
from tiller_daemon.models.scripted import (
    CallPart,
    Failure,
    HangPart,
    Script,
    ScriptedUsage,
    ScriptStep,
    TextPart,
    WaitPart,
)
from tiller_daemon.session.turns.title import (
    TITLE_CHARS_MAX,
    TITLE_S_MAX,
    clean_title,
    first_title,
)
from tiller_protocol.events import SessionTitled, TurnEnded, WarningRaised
from tiller_protocol.items import Usage
from tiller_protocol.ops import Interrupt, SessionConfigure, SessionDelete, SessionGet

DONE = ScriptStep(parts=(TextPart("done"),), repeat=True)


def title(words: str, wait_s: float = 0.0) -> ScriptStep:
    return ScriptStep(parts=(WaitPart(wait_s), TextPart(words)))


def turn_of(seconds: float) -> ScriptStep:
    return ScriptStep(parts=(CallPart("look", arguments={"seconds": seconds}),))


@pytest.fixture
def titled(start):
    """Starts a world whose model answers the request for a title with the given step."""

    async def titled(step: ScriptStep, *steps: ScriptStep) -> tuple[World, str]:
        world, session_id = await start(*steps, DONE)
        world.scripts["s"] = Script((*steps, DONE), title=step)
        return world, session_id

    return titled


def titles(world: World, session_id: str) -> list[str]:
    return [e.body.title for e in world.published[session_id] if isinstance(e.body, SessionTitled)]


@pytest.mark.promise("B11")
async def test_the_first_turn_has_a_title_by_a_side_request_and_later_ones_have_none(
    autojump_clock, titled
):
    step = structs.replace(title("Repair a test"), usage=ScriptedUsage(50, output_tokens=5))
    world, session_id = await titled(step)
    await world.say(session_id, "the test of x fails,\nrepair it")
    await world.ended(session_id)
    await world.until(session_id, lambda e: isinstance(e.body, SessionTitled), 2)
    assert titles(world, session_id) == ["the test of x fails, repair it", "Repair a test"]
    assert all(
        e.turn_id is None for e in world.published[session_id] if isinstance(e.body, SessionTitled)
    )
    (asked,) = world.model.for_titles
    assert "the test of x fails" in asked.items[0].text
    assert asked.tools == ()
    await world.say(session_id, "and now y")
    await world.ended(session_id, 2)
    assert len(world.model.for_titles) == 1
    snapshot = (await world.must(SessionGet(session_id))).snapshot
    assert (snapshot.title, snapshot.usage) == ("Repair a test", Usage(50, output_tokens=5))


@pytest.mark.parametrize(
    "step",
    [
        None,
        ScriptStep(),
        title(" \n\t\n"),
    ],
    ids=["no step", "nothing", "blanks"],
)
@pytest.mark.promise("B11")
async def test_an_answer_without_a_title_leaves_the_first_one(autojump_clock, titled, step):
    world, session_id = await titled(step, turn_of(2))
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.duration_s) == ("completed", 2.0)
    await trio.sleep(TITLE_S_MAX)
    assert len(world.model.for_titles) == 1
    await world.say(session_id, "again")
    assert (await world.ended(session_id, 2)).outcome == "completed"
    await trio.sleep(TITLE_S_MAX)
    assert len(world.model.for_titles) == 1
    assert titles(world, session_id) == ["go"]


FAILING = pytest.mark.parametrize(
    ("step", "reason"),
    [
        (ScriptStep(failures=(Failure("bad_request"),)), "`title.failures[0]`"),
        (ScriptStep(failures=(Failure("overloaded"),)), "`title.failures[0]`"),
        (ScriptStep(parts=(TextPart("half"), HangPart())), "not answer within 30 s"),
    ],
    ids=["refused", "overloaded", "hanging"],
)


async def turns(world: World, session_id: str, first: int, last: int) -> None:
    """Have turns that complete, and wait for the requests for a title after them."""
    for number in range(first, last + 1):
        await world.say(session_id, "go" if number == 1 else "go on")
        assert (await world.ended(session_id, number)).outcome == "completed"
        await trio.sleep(TITLE_S_MAX)


@FAILING
@pytest.mark.promise("B11")
async def test_a_title_that_fails_or_hangs_changes_nothing_else(
    autojump_clock, titled, step, reason
):
    world, session_id = await titled(step, turn_of(2))
    await world.say(session_id, "go")
    ended = await world.ended(session_id)
    assert (ended.outcome, ended.duration_s) == ("completed", 2.0)
    await trio.sleep(TITLE_S_MAX)
    await turns(world, session_id, 2, 3)
    assert len(world.model.for_titles) == 1
    assert titles(world, session_id) == ["go"]
    bodies = [e.body for e in world.published[session_id]]
    (told,) = [body.message for body in bodies if isinstance(body, WarningRaised)]
    assert reason in told
    assert f"tiller set {session_id} title TEXT" in told


async def test_after_a_failed_turn_the_title_is_asked_for_after_the_next_one(
    autojump_clock, titled
):
    failing = ScriptStep(failures=(Failure("bad_request"),))
    world, session_id = await titled(title("After the next"), failing)
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).outcome == "failed"
    await trio.sleep(TITLE_S_MAX)
    assert world.model.for_titles == []
    await turns(world, session_id, 2, 3)
    assert titles(world, session_id) == ["go", "After the next"]
    assert "<request>\ngo\n</request>" in world.model.for_titles[-1].items[0].text


async def test_a_title_that_a_person_gave_before_the_request_stays(autojump_clock, titled):
    world, session_id = await titled(title("Never"), turn_of(2))
    await world.say(session_id, "go")
    await world.must(SessionConfigure(session_id, title="Mine"))
    await world.ended(session_id)
    await turns(world, session_id, 2, 2)
    assert world.model.for_titles == []
    assert titles(world, session_id) == ["go", "Mine"]


@pytest.mark.promise("B11")
async def test_the_end_of_the_turn_does_not_wait_for_a_title_that_comes_soon_after(
    autojump_clock, titled
):
    world, session_id = await titled(title("Soon after", wait_s=TITLE_S_MAX - 1))
    await world.say(session_id, "go")
    assert (await world.ended(session_id)).duration_s == 0.0
    assert titles(world, session_id) == ["go"]
    await trio.sleep(TITLE_S_MAX)
    assert titles(world, session_id) == ["go", "Soon after"]


@pytest.mark.promise("B11")
async def test_no_title_is_asked_for_before_the_end_of_the_first_turn_is_in_the_log(
    autojump_clock, titled
):
    world, session_id = await titled(title("Only then"), turn_of(50))
    ended_before: list[bool] = []
    stream = world.model.stream

    def watched(request):
        if request.purpose == "title":
            published = world.published[session_id]
            ended_before.append(any(isinstance(e.body, TurnEnded) for e in published))
        return stream(request)

    world.model.stream = watched
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.until_body(session_id, SessionTitled, 2)
    assert ended_before == [True]


@pytest.mark.promise("B11")
async def test_a_second_turn_that_begins_at_once_does_not_lose_the_title(autojump_clock, titled):
    world, session_id = await titled(
        title("In the second", wait_s=1), ScriptStep(parts=(TextPart("one"),)), turn_of(50)
    )
    await world.say(session_id, "go")
    await world.ended(session_id)
    await world.say(session_id, "again")
    await world.until_body(session_id, SessionTitled, 2)
    await world.ended(session_id, 2)
    assert titles(world, session_id) == ["go", "In the second"]


@pytest.mark.promise("B11")
async def test_a_title_is_dropped_when_it_takes_too_long(autojump_clock, titled):
    world, session_id = await titled(title("Too late", wait_s=TITLE_S_MAX + 1))
    await world.say(session_id, "go")
    await world.ended(session_id)
    await trio.sleep(100)
    assert titles(world, session_id) == ["go"]
    ((_, cut_at),) = world.model.cut
    assert cut_at == EPOCH + TITLE_S_MAX


async def test_after_an_interrupt_there_is_no_request_before_the_end_of_the_next_turn(
    autojump_clock, titled
):
    world, session_id = await titled(title("Never", wait_s=3), turn_of(50))
    await world.say(session_id, "go")
    await trio.sleep(1)
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    await trio.sleep(100)
    assert world.model.for_titles == []
    world.scripts["s"] = Script((DONE,), title=title("After the next"))
    await world.say(session_id, "again")
    await world.until_body(session_id, SessionTitled, 2)
    assert titles(world, session_id) == ["go", "After the next"]


async def test_the_end_of_the_session_ends_the_request(autojump_clock, titled):
    world, _ = await titled(title("Never"))
    deleted = await world.session()
    world.scripts["s"] = Script((DONE,), title=title("Never", wait_s=3))
    await world.say(deleted, "go")
    await world.ended(deleted)
    await world.must(SessionDelete(deleted))
    await trio.sleep(100)
    assert titles(world, deleted) == ["go"]
    assert await world.events(deleted) == []


async def test_the_small_model_is_asked_and_one_that_is_not_there_harms_nothing(
    autojump_clock, titled
):
    world, session_id = await titled(title("By the large one"))
    world.scripts["small"] = Script((), title=title("By the small one"))
    world.configuration = structs.replace(world.configuration, small_model="scripted/small")
    await world.say(session_id, "go")
    await world.until_body(session_id, SessionTitled, 2)
    assert titles(world, session_id) == ["go", "By the small one"]
    world.configuration = structs.replace(world.configuration, small_model="scripted/none")
    other = await world.session()
    await turns(world, other, 1, 4)
    assert titles(world, other) == ["go"]
    bodies = [e.body for e in world.published[other]]
    (told,) = [body.message for body in bodies if isinstance(body, WarningRaised)]
    assert "scripted/none" in told


@each(
    ("answer", "expected"),
    [
        ("Repair a test", "Repair a test"),
        ('\n\n"Repair a test"\nbecause it fails', "Repair a test"),
        ("**Title:** x", "x"),
        ("Fix `login`", "Fix `login`"),
        ("`login` and `logout`", "`login` and `logout`"),
        ("`Fix login`", "Fix login"),
        ('"Fix `login`"', "Fix `login`"),
        ("# Repair\x1b[2J a  test", "Repair [2J a test"),
        ("<think>\nhm, what is it\n</think>\n\nRepair", "Repair"),
        ("<think>\nhm", "hm"),
        ("\u2028", ""),
        ("", ""),
    ],
)
def test_a_title_is_one_clean_line(answer: str, expected: str) -> None:
    assert clean_title(answer) == expected


def test_a_long_title_is_cut() -> None:
    assert len(clean_title("word " * 50)) <= TITLE_CHARS_MAX
    assert clean_title("word " * 50).endswith("…")


def test_the_first_title_is_what_the_user_wrote_without_its_context() -> None:
    assert first_title("why?\n\n<context-1>\nmake: no\n</context-1>") == "why?"
    assert first_title("<context>\nis\n</context> odd") == "<context> is </context> odd"
