"""The lists of several hosts: what changes is told, and no host waits for another."""

import queue
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from support.fake_daemon import FakeDaemon
from tiller_client.connecting.pool import ConnectionPool
from tiller_client.following import overview
from tiller_client.following.overview import FollowedHost, News, Overview
from tiller_protocol.events import (
    RequestOpened,
    RequestResolved,
    SessionArchived,
    SessionCreated,
    SessionTitled,
)
from tiller_protocol.items import Request
from tiller_protocol.ops import SessionList
from tiller_protocol.places import Places
from tiller_protocol.settings import Settings

ONE, TWO = "01K0AAAAAAAAAAAAAAAAAAAAA1", "01K0AAAAAAAAAAAAAAAAAAAAA2"
TIMEOUT_S = 10.0
ASKED = Request("r1", "approval", "Run make")


class Heard:
    """What the hosts have said so far."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.titles: dict[str, dict[str, str]] = {}
        self.problems: dict[str, str] = {}

    def until(self, wanted: Callable[[], bool]) -> None:
        """Take news until `wanted` returns true."""
        deadline = time.monotonic() + TIMEOUT_S
        while not wanted():
            news = self.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            self.problems[news.label] = news.problem
            if not news.problem:
                known = {} if news.whole else self.titles.get(news.label, {})
                known = known | {one.session_id: one.title for one in news.changed}
                kept = {key: title for key, title in known.items() if key not in news.gone}
                self.titles[news.label] = kept

    def until_titles(self, label: str, *titles: str) -> None:
        """Take news until a host has exactly sessions with these titles."""
        self.until(lambda: sorted(self.titles.get(label, {"": "-"}).values()) == sorted(titles))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def far(places: Places, tmp_path: Path) -> Places:
    """The places of another host's daemon."""
    return places._replace(state=tmp_path / "far", runtime=tmp_path / "far")


@pytest.fixture
def hosts(places: Places, far: Places, fake_module: Path) -> Generator[list[FollowedHost]]:
    """This machine and another host, whose daemons do not start by themselves."""
    fake_module.write_text("")
    pools = [ConnectionPool(places, "test"), ConnectionPool(far, "test")]
    yield [FollowedHost("", pools[0]), FollowedHost("box", pools[1])]
    for pool in pools:
        pool.close()


def begin(daemon: FakeDaemon, session_id: str, title: str) -> None:
    """Create a session with a title."""
    daemon.add(session_id, [SessionCreated("/w", Settings()), SessionTitled(title)])


def test_sessions_are_told_first_and_then_only_what_changes(
    places: Places, hosts: list[FollowedHost], heard: Heard
) -> None:
    with FakeDaemon(places.runtime) as daemon:
        begin(daemon, ONE, "one")
        with Overview(hosts[:1], heard.inbox.put):
            heard.until_titles("", "one")
            begin(daemon, TWO, "two")
            heard.until_titles("", "one", "two")
            daemon.add(ONE, [SessionTitled("first")])
            heard.until_titles("", "first", "two")
            daemon.add(TWO, [SessionArchived(archived=True)])
            heard.until_titles("", "first")
        lists = [op for op in daemon.seen.values() if isinstance(op, SessionList)]
    asked = [op.sessions for op in lists if op.sessions]
    assert set(asked) == {(ONE,), (TWO,)}, "only the sessions that events were about"


def test_a_host_is_told_whether_somebody_looks_at_its_sessions(
    places: Places, hosts: list[FollowedHost], heard: Heard
) -> None:
    looks = True
    with FakeDaemon(places.runtime) as daemon:
        begin(daemon, ONE, "one")
        with Overview(hosts[:1], heard.inbox.put, lambda: looks):
            heard.until_titles("", "one")
            looks = False
            daemon.add(ONE, [SessionTitled("first")])
            heard.until_titles("", "first")
        lists = [op for op in daemon.seen.values() if isinstance(op, SessionList)]
    assert (lists[0].focus, lists[-1].focus) == (True, False)


def test_a_host_that_answers_nothing_and_one_that_is_dead_delay_nobody(
    places: Places, far: Places, hosts: list[FollowedHost], heard: Heard
) -> None:
    dead = FollowedHost("dead", ConnectionPool(far._replace(runtime=Path("/nowhere")), "test"))
    with FakeDaemon(far.runtime) as silent, FakeDaemon(places.runtime) as daemon:
        silent.quick.clear()
        begin(daemon, ONE, "one")
        with Overview([dead, hosts[1], hosts[0]], heard.inbox.put):
            heard.until_titles("", "one")
            daemon.add(ONE, [SessionTitled("still heard")])
            heard.until_titles("", "still heard")
            assert "box" not in heard.titles
            begin(silent, TWO, "late")
            silent.quick.set()
            heard.until_titles("box", "late")


def test_a_host_comes_back_with_what_it_has_then(
    places: Places, hosts: list[FollowedHost], heard: Heard
) -> None:
    with Overview(hosts[:1], heard.inbox.put):
        with FakeDaemon(places.runtime) as daemon:
            begin(daemon, ONE, "one")
            begin(daemon, TWO, "two")
            heard.until_titles("", "one", "two")
            places.runtime.joinpath("token").unlink()  # it is stopped, not killed
        heard.until(lambda: bool(heard.problems[""]))
        assert sorted(heard.titles[""].values()) == ["one", "two"]
        del daemon.sessions[ONE]
        with FakeDaemon(places.runtime, sessions=daemon.sessions, token="new") as again:
            again.add(TWO, [SessionTitled("changed meanwhile")])
            heard.until_titles("", "changed meanwhile")
            assert heard.problems[""] == ""


def test_a_lost_publication_of_a_busy_session_is_noticed(
    places: Places, hosts: list[FollowedHost], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "SILENCE_S", 0.1)
    with FakeDaemon(places.runtime) as daemon:
        begin(daemon, ONE, "one")
        daemon.add(ONE, [RequestOpened(ASKED)])
        with Overview(hosts[:1], heard.inbox.put):
            heard.until_titles("", "one")
            resolved = RequestResolved(ASKED.id, "once", by="x")
            daemon.add(ONE, [resolved, SessionTitled("went on")], lost=True)
            heard.until_titles("", "went on")


def test_a_session_that_was_deleted_goes(
    places: Places, hosts: list[FollowedHost], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "SILENCE_S", 0.1)
    monkeypatch.setattr(overview, "WHOLE_S", 0.2)
    with FakeDaemon(places.runtime) as daemon:
        begin(daemon, ONE, "one")
        begin(daemon, TWO, "two")
        with Overview(hosts[:1], heard.inbox.put):
            heard.until_titles("", "one", "two")
            del daemon.sessions[ONE]
            heard.until_titles("", "two")
