"""What a list says of a session without reading its events, and whether a user has seen it."""

from support.each import each
from support.narrowing import of_kind
from support.world import World
from tiller_daemon.models.scripted import CallPart, Failure, Script, ScriptStep, TextPart
from tiller_protocol.answers import SessionListResult
from tiller_protocol.events import (
    Event,
    ItemCompleted,
    ItemStarted,
    SessionCreated,
    SessionSeen,
    ToolCallUpdated,
)
from tiller_protocol.fold import fold
from tiller_protocol.items import FileChange, ItemId, Patch
from tiller_protocol.ops import (
    Interrupt,
    SessionArchive,
    SessionGet,
    SessionList,
    SessionMarkSeen,
    UserInput,
)
from tiller_protocol.settings import Settings
from tiller_protocol.snapshot import (
    LINE_CHARS_MAX,
    SessionSummary,
    Snapshot,
    last_line,
    last_words,
    note_items,
)

PLAN = {"items": [{"text": "look", "state": "completed"}, {"text": "do", "state": "pending"}]}
WORKS = ScriptStep(
    parts=(TextPart("I look at it.\n\nThen I change it. \n"), CallPart("plan", arguments=PLAN))
)
RUNS = ScriptStep(parts=(CallPart("change", arguments={"seconds": 600, "say": "build"}),))
DONE = ScriptStep(parts=(TextPart("All done.\nThe tests pass.\n"),))


async def summary(world: World, session_id: str) -> SessionSummary:
    listed = of_kind(SessionListResult, await world.must(SessionList()))
    return next(one for one in listed.sessions if one.session_id == session_id)


async def test_a_list_has_the_last_line_the_plan_and_the_reason_also_after_a_restart(
    autojump_clock, start, nursery
):
    world, good = await start(WORKS, DONE)
    bad = await world.session()
    await world.say(good, "go")
    await world.ended(good)
    world.scripts["s"] = Script((ScriptStep(failures=(Failure("bad_request", "no such model"),)),))
    await world.say(bad, "go")
    await world.ended(bad)
    for _ in range(2):
        one, other = await summary(world, good), await summary(world, bad)
        assert (one.last_line, one.plan_done, one.plan_size) == ("The tests pass.", 1, 2)
        assert (one.last_outcome, one.reason, one.unseen) == ("completed", "", True)
        assert (other.last_outcome, other.unseen) == ("failed", True)
        assert "no such model" in other.reason
        await world.kill()
        await world.boot(nursery)


async def test_a_list_says_what_a_session_does_and_what_waits(autojump_clock, start, nursery):
    world, session_id = await start(RUNS, DONE)
    await world.say(session_id, "go")
    await world.until(session_id, lambda e: isinstance(e.body, ToolCallUpdated))
    await world.must(UserInput(session_id, "later", delivery="queue"))
    now = await summary(world, session_id)
    assert (now.status, now.doing, now.queued) == ("busy", "change build", 1)
    assert now.working_since
    await world.must(Interrupt(session_id))
    await world.ended(session_id)
    now = await summary(world, session_id)
    assert (now.status, now.doing, now.queued, now.working_since) == ("idle", "", 1, None)


async def test_chosen_sessions_are_listed_whether_archived_or_not(autojump_clock, start):
    world, first = await start(DONE)
    second, third = await world.session(), await world.session()
    await world.must(SessionArchive(first))
    chosen = SessionList(sessions=(first, second, "01K00000000000000000000000"))
    found = of_kind(SessionListResult, await world.must(chosen)).sessions
    assert {one.session_id: one.archived for one in found} == {first: True, second: False}
    assert third not in {one.session_id for one in found}


async def test_a_session_is_unseen_until_any_frontend_says_that_a_user_saw_its_end(
    autojump_clock, start, nursery
):
    world, session_id = await start(DONE)
    assert not (await summary(world, session_id)).unseen
    await world.say(session_id, "go")
    await world.ended(session_id)
    before = await summary(world, session_id)
    await world.must(SessionMarkSeen(session_id, until=before.head - 3))
    assert (await summary(world, session_id)).unseen
    for until in (before.head, before.head, 10**9):
        await world.must(SessionMarkSeen(session_id, until=until))
    after = await summary(world, session_id)
    assert (after.unseen, after.updated_at) == (False, before.updated_at)
    events = await world.events(session_id)
    assert [e.body for e in events if isinstance(e.body, SessionSeen)] == [SessionSeen(before.head)]
    await world.kill()
    await world.boot(nursery)
    assert not (await summary(world, session_id)).unseen
    snapshot = (await world.must(SessionGet(session_id))).snapshot
    assert snapshot.wants_user <= snapshot.seen == before.head


@each(
    ("text", "line"),
    [
        ("", ""),
        (" \n\t\n", ""),
        ("one", "one"),
        ("one\ntwo  \n\n", "two"),
        ("Run this:\n```\npytest -q\n```\n---\n", "pytest -q"),
        ("Two files:\n\n| File | Lines |\n|---|---|\n| a.py | 3 |\n", "Two files:"),
        ("| a.py | 3 |\n|---|---|", "| a.py | 3 |"),
        ("Done\n👍 \n", "Done"),
        ("👍\n", "👍"),
        ("x" * LINE_CHARS_MAX, "x" * LINE_CHARS_MAX),
        ("a\n" + "x" * 10**6, "x" * (LINE_CHARS_MAX - 1) + "…"),
    ],
)
def test_the_last_line_is_the_last_one_with_text_and_is_short(text, line):
    assert last_line(text) == line


def test_the_last_words_of_an_answer_are_plain_text():
    assert last_words("# Done\n\n- **12 tests** pass in `a_b.py`") == "12 tests pass in a_b.py"


def patch(number: int, *changes: tuple[str, int | None, int | None]) -> Patch:
    files = tuple(FileChange(path, "modified", *lines) for path, *lines in changes)
    return Patch(ItemId(f"p{number}"), tuple(one.path for one in files), changes=files)


def test_changes_are_counted_by_step_and_again_when_history_is_another_one():
    snapshot = Snapshot("s")
    first, second = patch(1, ("a", 3, 1), ("b", None, None)), patch(2, ("a", 2, 2))
    bodies = [SessionCreated("/w", Settings())]
    bodies += [kind(one) for one in (first, second) for kind in (ItemStarted, ItemCompleted)]
    for number, body in enumerate(bodies, 1):
        fold(snapshot, Event(number, "s", float(number), body))
    assert snapshot.changed_files == {"a": 2, "b": 1}
    assert (snapshot.added_lines, snapshot.removed_lines) == (5, 3)
    del snapshot.items[1]
    note_items(snapshot)
    assert snapshot.changed_files == {"a": 1, "b": 1}
    assert (snapshot.added_lines, snapshot.removed_lines) == (3, 1)
