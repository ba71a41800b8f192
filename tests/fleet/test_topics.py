"""Only topics that somebody follows go through the broker."""

import pytest

from tiller_client.fleet.topics import TOPICS_MAX, Topics
from tiller_protocol.lending import LEASE_S, SessionLend
from tiller_protocol.op_traits import only_reads
from tiller_protocol.ops import AnyOp, Catalog, Hello, Project, Replay, SessionGet, UserInput
from tiller_protocol.sessions import FOLLOW_LEASE_S, SessionMarkSeen


def test_a_session_is_followed_for_a_while_after_each_replay() -> None:
    topics = Topics()
    assert topics.note(Replay("S1"), 0.0) == "S1"
    assert topics.note(UserInput("S2", "hi"), 0.0) == ""
    assert topics.has("S1", FOLLOW_LEASE_S - 1)
    topics.note(Replay("S1"), 10.0)
    assert topics.has("S1", FOLLOW_LEASE_S + 9)
    assert topics.expire(FOLLOW_LEASE_S + 9) == []
    assert topics.expire(FOLLOW_LEASE_S + 10) == ["S1"]
    assert not topics.has("S1", FOLLOW_LEASE_S + 10)
    assert topics.has("daemon", 1e9)


def test_who_leaves_a_session_does_not_end_it_for_others() -> None:
    topics = Topics()
    topics.note(Replay("S1"), 0.0)
    topics.note(Replay("S1", leaves=True), 1.0)
    assert topics.has("S1", 5.0)


def test_a_lender_is_asked_as_long_as_its_loan_lasts() -> None:
    topics = Topics()
    assert topics.note(SessionLend("S1", "L1", reads_files=True), 0.0) == "lender/L1"
    assert topics.note(SessionLend("S1", "L2"), 0.0) == ""
    assert topics.has("lender/L1", LEASE_S - 1)
    assert not topics.has("lender/L2", 1.0)


@pytest.mark.parametrize("session_id", ["*", ">", "a.b", "a b", "a/b/c", "é"])
def test_an_id_that_is_no_token_of_a_subject_is_followed_by_nobody(session_id: str) -> None:
    assert Topics().note(Replay(session_id), 0.0) == ""


def test_topics_are_bounded() -> None:
    topics = Topics()
    for number in range(TOPICS_MAX + 1):
        topics.note(Replay(f"S{number}"), float(number) / TOPICS_MAX)
    assert not topics.has("S0", 2.0)
    assert topics.has("S1", 2.0)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Hello(1, "x"), True),
        (SessionGet("S"), True),
        (Replay("S"), True),
        (Replay("S", focus=True), False),
        (Catalog(), True),
        (Catalog(start_servers=True), False),
        (Catalog(ask=True), False),
        (Catalog(offers=True), False),
        (Project("/w"), True),
        (Project("/w", trust=False), False),
        (UserInput("S", "hi"), False),
        (SessionMarkSeen("S", until=1), False),
    ],
)
def test_what_only_reads(op: AnyOp, expected: object) -> None:
    assert only_reads(op) is expected
