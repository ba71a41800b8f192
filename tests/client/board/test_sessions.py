"""What a row says of a session, in which group it is, and which rows a filter lets through."""

import pytest

from support.boards import NOW, PUSH, in_every_group, session
from tiller_client.board.filtering import Filter
from tiller_client.board.sessions import GROUPS, Key, Row, activity, order, row_of
from tiller_protocol.ids import ulid
from tiller_protocol.items import Request


def row(name: str) -> Row:
    found = next(one for one in in_every_group() if one.title == name)
    return row_of(Key("", found.session_id), found, set())


@pytest.mark.parametrize(
    ("name", "group", "does", "elapsed_s"),
    [
        ("pushes", "needs_you", "Run git push", 60),
        ("builds", "working", "1/3 · bash make", 200),
        ("again", "waiting", "asks the model again", 60),
        ("later", "waiting", "2 messages waiting, after a turn that was interrupted", 5),
        ("ended", "done", "All tests pass.", 60),
        ("broke", "done", "failed: no such model", 60),
        ("read", "idle", "It is cached.", 60),
    ],
)
def test_a_row_says_what_its_session_does(
    name: str, group: str, does: str, elapsed_s: float
) -> None:
    shown = row(name)
    assert (shown.group, activity(shown), shown.elapsed_s(NOW)) == (group, does, elapsed_s)


def test_a_question_of_the_model_is_shown_without_marks_and_a_command_as_it_is() -> None:
    asks = [Request("q", "question", "Keep `a`, **or** b?"), Request("r", "approval", "Run rm *x*")]
    rows = [row_of(Key("", "s"), session("s", requests=(one,)), set()) for one in asks]
    assert [activity(one) for one in rows] == ["Keep a, or b?", "Run rm *x*"]


def test_groups_have_an_order_and_who_waits_longest_is_first() -> None:
    early = session("early", status="waiting", requests=(PUSH,), updated_at=NOW - 500)
    rows = [row_of(Key("", one.session_id), one, set()) for one in [*in_every_group(), early]]
    names = [one.name for one in sorted(rows, key=order)]
    assert names[:2] == ["early", "pushes"]
    groups = [GROUPS.index(one.group) for one in sorted(rows, key=order)]
    assert groups == sorted(groups)


def test_a_request_keeps_its_age_whatever_else_happens_in_its_session() -> None:
    asked = Request(ulid(int(NOW - 300) * 1000, bytes(10)), "approval", "Run make")
    told = session("told", status="waiting", requests=(asked,), updated_at=NOW)
    other = session("other", status="waiting", requests=(PUSH,), updated_at=NOW - 200)
    rows = [row_of(Key("", one.session_id), one, set()) for one in (other, told)]
    assert [(one.name, one.elapsed_s(NOW)) for one in sorted(rows, key=order)] == [
        ("told", 300),
        ("other", 200),
    ]


def test_a_working_session_keeps_its_place_while_it_works() -> None:
    before = session("a", status="busy", created_at=1.0, updated_at=NOW - 9)
    after = session("a", status="busy", created_at=1.0, updated_at=NOW, head=10)
    one, other = (order(row_of(Key("", "a"), each, set())) for each in (before, after))
    assert one == other


def test_a_request_that_was_answered_here_no_longer_asks() -> None:
    asking = session("a", status="waiting", requests=(PUSH,))
    assert row_of(Key("", "a"), asking, {"r1"}).group == "working"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("", {"one", "two"}),
        ("ONE", {"one"}),
        ("repo:acc", {"one"}),
        ("repo:src", {"one", "two"}),
        ("host:box", {"two"}),
        ("host:local", {"one"}),
        ("group:needs", {"two"}),
        ("group:needs_you", {"two"}),
        ("git push", {"two"}),
        ("git host:local", set()),
    ],
)
def test_a_filter_looks_for_its_words_where_their_prefixes_say(words: str, names: set[str]) -> None:
    one, two = session("one"), session("two", workspace="/src/web", requests=(PUSH,))
    rows = [row_of(Key("", "1"), one, set()), row_of(Key("box", "2"), two, set())]
    assert {one.name for one in rows if Filter(words).matches(one)} == names


def test_a_group_that_is_filtered_for_twice_is_filtered_for_no_more() -> None:
    once = Filter("login").toggled("group:done")
    assert once.text == "login group:done"
    assert once.toggled("group:idle").text == "login group:idle"
    assert once.toggled("group:done").text == "login"
