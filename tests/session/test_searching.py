"""Search over sessions and the user's inputs: over the wire, and after any history of the log."""

from itertools import count, pairwise

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support.directories import TemporarySearchIndex
from support.memory_log import MemoryLog
from support.world import World
from tiller_daemon.errors import RejectionError
from tiller_daemon.models.scripted import CallPart, ScriptStep, TextPart
from tiller_daemon.session.searching import SEARCH_WAIT_S, SearchableSessions
from tiller_daemon.store.base import Batch, EventRow, LogError, SessionRow
from tiller_daemon.store.search_index import SearchIndex
from tiller_protocol.codec import encode_event
from tiller_protocol.events import Event, ItemCompleted
from tiller_protocol.items import AssistantMessage, ItemId, Patch, UserMessage
from tiller_protocol.ops import (
    SessionArchive,
    SessionConfigure,
    SessionDelete,
    SessionFork,
    SessionList,
)
from tiller_protocol.sessions import (
    FoundText,
    InputHistory,
    InputHistoryResult,
    PastInput,
    SessionSearch,
    SessionSearchResult,
)


def saying(text: str) -> ScriptStep:
    return ScriptStep(parts=(TextPart(text),))


def calling(tool: str, **arguments: object) -> ScriptStep:
    return ScriptStep(parts=(CallPart(tool, arguments=dict(arguments)),))


async def search(world: World, query: str, **fields: object) -> SessionSearchResult:
    result = await world.must(SessionSearch(query, **fields))  # type: ignore[arg-type]
    assert isinstance(result, SessionSearchResult)
    return result


async def found(world: World, query: str, **fields: object) -> list[str]:
    result = await search(world, query, **fields)
    assert result.not_indexed == 0
    return [one.session.session_id for one in result.found]


async def inputs(world: World, **fields: object) -> InputHistoryResult:
    result = await world.must(InputHistory(**fields))  # type: ignore[arg-type]
    assert isinstance(result, InputHistoryResult)
    return result


async def said(world: World, session_id: str, *texts: str) -> None:
    for number, text in enumerate(texts, 1):
        await world.say(session_id, text)
        await world.ended(session_id, number)


async def test_what_people_read_is_found_at_once_and_what_only_the_model_reads_is_not(
    autojump_clock, start
):
    world, first = await start(
        calling("look", say="secretoutput"), saying("The pelican is repaired."), saying("Done.")
    )
    await said(world, first, "repair the heron", "thanks")
    second = await world.session()
    await world.must(SessionConfigure(second, title="A stork for the archive"))
    assert await found(world, "heron") == [first]
    assert await found(world, "pelican") == [first]
    assert await found(world, "stork") == [second]
    assert await found(world, "secretoutput") == []
    (one,) = (await search(world, "repaired pelican")).found
    (text,) = one.texts
    assert text == FoundText(
        "answer", ("The ", "pelican", " is ", "repaired", "."), text.time, text.seq, text.turn_id,
        text.item_id,
    )  # fmt: skip
    (event,) = [event for event in world.published[first] if event.seq == text.seq]
    assert isinstance(event.body, ItemCompleted)
    assert (event.turn_id, event.body.item.id) == (text.turn_id, text.item_id)
    listed = (await world.must(SessionList())).sessions
    assert one.session == next(row for row in listed if row.session_id == first)
    await world.must(SessionConfigure(second, title="An ibis"))
    assert (await found(world, "stork"), await found(world, "ibis")) == ([], [second])
    assert (await world.refused(SessionSearch('"*" -'))).code == "empty_input"
    assert (await world.refused(SessionSearch("x", after="x"))).code == "bad_message"
    for after in ("1.0 x", "1.0 ٣", f"1.0 {2**64}", "1.0 " + "9" * 5_000):
        assert (await world.refused(InputHistory(after=after))).code == "bad_message"
    assert await found(world, "heron") == [first]


async def test_sessions_are_found_by_workspace_archive_and_page(autojump_clock, start, tmp_path):
    world, first = await start(ScriptStep(parts=(TextPart("ok"),), repeat=True))
    sessions = [first, *[await world.session() for _ in range(4)]]
    world.workspace = str(tmp_path)
    elsewhere = await world.session()
    for session_id in (*sessions, elsewhere):
        await said(world, session_id, "the same crane")
        await trio.sleep(1)
    newest_first = [elsewhere, *reversed(sessions)]
    assert await found(world, "crane") == newest_first
    assert await found(world, "crane", workspace=str(tmp_path)) == [elsewhere]
    pages, after = [], None
    while True:
        page = await search(world, "crane", limit=2, after=after)
        pages += [one.session.session_id for one in page.found]
        if (after := page.next) is None:
            break
    assert pages == newest_first
    await world.must(SessionArchive(elsewhere))
    assert await found(world, "crane") == newest_first[1:]
    assert await found(world, "crane", archived=True) == newest_first
    # A search finds a fork by its own texts and by its title.
    fork = (await world.must(SessionFork(first))).session_id
    await world.must(SessionConfigure(fork, title="crane again"))
    assert (await found(world, "crane"))[0] == fork


