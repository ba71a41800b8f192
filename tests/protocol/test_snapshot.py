"""The fold: it accepts every legal session, and detects missing events."""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from protocol.histories import tell_session
from tiller_protocol.events import (
    ItemCompleted,
    ItemStarted,
    RequestOpened,
    RequestResolved,
    StepEnded,
    TurnEnded,
    TurnStarted,
)
from tiller_protocol.fold import SequenceGap, fold
from tiller_protocol.items import Usage
from tiller_protocol.snapshot import Snapshot
from tiller_protocol.turns import add_cost

SEEDS = st.integers(0, 2**32)


def folded(events) -> Snapshot:
    snapshot = Snapshot("s")
    for event in events:
        fold(snapshot, event)
    return snapshot


def count(events, kind) -> int:
    return sum(isinstance(event.body, kind) for event in events)


@given(SEEDS, st.integers(0, 60))
def test_any_beginning_of_a_session_folds_to_what_it_says(seed, length):
    events = tell_session(seed, 60)[:length]
    snapshot = folded(events)
    assert snapshot.seq == length
    assert len(snapshot.items) == count(events, ItemStarted)
    assert len(snapshot.open_items) == count(events, ItemStarted) - count(events, ItemCompleted)
    assert len(snapshot.requests) == count(events, RequestOpened) - count(events, RequestResolved)
    assert (snapshot.turn is not None) == (count(events, TurnStarted) > count(events, TurnEnded))
    assert snapshot.turns == count(events, TurnStarted)
    assert snapshot.usage.input_tokens == 3 * count(events, StepEnded)


@given(SEEDS, st.integers(1, 59))
def test_a_snapshot_sent_and_folded_on_is_the_same(seed, cut):
    events = tell_session(seed, 60)
    sent = msgspec.msgpack.encode(folded(events[:cut]))
    joined = msgspec.msgpack.decode(sent, type=Snapshot)
    for event in events[cut:]:
        fold(joined, event)
    assert joined == folded(events)


@given(SEEDS, st.integers(0, 50), st.integers(2, 9))
def test_a_gap_is_said_and_changes_nothing(seed, cut, ahead):
    events = tell_session(seed, 60)
    snapshot = folded(events[:cut])
    before = copy.deepcopy(snapshot)
    for wrong in (events[cut + ahead - 1], structs.replace(events[cut], seq=cut)):
        with pytest.raises(SequenceGap):
            fold(snapshot, wrong)
    assert snapshot == before


@given(SEEDS)
def test_two_snapshots_share_nothing(seed):
    events = tell_session(seed, 30)
    first = folded(events)
    kept = copy.deepcopy(first)
    folded(events)
    assert first == kept


def test_costs_and_usage_add_up():
    assert add_cost(None, None) is None
    assert add_cost(None, 1.0) == 1.0
    assert add_cost(1.0, None) == 1.0
    assert add_cost(1.0, 2.0) == 3.0
    assert Usage(1, 2, 3, 4).plus(Usage(10, 20, 30, 40)) == Usage(11, 22, 33, 44)
