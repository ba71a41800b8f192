"""Each event is delivered once and in order, whatever happens to live events (G2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_client.following.catchup import Follower
from tiller_client.following.snapshots import read_events
from tiller_protocol.answers import ReplayResult
from tiller_protocol.events import Event, SessionTitled


def event(seq: int, title: str = "") -> Event:
    return Event(seq, "s", 0.0, SessionTitled(title))


def replay(log: list[Event], after: int, page: int) -> ReplayResult:
    events = tuple(log[after : after + page])
    return ReplayResult(events, after + len(events), len(log))


def catch_up(follower: Follower, log: list[Event], page: int, log_id: str = "log") -> list[int]:
    """Ask for replays until the follower wants none, as a frontend does."""
    seqs: list[int] = []
    rounds = 0
    while (after := follower.wanted) is not None:
        seqs += [e.seq for e in follower.take_replay(replay(log, after, page), log_id).events]
        rounds += 1
        assert rounds <= len(log) // page + 3, "the follower asks for ever"
    return seqs


@st.composite
def bursts(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """How the log grows, and which events arrive live: lost, duplicated, in any order."""
    head, steps = 0, []
    for grown in draw(st.lists(st.integers(0, 12), max_size=8)):
        head += grown
        arriving = st.lists(st.integers(1, head), max_size=15) if head else st.just([])
        steps.append((head, draw(arriving)))
    return steps


@given(bursts(), st.integers(0, 20), st.integers(1, 7))
@pytest.mark.promise("G2", "B53", "B54")
def test_drops_doubles_and_reorderings_still_give_every_event_once_in_order(
    steps: list[tuple[int, list[int]]], after: int, page: int
) -> None:
    total = steps[-1][0] if steps else 0
    after = min(after, total)
    follower = Follower("log", after)
    delivered: list[int] = []
    for head, published in steps:
        log = [event(seq) for seq in range(1, head + 1)]
        delivered += [e.seq for e in follower.take_live(log[seq - 1] for seq in published)]
        if head >= after:
            delivered += catch_up(follower, log, page)
    follower.suspect_gap()
    delivered += catch_up(follower, [event(seq) for seq in range(1, total + 1)], page)
    assert delivered == list(range(after + 1, total + 1))


def test_the_first_thing_wanted_is_a_replay_from_where_one_was() -> None:
    assert Follower("log", 7).wanted == 7


def test_live_events_in_order_need_no_replay() -> None:
    follower = Follower("log")
    catch_up(follower, [event(1)], 5)
    assert [e.seq for e in follower.take_live([event(2), event(3)])] == [2, 3]
    assert follower.wanted is None


def test_a_jump_asks_for_a_replay_from_the_last_event_delivered() -> None:
    follower = Follower("log")
    catch_up(follower, [event(1)], 5)
    assert follower.take_live([event(4)]) == []
    assert follower.wanted == 1


def test_the_lost_last_event_of_a_burst_comes_after_a_doubt() -> None:
    follower = Follower("log")
    log = [event(1), event(2)]
    catch_up(follower, log[:1], 5)
    assert follower.wanted is None
    follower.suspect_gap()
    assert catch_up(follower, log, 5) == [2]


def test_a_replay_that_leaves_out_old_deltas_counts_as_far_as_it_says() -> None:
    follower = Follower("log")
    delivery = follower.take_replay(ReplayResult((event(1), event(9)), 9, 9), "log")
    assert [e.seq for e in delivery.events] == [1, 9]
    assert (follower.last, follower.wanted) == (9, None)


def test_what_came_live_while_a_replay_was_on_its_way_is_not_delivered_again() -> None:
    follower = Follower("log")
    assert [e.seq for e in follower.take_live([event(1), event(2)])] == [1, 2]
    late = ReplayResult((event(1), event(2), event(3)), 3, 3)
    assert [e.seq for e in follower.take_replay(late, "log").events] == [3]


def test_another_log_is_followed_from_its_start_and_says_so() -> None:
    follower = Follower("old")
    catch_up(follower, [event(seq) for seq in range(1, 9)], 5, "old")
    follower.suspect_gap()
    new = [event(1, "new"), event(2, "new")]
    assert follower.take_replay(replay(new, 8, 5), "new").started_over
    assert catch_up(follower, new, 5, "new") == [1, 2]


def test_a_log_that_ends_before_what_was_seen_is_another_one() -> None:
    follower = Follower("log", 8)
    assert follower.take_replay(ReplayResult((), 3, 3), "log").started_over
    assert follower.wanted == 0


def test_stale_events_of_another_log_do_not_make_it_ask_for_ever() -> None:
    follower = Follower("log")
    follower.take_live([event(900)])
    assert catch_up(follower, [event(1), event(2)], 5) == [1, 2]


def test_a_replay_that_does_not_get_on_is_not_asked_for_again_at_once() -> None:
    follower = Follower("log")
    assert follower.take_replay(ReplayResult((), 0, 5), "log").events == []
    assert follower.wanted is None


def test_the_events_so_far_are_read_page_by_page() -> None:
    log = [event(seq) for seq in range(1, 8)]
    for page in range(1, 9):
        read = read_events(lambda op, _kind, page=page: replay(log, op.after, page), "s", 2)
        assert [e.seq for e in read] == [3, 4, 5, 6, 7]


def test_reading_the_events_so_far_ends_if_a_page_does_not_get_on() -> None:
    pages = iter([ReplayResult((event(1),), 1, 5), ReplayResult((), 1, 5)])
    assert list(read_events(lambda _op, _kind: next(pages), "s")) == [event(1)]