async def test_the_text_of_a_deleted_session_is_gone_from_the_index(autojump_clock, start):
    world, first = await start(ScriptStep(parts=(TextPart("ok"),), repeat=True))
    other = await world.session()
    await said(world, first, "hide the ostrich")
    await said(world, other, "feed the ostrich")
    assert await found(world, "ostrich") == [other, first]
    await world.must(SessionDelete(first))
    assert set(world.index.heads()) <= {other}
    assert await found(world, "ostrich") == [other]
    assert [one.text for one in (await inputs(world)).inputs] == ["feed the ostrich"]


async def test_after_a_kill_or_the_loss_of_the_index_everything_is_found_again(
    autojump_clock, start, nursery
):
    world, first = await start(ScriptStep(parts=(TextPart("ok"),), repeat=True))
    await said(world, first, "an early heron")
    assert await found(world, "heron") == [first]
    await said(world, first, "an early heron", "a late heron")
    await world.kill()
    await world.boot(nursery)
    ((only,),) = [one.texts[:1] for one in (await search(world, "late heron")).found]
    assert only.kind == "input"
    await world.kill()
    world.index = TemporarySearchIndex(world.log.log_id)
    await world.boot(nursery)
    assert await found(world, "early") == [first]


async def test_the_prompts_of_sub_agents_are_neither_found_nor_in_the_history_of_inputs(
    autojump_clock, start
):
    world, first = await start(
        calling("task", prompt="count the flamingos"), saying("There are three."), saying("Three.")
    )
    await said(world, first, "how many birds?")
    assert await found(world, "flamingos") == []
    assert [one.text for one in (await inputs(world)).inputs] == ["how many birds?"]


async def test_the_history_of_inputs_has_each_text_once_newest_first_in_pages(
    autojump_clock, start, tmp_path
):
    world, first = await start(ScriptStep(parts=(TextPart("ok"),), repeat=True))
    await said(world, first, "one", "two", " one\n", "three")
    world.workspace = str(tmp_path)
    second = await world.session()
    await trio.sleep(1)
    await said(world, second, "two", "四\x1f設定")
    listed = (await inputs(world)).inputs
    assert [one.text for one in listed] == ["四設定", "two", "three", "one"]
    assert [one.session_id for one in listed] == [second, second, first, first]
    pages: list[PastInput] = []
    after = None
    while True:
        page = await inputs(world, limit=3, after=after)
        pages += page.inputs
        if (after := page.next) is None:
            break
    assert tuple(pages) == listed
    here = await inputs(world, workspace="/")
    assert [one.text for one in here.inputs] == ["three", "one", "two"]


async def test_a_page_of_long_inputs_ends_before_it_is_too_large(autojump_clock, start):
    world, first = await start(ScriptStep(parts=(TextPart("ok"),), repeat=True))
    await said(world, first, *("x" * 700_000 + str(number) for number in range(3)))
    sizes, after = [], None
    while True:
        page = await inputs(world, after=after)
        sizes.append(len(page.inputs))
        if (after := page.next) is None:
            break
    assert sizes == [1, 1, 1]


async def test_the_index_costs_a_turn_no_commit_and_waits_until_it_is_over(
    autojump_clock, start, nursery
):
    """A turn pays for one entry in a table of names; the index is written later, in one go."""
    world, first = await start(ScriptStep(parts=(TextPart("many words " * 50),), repeat=True))
    written: list[int] = []
    add = world.index.add
    world.index.add = lambda row, head, texts: (written.append(head), add(row, head, texts))
    nursery.start_soon(world.search.run)
    await trio.sleep(100)
    await said(world, first, "go")
    assert written == [1]
    await trio.sleep(100)
    assert written == [1, world.log.head_now(first)]


