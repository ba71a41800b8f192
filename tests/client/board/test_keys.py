"""What keys do: in the list, while a request is read, and while a text is typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from support.boards import LONG, NOW, PUSH, board, drawn, pressed, read_all, session, shown
from tiller_client.board.acts import Create, Do, Land, Open, Send, ShowDiff, Submit
from tiller_client.board.line import Line
from tiller_client.board.state import BoardState, Typing
from tiller_client.chat.rows import PROMPT
from tiller_client.following.overview import News
from tiller_protocol.items import Request
from tiller_protocol.ops import Answer, Interrupt, SessionArchive, SessionMarkSeen, TurnContinue

ASKS = session("asks", status="waiting", requests=(PUSH,))
READS = session("reads", status="waiting", requests=(LONG,), updated_at=NOW - 10)
WORKS = session("works", status="busy")
ENDED = session("ended", unseen=True, last_outcome="completed")
QUESTION = Request("q1", "question", "Which database?", choices=("SQLite", "PostgreSQL"))


def test_keys_choose_a_session() -> None:
    state = board(ASKS, WORKS, ENDED)
    chosen = []
    for key in ("down", "down", "down", "up", "home", "end", "k", "j"):
        pressed(state, key)
        chosen.append(state.row.name if state.row else "")
    assert chosen == ["works", "ended", "ended", "works", "asks", "ended", "works", "ended"]


def test_enter_opens_the_session_d_its_diff_and_q_leaves() -> None:
    state = board(ENDED)
    assert pressed(state, "enter", "d", "q") == [
        Open(state.rows[0].key),
        ShowDiff(state.rows[0].key, "ended"),
        Do("leave"),
    ]


def test_i_interrupts_only_if_it_is_pressed_twice_for_the_same_session() -> None:
    state = board(WORKS, session("other", status="busy"))
    assert pressed(state, "i", "down", "i", "up", "i") == []
    (act,) = pressed(state, "i")
    assert act.op == Interrupt(state.row.session.session_id if state.row else "")


def test_a_second_i_never_interrupts_another_session_with_the_same_title() -> None:
    one, other = (structs.replace(session(name, status="busy"), title="work") for name in "ab")
    state = board(one, other)
    assert state.row is not None
    ended = state.row.session
    pressed(state, "i")
    state.take(News("", NOW, gone=(ended.session_id,)))
    assert pressed(state, "i") == []
    (act,) = pressed(state, "i")
    assert act.op == Interrupt(state.row.session.session_id)


def test_o_sends_what_waits_or_goes_on_with_a_turn_that_did_not_complete() -> None:
    for goes_on in (session("later", queued=2), session("broke", last_outcome="interrupted")):
        (act,) = pressed(board(goes_on), "o")
        assert act.op == TurnContinue(goes_on.session_id)
    for other, why in ((WORKS, "runs a turn already"), (ENDED, "has nothing to go on with")):
        state = board(other)
        assert pressed(state, "o") == []
        assert why in shown(state)


def test_a_worktree_is_made_of_the_repository_not_of_the_chosen_sessions_worktree() -> None:
    apart = session("apart", workspace="/src/a.worktrees/x", checkout="/src/a", worktree="x")
    state = board(apart)
    assert pressed(state, "w", "g", "enter") == [Create("", "/src/a", "g", apart=True)]
    assert pressed(state, "c", "g", "enter") == [Create("", "/src/a.worktrees/x", "g")]


def test_l_lands_a_worktree_only_if_it_is_pressed_twice() -> None:
    state = board(session("apart", worktree="apart"))
    assert pressed(state, "l", "d", "l")[1:] == []
    assert pressed(state, "l") == [Land(state.rows[0])]
    assert "landing apart …" in shown(state)
    state = board(ENDED)
    assert pressed(state, "l", "l") == []
    assert "works in no worktree" in shown(state)


def test_a_session_is_marked_as_seen_up_to_its_last_event() -> None:
    state = board(ENDED)
    assert pressed(state, "m")[0].op == SessionMarkSeen(ENDED.session_id, until=ENDED.head)
    state = board(session("read"))
    assert pressed(state, "m") == []
    assert "read was seen already" in shown(state)


@pytest.mark.parametrize("key", ["m", "o"])
def test_after_a_session_is_marked_as_seen_or_goes_on_the_next_one_of_its_group_is_chosen(
    key: str,
) -> None:
    ended = [session(name, unseen=True, last_outcome="failed") for name in ("one", "two")]
    state = board(*ended, session("old"))
    first = state.row
    pressed(state, key)
    assert state.row is not None
    assert (state.row.group, state.row != first) == ("done", True)


def test_an_archived_session_can_be_brought_back() -> None:
    state = board(ENDED)
    archives, brings_back = pressed(state, "x", "u")
    assert archives.op == SessionArchive(ENDED.session_id)
    assert brings_back.op == SessionArchive(ENDED.session_id, archived=False)
    assert brings_back.done == f"{ENDED.title} is back"
    assert pressed(state, "u") == []


@pytest.mark.parametrize(("key", "queue"), [("enter", False), ("tab", True)])
def test_a_message_steers_or_is_queued(key: str, *, queue: bool) -> None:
    state = board(WORKS)
    pressed(state, "s", *"use q", "left", "x")
    assert "Enter steers, Tab queues" in shown(state)
    assert f"{PROMPT}use xq" in shown(state)
    assert pressed(state, key) == [Send(state.rows[0], "use xq", queue)]


def test_a_new_session_begins_where_the_chosen_one_works() -> None:
    state = board(ENDED)
    assert pressed(state, "c", *"go", "enter") == [Create("", "/src/accounts", "go")]
    assert pressed(state, "c", "enter") == [Create("", "/src/accounts", "")]


def test_without_any_session_a_new_one_begins_where_the_board_does() -> None:
    state = board(here="/src/shop")
    assert "there are no sessions; c starts one here" in shown(state)
    pressed(state, "w")
    assert "or opens a chat without a text · /src/shop" in shown(state, (100, 24))
    assert pressed(state, *"go", "enter") == [Create("", "/src/shop", "go", apart=True)]
    assert pressed(state, "s", "enter") == []


def test_a_note_about_a_text_that_comes_back_is_above_the_text() -> None:
    state = board(ENDED)
    state.typing = Typing("message", Line.of("Merge it"), state.rows[0])
    state.say("There are conflicts with `main` in a.py. Nothing has changed.")
    window = drawn(state).frame
    assert "There are conflicts with `main` in a.py." in "\n".join(window.rows)
    assert "Merge it" in window.rows[window.cursor[0]]


def test_the_filter_narrows_while_it_is_typed_and_esc_shows_all() -> None:
    state = board(ASKS, WORKS)
    pressed(state, "/", *"wor")
    assert [row.name for row in state.rows] == ["works"]
    assert "1 of 2 sessions · filter: wor" in shown(state)
    pressed(state, "enter", "esc")
    assert len(state.rows) == 2
    pressed(state, "2")
    assert [row.name for row in state.rows] == ["works"]


def test_a_filter_for_a_group_that_does_not_exist_names_the_groups() -> None:
    state = board(ASKS)
    pressed(state, "/", *"group:asking", "enter")
    assert "there is no group asking; groups: needs_you, working," in shown(state)
    pressed(state, "/", *["backspace"] * 6, *"needs", "enter")
    assert "there is no group" not in shown(state)


def test_an_answer_needs_its_letter_and_enter_and_the_next_one_that_asks_is_chosen() -> None:
    state = board(ASKS, READS, WORKS)
    pressed(state, "a")
    read_all(state)
    (act,) = pressed(state, "y", "enter")
    assert act == Submit("", Answer("r1", "once", ""), act.done, answers="r1")
    assert (state.view, state.row and state.row.name) == (None, "reads")
    assert [row.group for row in state.rows] == ["needs_you", "working", "working"]


def test_a_reason_is_typed_and_sent_with_the_rejection() -> None:
    state = board(ASKS)
    pressed(state, "a")
    read_all(state)
    pressed(state, "r", "enter", *"not today")
    (act,) = pressed(state, "enter")
    assert act.op == Answer("r1", "reject", "not today")


@pytest.mark.parametrize(
    ("keys", "text"),
    [(("2", "enter"), "PostgreSQL"), ((*"neither", "enter"), "neither")],
)
def test_a_question_is_answered_by_a_number_or_a_text(keys: tuple[str, ...], text: str) -> None:
    state = board(session("which", status="waiting", requests=(QUESTION,)))
    pressed(state, "a")
    read_all(state)
    (act,) = pressed(state, *keys)
    assert act.op == Answer("q1", "answer", text)


def test_a_long_request_is_answered_only_once_all_of_it_was_on_the_screen() -> None:
    state = board(READS)
    pressed(state, "a")
    pages = 0
    while True:
        read_all(state)
        if acts := pressed(state, "y", "enter"):
            break
        assert "first read all of it" in shown(state)
        pressed(state, "pagedown")
        pages += 1
    assert pages == -(-(100 + 1 - drawn_lines(state)) // (drawn_lines(state) - 1))
    assert acts[0].op == Answer("r2", "once", "")


def drawn_lines(_state: BoardState) -> int:
    """The lines of a request that fit into a window of 24 rows: without title, answers and hint."""
    return 24 - 1 - 1 - 5


SCROLLS = ["up", "down", "pageup", "pagedown", "end", "home", "narrow", "undrawn"]


@given(st.lists(st.sampled_from(SCROLLS), max_size=20))
def test_no_way_of_scrolling_skips_a_line(keys: list[str]) -> None:
    state = board(READS)
    pressed(state, "a")
    seen: set[str] = set()
    size = (80, 24)
    for key in keys:
        size = (60, 20) if key == "narrow" else size
        if key == "undrawn":  # as if many keys came at once
            pressed(state, "pagedown", "pagedown", "end")
        elif key != "narrow":
            pressed(state, key)
        window = drawn(state, size)
        seen |= {row.strip() for row in window.frame.rows}
        if window.asked:
            assert {f"line {number}" for number in range(100)} <= seen


@given(st.lists(st.sampled_from([*"yahnr123456789jk", "enter", "up", "down", "tab"]), max_size=8))
def test_no_key_for_an_answer_does_harm_in_the_list(keys: list[str]) -> None:
    """The request may vanish just before the key is pressed."""
    state = board(ASKS, WORKS, ENDED)
    pressed(state, "a")
    read_all(state)
    state.view = None
    state.asking.show(None)
    for key in keys:
        acts = pressed(state, key)
        assert all(isinstance(act, Open) for act in acts)
        state.view = state.typing = None


def test_a_request_that_was_answered_elsewhere_is_no_longer_asked() -> None:
    from tiller_client.board.keys import close_request_if_gone

    state = board(ASKS)
    pressed(state, "a")
    read_all(state)
    state.take(News("", NOW, [session("asks", status="busy", head=12)]))
    close_request_if_gone(state)
    assert state.view is None
    assert "answered elsewhere" in shown(state)
    assert pressed(state, "y") == []


def test_help_lists_the_keys_and_esc_returns() -> None:
    state = board(WORKS)
    pressed(state, "?")
    assert "interrupt the running turn" in shown(state)
    pressed(state, "esc")
    assert "working · 1" in shown(state)
