"""A watch fetches lost events: after a silence, a reconnection or a stop."""

import contextlib
import os
import select
import signal
import time

import pytest

from support.event_bodies import started
from support.fake_daemon import FakeDaemon, Refusal
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.errors import NoDaemon, RejectedError
from tiller_client.following import watch as watch_module
from tiller_client.following.watch import Signals, Watch
from tiller_protocol.events import SessionCreated, SessionTitled
from tiller_protocol.ops import Replay
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAAASES"
TIMEOUT_S = 10.0


def wait_for(watch: Watch, seq: int, *, busy: bool = True) -> list[int]:
    """Wait until event `seq` has arrived; return all events."""
    seqs: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while seq not in seqs:
        assert time.monotonic() < deadline, seqs
        seqs += [event.seq for event in watch.wait(busy=busy).events]
    return seqs


@pytest.fixture(autouse=True)
def only_what_is_tested_asks_for_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "SILENCE_BUSY_S", 1e9)
    monkeypatch.setattr(watch_module, "SILENCE_IDLE_S", 1e9)
    monkeypatch.setattr(watch_module, "RENEW_S", 1e9)


@pytest.mark.parametrize("limit", ["SILENCE_BUSY_S", "SILENCE_IDLE_S"])
@pytest.mark.promise("B54")
def test_the_lost_last_event_of_a_burst_comes_after_a_silence(
    places: Places, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings())])
        with (
            DaemonConnection(places, "test", may_start=False) as connection,
            Signals("detached") as signals,
            Watch(connection, SESSION, signals) as watch,
        ):
            wait_for(watch, 1)
            read_until_quiet(watch)
            daemon.add(SESSION, [started()], lost=True)
            monkeypatch.setattr(watch_module, limit, 0.01)
            assert wait_for(watch, 2, busy=limit == "SILENCE_BUSY_S") == [2]


def test_what_was_missed_comes_at_once_after_a_reconnection(places: Places) -> None:
    with contextlib.ExitStack() as stack:
        with FakeDaemon(places.runtime) as first:
            first.add(SESSION, [SessionCreated("/w", Settings())])
            connection = stack.enter_context(DaemonConnection(places, "test", may_start=False))
            signals = stack.enter_context(Signals("detached"))
            watch = stack.enter_context(Watch(connection, SESSION, signals))
            wait_for(watch, 1)
            read_until_quiet(watch)
        second = FakeDaemon(places.runtime, token="new", sessions=first.sessions)
        second.add(SESSION, [SessionTitled("missed")], lost=True)
        with second:
            assert wait_for(watch, 2) == [2]


def test_a_daemon_that_has_ended_is_missed_without_a_silence(places: Places) -> None:
    with contextlib.ExitStack() as stack:
        with FakeDaemon(places.runtime) as daemon:
            daemon.add(SESSION, [SessionCreated("/w", Settings())])
            connection = stack.enter_context(DaemonConnection(places, "test", may_start=False))
            signals = stack.enter_context(Signals("detached"))
            watch = stack.enter_context(Watch(connection, SESSION, signals))
            wait_for(watch, 1)
            read_until_quiet(watch)
        with pytest.raises(NoDaemon):
            wait_for(watch, 2, busy=False)


def test_who_waits_for_a_turn_leaves_when_no_daemon_follows_one_that_was_stopped(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "NEXT_DAEMON_S", 0.3)
    with contextlib.ExitStack() as stack:
        with FakeDaemon(places.runtime) as daemon:
            daemon.add(SESSION, [SessionCreated("/w", Settings()), started()])
            connection = stack.enter_context(DaemonConnection(places, "test", may_start=False))
            signals = stack.enter_context(Signals("detached"))
            watch = stack.enter_context(
                Watch(connection, SESSION, signals, patient=True, leaves_stopped=True)
            )
            wait_for(watch, 2)
            read_until_quiet(watch)
        with pytest.raises(NoDaemon):
            wait_for(watch, 3)


@pytest.mark.promise("B53")
def test_what_was_missed_comes_at_once_after_a_stop(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings())])
        with (
            DaemonConnection(places, "test", may_start=False) as connection,
            Signals("detached") as signals,
            Watch(connection, SESSION, signals) as watch,
        ):
            wait_for(watch, 1)
            read_until_quiet(watch)
            daemon.add(SESSION, [SessionTitled("missed")], lost=True)
            os.kill(os.getpid(), signal.SIGCONT)
            assert wait_for(watch, 2) == [2]


@pytest.mark.promise("G2")
def test_events_that_came_live_are_kept_when_a_replay_is_rejected(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings())])
        with (
            DaemonConnection(places, "test", may_start=False) as connection,
            Signals("detached") as signals,
            Watch(connection, SESSION, signals) as watch,
        ):
            wait_for(watch, 1)
            read_until_quiet(watch)
            daemon.refusals[Replay] = Refusal("unavailable", "try again")
            daemon.add(SESSION, [SessionTitled("a")])
            assert select.select(watch.sources, [], [], TIMEOUT_S)[0]
            watch.suspect_gap()
            with pytest.raises(RejectedError):
                watch.wait(busy=True)
            daemon.refusals.clear()
            assert wait_for(watch, 2) == [2]


def read_until_quiet(watch: Watch) -> None:
    """Wait for the replay after the first connection."""
    for _ in range(5):
        assert not watch.wait(busy=True).events