class DamagedLog(MemoryLog):
    """A log that can't read the events of some sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged: set[str] = set()

    async def events(self, session_id, after, limit, bytes_max):
        if session_id in self.damaged:
            raise LogError("corrupt", "database disk image is malformed")
        return await super().events(session_id, after, limit, bytes_max)


class Sessions:
    """A log that is written to at random, and what a daemon knows of it."""

    def __init__(self) -> None:
        self.log = DamagedLog()
        self.index = TemporarySearchIndex("memory")
        self.numbers = count(1)
        self.rows: dict[str, list[SessionRow]] = {}
        self.start()

    def start(self) -> None:
        self.search = SearchableSessions(self.log, self.index, at_once)

    async def lose_the_index(self) -> None:
        """Lose the index as damage does: its next use fails, and then a new index begins empty."""
        content(self.index)
        assert self.index._opened
        self.index._opened.close()
        with pytest.raises(RejectionError, match="can't be used"):
            await self.search.inputs(InputHistory())

    async def append(self, session_id: str, kind: str, *, title: str = "") -> None:
        row = await self.log.session(session_id) or SessionRow(session_id, "/w", 1.0, 1.0, 0)
        number = next(self.numbers)
        name = ItemId(f"i{number}")
        item = {
            "input": UserMessage(name, f"input {number % 3}", "start"),
            "prompt": UserMessage(name, f"prompt {number}", "start", client="task"),
            "answer": AssistantMessage(name, f"answer {number}", "completed"),
            "discarded": AssistantMessage(name, f"half {number}", "discarded"),
            "files": Patch(name, (f"src/{number}.py",)),
        }[kind]
        event = Event(row.head + 1, session_id, float(number), ItemCompleted(item), "t1")
        row = replace(
            row,
            head=event.seq,
            title=title or row.title,
            updated_at=event.time,
            archived=number % 5 == 0,
        )
        await self.log.append(Batch(row, (EventRow(event.seq, event.time, encode_event(event)),)))
        self.rows.setdefault(session_id, []).append(row)
        self.search.note(session_id)

    def lose_the_last_event(self, session_id: str) -> None:
        """Lose the event as a power failure does, which also ends the daemon."""
        if len(self.log._events.get(session_id, ())) > 1:
            self.log._events[session_id].pop()
            self.rows[session_id].pop()
            self.log._sessions[session_id] = self.rows[session_id][-1]
            self.start()

    async def delete(self, session_id: str, *, crash: bool) -> None:
        await self.log.delete(session_id)
        self.rows.pop(session_id, None)
        if crash:
            self.start()
        else:
            await self.search.forget([session_id])


async def at_once(function):
    await trio.lowlevel.checkpoint()
    return function()


def content(index: SearchIndex) -> list[tuple[object, ...]]:
    """Return everything in an index except row numbers."""
    with index._transaction() as connection:
        texts = connection.execute(
            "SELECT session_id, seq, kind, time, turn_id, item_id, digest, words.text"
            " FROM texts JOIN words ON words.rowid = texts.id"
        )
        sessions = connection.execute("SELECT * FROM sessions")
        rows = [*texts.fetchall(), *sessions.fetchall()]
        assert connection.execute("SELECT count(*) FROM words").fetchone()[0] == sum(
            len(row) == 8 for row in rows
        )
    return sorted(rows, key=repr)


async def whole(sessions: Sessions) -> list[tuple[object, ...]]:
    """Return the content of a newly made index."""
    index = TemporarySearchIndex("memory")
    fresh = SearchableSessions(sessions.log, index, at_once)
    await fresh.find(SessionSearch("x"), lambda row: pytest.fail("x is in no text"))
    return content(index)


async def test_a_session_that_the_log_can_not_read_hides_no_other_and_is_not_missed_once_deleted():
    sessions = Sessions()
    for session_id in ("a", "b", "c"):
        await sessions.append(session_id, "input")
    sessions.log.damaged = {"b"}
    result = await sessions.search.inputs(InputHistory())
    assert ([one.session_id for one in result.inputs], result.not_indexed) == (["c", "a"], 1)
    await sessions.delete("b", crash=False)
    assert (await sessions.search.inputs(InputHistory())).not_indexed == 0


async def test_what_a_search_could_not_wait_for_is_there_for_the_next_one(autojump_clock):
    sessions = Sessions()
    for session_id in "abc":
        await sessions.append(session_id, "input")
    takes_s = SEARCH_WAIT_S * 0.4

    async def slowly(function):
        await trio.sleep(takes_s)
        return function()

    sessions.search = SearchableSessions(sessions.log, sessions.index, slowly)
    assert (await sessions.search.inputs(InputHistory())).not_indexed
    takes_s = 0.0
    assert (await sessions.search.inputs(InputHistory())).not_indexed == 0
    assert content(sessions.index) == await whole(sessions)


IDS = st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            IDS,
            st.sampled_from(["input", "prompt", "answer", "discarded", "files"]),
            st.sampled_from(["", "", "title", "other title"]),
        ),
        st.tuples(st.just("search")),
        st.tuples(st.just("crash")),
        st.tuples(st.just("lose the index")),
        st.tuples(st.just("lose"), IDS),
        st.tuples(st.just("delete"), IDS, st.booleans()),
    ),
    max_size=14,
)


@given(STEPS)
@example([("append", "a", "input", ""), ("search",), ("append", "a", "input", ""), ("crash",)])
@example([("append", "a", "input", ""), ("search",), ("delete", "a", True)])
@example([("append", "a", "input", ""), ("search",), ("lose the index",)])
@settings(deadline=None)
def test_the_index_has_what_a_new_one_would_have_after_any_history(steps):
    async def play() -> None:
        sessions = Sessions()
        for step in [*steps, ("search",)]:
            match step:
                case ("append", session_id, kind, title):
                    await sessions.append(session_id, kind, title=title)
                case ("crash",):
                    sessions.start()
                case ("lose the index",):
                    await sessions.lose_the_index()
                case ("lose", session_id):
                    sessions.lose_the_last_event(session_id)
                case ("delete", session_id, crash):
                    await sessions.delete(session_id, crash=crash)
                case _:
                    result = await sessions.search.inputs(InputHistory())
                    assert result.not_indexed == 0
                    assert all(a.time >= b.time for a, b in pairwise(result.inputs))
                    assert content(sessions.index) == await whole(sessions)
                    texts = [str(row[7]) for row in content(sessions.index) if len(row) == 8]
                    assert not any(text.startswith(("prompt", "half")) for text in texts)

    trio.run(play)
