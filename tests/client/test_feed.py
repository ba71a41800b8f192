"""A feed goes on after its daemon: it starts one that has crashed, and waits for a stopped one."""

import os
import threading
import time
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from support.event_bodies import Tiller
from support.fake_daemon import FakeDaemon, program
from tiller_client.connecting.pool import ConnectionPool
from tiller_client.connecting.starting import wait_for_daemons
from tiller_client.errors import RejectedError, StartedOver
from tiller_client.following import watch
from tiller_client.following.feed import Feed
from tiller_protocol.events import Event, SessionCreated, SessionTitled
from tiller_protocol.places import TOKEN_FILE, Places
from tiller_protocol.settings import Settings

SESSION = "01K0AAAAAAAAAAAAAAAAAAASES"
TIMEOUT_S = 10.0
SEED = int(os.environ.get("TEST_SEED", "20261121"))
DAEMONS = 5


@pytest.fixture
def pool(places: Places) -> Generator[ConnectionPool]:
    pool = ConnectionPool(places, "test")
    yield pool
    pool.close()


def read(feed: Feed, count: int) -> list[int]:
    """The numbers of the next events."""
    seqs: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(seqs) < count:
        assert time.monotonic() < deadline, seqs
        feed.wait()
        while event := feed.take():
            seqs.append(event.seq)
    return seqs


def first_daemon(places: Places) -> FakeDaemon:
    daemon = FakeDaemon(places.runtime)
    daemon.sessions[SESSION] = []
    return daemon


def test_a_daemon_that_has_crashed_is_started_and_its_events_go_on(
    places: Places, pool: ConnectionPool, fake_module: Path, tiller: Tiller
) -> None:
    feed = Feed(pool, SESSION)
    with first_daemon(places) as first:
        with pool.connection():
            pass  # which stays idle
        first.add(SESSION, [SessionCreated("/w", Settings()), SessionTitled("a")])
        assert read(feed, 2) == [1, 2]
    events = first.sessions[SESSION]
    fake_module.write_text(program(events=[*events, structs.replace(events[1], seq=3)]))
    assert read(feed, 1) == [3]
    feed.close()
    assert tiller("daemon", "stop")[0] == 0
    wait_for_daemons(places)


def test_a_daemon_that_was_stopped_is_not_started(
    places: Places, pool: ConnectionPool, fake_module: Path
) -> None:
    started = fake_module.with_name("started")
    fake_module.write_text(f"open({str(started)!r}, 'w')")
    feed = Feed(pool, SESSION)
    with first_daemon(places) as first:
        first.add(SESSION, [SessionCreated("/w", Settings())])
        assert read(feed, 1) == [1]
    (places.runtime / TOKEN_FILE).unlink()
    deadline = time.monotonic() + TIMEOUT_S
    while feed.caught_up:
        assert time.monotonic() < deadline
        feed.wait()
    feed.wait()  # asks for what is missing, and finds nobody
    assert feed.take() is None
    wait_for_daemons(places)
    assert not started.exists()
    second = FakeDaemon(places.runtime, token="new", sessions=first.sessions)
    with second:
        second.add(SESSION, [SessionTitled("b")])
        assert read(feed, 1) == [2]
    feed.close()


@pytest.mark.promise("G2")
def test_each_event_comes_once_and_in_order_while_daemons_change_and_lose_events(
    places: Places, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENCE_BUSY_S", 0.2)
    random = Random(SEED)
    feed, log = Feed(pool, SESSION), list[Event]()
    taken: list[int] = []
    for number in range(DAEMONS):
        with FakeDaemon(places.runtime, token=str(number), sessions={SESSION: log}) as daemon:
            for _ in range(random.randrange(20)):
                daemon.add(SESSION, [SessionTitled("a")], lost=random.random() < 0.3)
                if random.random() < 0.2:
                    daemon.publish(random.choice(log))
                if random.random() < 0.5:
                    taken += read(feed, min(1, len(log) - len(taken)))
            taken += read(feed, random.randint(0, len(log) - len(taken)))
            if number == DAEMONS - 1:
                taken += read(feed, len(log) - len(taken))
        (places.runtime / TOKEN_FILE).unlink()
    feed.close()
    assert taken == list(range(1, len(log) + 1)), f"TEST_SEED={SEED}"


def test_a_new_log_is_told_and_followed_from_its_start(
    places: Places, pool: ConnectionPool
) -> None:
    feed = Feed(pool, SESSION, after=1)
    with first_daemon(places) as first:
        first.add(SESSION, [SessionCreated("/w", Settings()), SessionTitled("a")])
        assert read(feed, 1) == [2]
    (places.runtime / TOKEN_FILE).unlink()
    second = FakeDaemon(places.runtime, log_id="log-2")
    second.sessions[SESSION] = first.sessions[SESSION][:1]
    with second:
        with pytest.raises(StartedOver):
            read(feed, 1)
        assert read(feed, 1) == [1]
    feed.close()


def test_close_ends_all_waits_in_other_threads_and_may_be_repeated(
    places: Places, pool: ConnectionPool
) -> None:
    with first_daemon(places) as daemon:
        daemon.add(SESSION, [SessionCreated("/w", Settings())])
        feed = Feed(pool, SESSION)
        read(feed, 1)

        def wait_until_closed() -> None:
            while not feed.closed:
                feed.wait()

        waiting = [threading.Thread(target=wait_until_closed) for _ in range(3)]
        for thread in waiting:
            thread.start()
        feed.close()
        feed.close()
        for thread in waiting:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        feed.wait()


def test_a_session_that_is_not_there_is_a_rejection(places: Places, pool: ConnectionPool) -> None:
    with FakeDaemon(places.runtime):
        feed = Feed(pool, "01NOSUCH")
        with pytest.raises(RejectedError, match="no session"):
            feed.wait()
        feed.close()
