"""The board's rows follow the hosts' news, whatever comes from which host in which order."""

from hypothesis import given
from hypothesis import strategies as st

from support.boards import NOW, PUSH, board, in_every_group, session, shown
from tiller_client.board.sessions import GROUPS
from tiller_client.board.state import STALE_S, BoardState
from tiller_client.following.overview import News
from tiller_protocol.snapshot import SessionSummary

KINDS = in_every_group()
SESSIONS = st.builds(
    lambda number, kind: session(f"s{number}", **{
        name: getattr(KINDS[kind], name)
        for name in ("status", "requests", "queued", "unseen", "last_outcome", "updated_at")
    }),
    st.integers(0, 9), st.integers(0, len(KINDS) - 1),
)  # fmt: skip
ALL_NEWS = st.lists(
    st.builds(
        lambda label, changed, gone, whole, problem: News(
            label, NOW, [*{one.session_id: one for one in changed}.values()], gone, whole, problem
        ),
        st.sampled_from(["", "box"]), st.lists(SESSIONS, max_size=4),
        st.lists(st.sampled_from([session(f"s{n}").session_id for n in range(10)]), max_size=2),
        st.booleans(), st.sampled_from(["", "", "no route"]),
    ),
    max_size=12,
)  # fmt: skip


def expected(all_news: list[News]) -> dict[str, dict[str, SessionSummary]]:
    """What the news say in the end, in the simplest way."""
    hosts: dict[str, dict[str, SessionSummary]] = {"": {}, "box": {}}
    for news in all_news:
        if news.problem:
            continue
        known = {} if news.whole else hosts[news.label]
        known |= {one.session_id: one for one in news.changed}
        hosts[news.label] = {key: one for key, one in known.items() if key not in news.gone}
    return hosts


@given(ALL_NEWS)
def test_every_session_has_one_row_in_its_group(all_news: list[News]) -> None:
    state = BoardState(["", "box"])
    for news in all_news:
        state.take(news)
        state.rows  # noqa: B018 - what was shown before must not matter
    wanted = {(host, key) for host, known in expected(all_news).items() for key in known}
    assert {row.key for row in state.rows} == wanted
    assert len(state.rows) == len(wanted)
    places = [GROUPS.index(row.group) for row in state.rows]
    assert places == sorted(places)


@given(ALL_NEWS, st.integers(0, 30))
def test_the_chosen_session_stays_chosen_while_it_is_there(all_news: list[News], at: int) -> None:
    state = BoardState(["", "box"])
    for news in all_news:
        state.choose(at)
        before = state.chosen
        state.take(news)
        keys = {row.key for row in state.rows}
        assert state.chosen == before or before not in keys
        assert state.chosen in keys if keys else state.chosen is None
        assert state.row is None or state.row.key == state.chosen


def test_rows_of_a_host_that_says_nothing_stay_and_come_back_without_loss() -> None:
    state = board(session("one"), label="box")
    state.take(News("box", NOW, problem="ssh can't reach box"))
    assert "! box has said nothing for 0 s: ssh can't reach box" in shown(state)
    assert [row.name for row in state.rows] == ["one"]
    state.take(News("box", NOW + 9, [session("two")], whole=True))
    assert [row.name for row in state.rows] == ["two"]
    assert "has said nothing" not in shown(state)


def test_a_host_that_is_silent_for_long_is_stale_without_a_problem() -> None:
    state = board(session("one"))
    host = state.hosts[""]
    assert (host.is_stale(NOW + STALE_S), host.is_stale(NOW + STALE_S + 1)) == (False, True)


def test_a_sub_agent_has_a_row_only_while_it_asks_what_its_owner_does_not_show() -> None:
    owner = session("owner", status="busy")
    agent = session("agent", status="waiting", requests=(PUSH,), owner_id=owner.session_id)
    state = board(owner, agent)
    assert [row.name for row in state.rows] == ["agent", "owner"]
    asking = session("owner", status="waiting", requests=(PUSH,), head=10)
    state.take(News("", NOW, [asking]))
    assert [row.name for row in state.rows] == ["owner"]


def test_a_board_of_one_workspace_shows_no_other() -> None:
    state = BoardState([""], wanted=lambda one: one.workspace == "/src/web")
    state.take(News("", NOW, [session("one"), session("two", workspace="/src/web")], whole=True))
    assert [row.name for row in state.rows] == ["two"]
