"""History at every prefix: recorded sessions are cut after each event, loaded and recovered (G4).

A daemon that dies leaves a prefix of the log. Whatever it is, what is loaded from it can be closed,
and the next request is one that every provider takes.
"""

import gc
import os
from copy import copy, deepcopy
from itertools import count

import pytest
import trio

from sim.batches import FIRST_SEED, fast, play_seed
from sim.player import SessionSeen
from support.wires import check_on_every_wire
from tiller_daemon.models.base import ModelRequest
from tiller_daemon.session.inputs.input_queue import InputQueue
from tiller_daemon.session.recovery import load_snapshot, recovery_of
from tiller_daemon.session.turns.resuming import may_be_resumed
from tiller_daemon.store.base import Log
from tiller_daemon.turn.closing import DAEMON_STOPPED, resuming_bodies
from tiller_daemon.turn.history import History
from tiller_protocol.events import Event, StepStarted
from tiller_protocol.fold import fold
from tiller_protocol.ids import ItemId
from tiller_protocol.items import Item, UserMessage
from tiller_protocol.lifecycle import LifecycleState, advance
from tiller_protocol.snapshot import Snapshot

PROGRAMS = int(os.environ.get("TILLER_PREFIX_PROGRAMS", "17"))
"""At least as many sessions: forks come on top."""

GROUP_PROGRAMS = 17
LONG_LOG = 200
"""Events of a log from which on not every prefix is played: the cost grows with their square."""
NEXT_INPUT = UserMessage(ItemId("next"), "go on", "start")


@pytest.mark.parametrize("group", range(PROGRAMS // GROUP_PROGRAMS))
@pytest.mark.promise("G4")
def test_valid_history_at_every_prefix_of_the_log(group: int) -> None:
    first = FIRST_SEED + group * GROUP_PROGRAMS
    with fast(measured=group == 0):
        for seed in range(first, first + GROUP_PROGRAMS):
            seen = play_seed(seed).seen
            assert seen is not None
            for session in seen.sessions.values():
                trio.run(_cut_everywhere, session, seen.store)
    gc.collect()  # or the worker stays large, and each of its forks slow


async def _cut_everywhere(session: SessionSeen, log: Log) -> None:
    sent: tuple[Item, ...] = ()
    state = LifecycleState()
    stride = 1 + len(session.log) // LONG_LOG
    for event in session.log:
        advance(state, event)
        if event.seq % stride:
            continue
        snapshot = await load_snapshot(log, session.session_id, event.seq)
        assert snapshot.seq == event.seq
        if event.seq in session.commits and may_be_resumed(snapshot):
            _resume(deepcopy(snapshot), deepcopy(state))
        _recover(snapshot, deepcopy(state))
        assert _rests(snapshot) or event.seq not in session.commits, event
        history = History([*snapshot.items, NEXT_INPUT], snapshot.pruned)
        if (items := history.for_request()) != sent:
            sent = items
            _check_request(snapshot, items)


def _recover(snapshot: Snapshot, state: LifecycleState) -> None:
    """Close what is open as the daemon does, and see that it is closed by the rules."""
    turn_id = snapshot.turn and snapshot.turn.turn_id
    queue, new_id = InputQueue(snapshot.queue), map("new{}".format, count()).__next__
    of_turn, of_session = recovery_of(snapshot, queue, new_id, DAEMON_STOPPED)
    bodies = [(body, turn_id) for body in of_turn] + [(body, None) for body in of_session]
    for body, owner in bodies:
        event = Event(snapshot.seq + 1, snapshot.session_id, snapshot.updated_at, body, owner)
        advance(state, event)
        fold(snapshot, event)
    assert snapshot.turn is None
    assert state.turn_id is None


def _resume(snapshot: Snapshot, state: LifecycleState) -> None:
    """Go on with the open turn as the daemon may, and see that its next step is a valid one."""
    turn = snapshot.turn
    assert turn is not None
    turn_before = copy(turn)
    now = snapshot.updated_at + 9.0
    bodies = resuming_bodies(snapshot, now, map("new{}".format, count()).__next__)
    for body in (*bodies, StepStarted(turn.step + 1)):
        event = Event(snapshot.seq + 1, snapshot.session_id, now, body, turn.turn_id)
        advance(state, event)
        fold(snapshot, event)
    assert snapshot.turn is not None
    assert snapshot.turn.resumed == turn_before.resumed + 1
    assert snapshot.turn.away_s == pytest.approx(turn_before.away_s + 9.0)
    assert not snapshot.open_items
    assert not snapshot.requests
    history = History(snapshot.items, snapshot.pruned)
    _check_request(snapshot, history.for_request())


def _rests(snapshot: Snapshot) -> bool:
    steering = [given for given in snapshot.queue if given.delivery == "steer"]
    return snapshot.status == "idle" and not (snapshot.open_items or snapshot.requests or steering)


def _check_request(snapshot: Snapshot, items: tuple[Item, ...]) -> None:
    request = ModelRequest(
        model="m",
        system="s",
        items=items,
        tools=(),
        session_id=snapshot.session_id,
        ordinal=snapshot.steps,
    )
    try:
        check_on_every_wire(request)
    except AssertionError as error:
        where = f"session {snapshot.session_id}, cut and recovered up to event {snapshot.seq}"
        raise AssertionError(f"{where}: {error}") from error
