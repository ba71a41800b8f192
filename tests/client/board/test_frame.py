"""The window of a board in every size: its rows fit, and the chosen session is in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.boards import NOW, PUSH, board, drawn, in_every_group, pressed, session, shown
from tiller_client.board.frame import compose
from tiller_client.board.state import BoardState
from tiller_client.chat.rows import CHOSEN
from tiller_client.following.overview import News
from tiller_client.rendering.style import Kind, Theme, width

WIDE = "日本語のタイトル と a very long title that fits nowhere \x1b[31m"


def many(count: int) -> BoardState:
    kinds = in_every_group()
    names = ("status", "requests", "queued", "unseen", "last_outcome", "doing", "branch", "cost")
    sessions = [
        session(f"s{number}", **{name: getattr(kinds[number % len(kinds)], name) for name in names})
        for number in range(count)
    ]
    return board(*sessions)


@given(
    st.integers(0, 60), st.integers(40, 250), st.integers(6, 60), st.integers(0, 60),
    st.sampled_from(["", "s", "/", "a", "?", "i", "c"]), st.sampled_from(["dark", "none"]),
)  # fmt: skip
def test_a_window_has_its_size_and_shows_the_chosen_session(
    count: int, columns: int, lines: int, at: int, key: str, kind: Kind
) -> None:
    state = many(count)
    state.take(News("", NOW, [session("wide", title=WIDE, last_line=WIDE, cost=1234.5)]))
    state.choose(at)
    pressed(state, *key)
    theme = Theme(kind, 256)
    window = compose(state, (columns, lines), NOW, 0.0, theme)
    assert len(window.frame.rows) == lines
    assert max(map(width, window.frame.rows)) < columns
    row, column = window.frame.cursor
    assert (0 <= row < lines, 0 <= column < columns) == (True, True)
    if state.view is None and lines >= 12:
        assert sum(CHOSEN in text for text in window.frame.rows) == 1
    assert "\x1b" not in "".join(window.frame.rows)


@pytest.mark.parametrize(
    ("columns", "there", "not_there"),
    [
        (40, ["▸? pushes", "Run git push", "1 min"], ["accounts", "fix/login"]),
        (60, ["accounts"], ["fix/login", "12 %"]),
        (80, ["accounts", "12 %", "$0.25"], ["fix/login"]),
        (120, ["accounts", "12 %", "$0.25", "fix/login"], []),
    ],
)
def test_a_narrow_window_leaves_out_what_matters_less(
    columns: int, there: list[str], not_there: list[str]
) -> None:
    state = board(
        session("pushes", status="waiting", requests=(PUSH,), branch="fix/login", cost=0.25,
                context_tokens=12, context_window=100)
    )  # fmt: skip
    row = drawn(state, (columns, 24)).frame.rows[2]
    assert all(text in row for text in there)
    assert not any(text in row for text in not_there)


@pytest.mark.parametrize("key", ["home", "end"])
def test_a_long_list_fills_the_window_up_to_its_ends(key: str) -> None:
    state = many(1000)
    pressed(state, key)
    rows = drawn(state, (80, 24)).frame.rows
    shown = [row for row in rows[1:21] if row]
    assert len(set(shown)) == len(shown) == (20 if key == "home" else 19), "a blank row at most"
    assert CHOSEN in (rows[2] if key == "home" else rows[20])


def test_a_small_window_always_says_who_is_needed_and_which_group_it_shows() -> None:
    asking = [session(f"a{n}", status="waiting", requests=(PUSH,)) for n in range(9)]
    state = board(*asking, *(session(f"i{n}") for n in range(9)))
    for keys, headings in ((["down"] * 5, ["needs you"]), (["end"], ["needs you", "idle"])):
        pressed(state, *keys)
        rows = drawn(state, (80, 10)).frame.rows
        assert "18 sessions · 9 need you" in rows[0]
        assert [row for row in rows if row.endswith(" · 9")] == [f"{one} · 9" for one in headings]
        assert any(CHOSEN in row for row in rows[2:])


def test_who_has_needed_the_user_for_longest_stays_in_sight_wherever_the_user_looks() -> None:
    asking = [
        session(f"a{n}", status="waiting", requests=(PUSH,), updated_at=NOW - n) for n in range(9)
    ]
    state = board(*asking, *(session(f"i{n}") for n in range(30)))
    for _ in range(30):
        pressed(state, "down")
    rows, (cursor, _) = drawn(state, (60, 20)).frame
    assert [row.split()[:2] for row in rows[2:5]] == [["?", f"a{n}"] for n in (8, 7, 6)]
    assert rows[cursor].startswith(CHOSEN)
    assert state.row is not None
    assert state.row.name in rows[cursor]


@pytest.mark.parametrize(
    ("outcome", "reason", "mark"),
    [
        ("completed", "", "✓"),
        ("failed", "no such model", "✗"),
        ("limit_reached", "", "✗"),
        ("interrupted", "", "■"),
        ("interrupted", "The daemon was stopped.", "✗"),
    ],
)
def test_only_a_turn_that_completed_has_the_mark_of_success(
    outcome: str, reason: str, mark: str
) -> None:
    state = board(session("ended", unseen=True, last_outcome=outcome, reason=reason))
    assert f"{mark} ended" in shown(state)


def test_a_landed_session_is_marked_as_such() -> None:
    state = board(session("ended", landed=True, last_outcome="completed", last_line="All pass."))
    assert "landed · All pass." in shown(state)


def test_sessions_with_the_same_title_are_told_apart_by_their_worktrees() -> None:
    state = board(session("notes", worktree="notes-2", unseen=True, last_line="Done."))
    for columns, place in ((60, "notes-2"), (100, "notes-2"), (140, "accounts  notes-2")):
        assert drawn(state, (columns, 24)).frame.rows[2].split("  ", 1)[1].strip().startswith(place)
    pressed(state, "l")
    assert "l again lands the worktree notes-2: notes" in shown(state)
    state.say("")
    assert drawn(state, (80, 24)).frame.rows[-2].startswith("notes · notes-2 · Done.")


def test_groups_have_headings_with_their_numbers_in_order() -> None:
    text = shown(board(*in_every_group()), (100, 40))
    headings = ["needs you · 1", "working · 1", "waiting · 2", "done, not seen · 2", "idle · 1"]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_a_failed_session_has_another_mark() -> None:
    text = shown(board(*in_every_group()), (100, 40))
    assert "✓ ended" in text
    assert "✗ broke" in text


def test_rows_of_a_silent_host_are_grey_as_a_whole() -> None:
    state = board(*in_every_group(), label="box")
    state.take(News("box", NOW, problem="no route"))
    theme = Theme("dark", 16)
    rows = compose(state, (100, 40), NOW, 0.0, theme).frame.rows
    named = [row for row in rows if "box:accounts" in row]
    assert len(named) == len(in_every_group())
    assert all(row == theme.dim(row[4:-4]) for row in named)


def test_a_row_changes_only_if_its_session_does() -> None:
    """The painter writes only rows that have changed."""
    state = many(20)
    before = drawn(state, (100, 40)).frame.rows
    state.take(News("", NOW, [session("s3", status="idle", last_line="Now it is done.")]))
    pressed(state, "end", "home")
    before = drawn(state, (100, 40)).frame.rows
    state.take(News("", NOW, [session("s3", status="idle", last_line="Really.", head=11)]))
    after = drawn(state, (100, 40)).frame.rows
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def test_an_empty_board_says_how_to_begin_and_an_unheard_host_that_it_is_asked() -> None:
    assert "there are no sessions; start one with: tiller exec PROMPT" in shown(board())
    assert "asking for the sessions" in shown(BoardState([""]))
