"""The two sockets of a frontend: what they send again, what they drop, how they come back."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pynng
import pytest

from support.event_bodies import started
from support.fake_daemon import FakeDaemon
from tiller_client.connecting import sockets as sockets_module
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.connecting.sockets import EventSocket, RequestSocket
from tiller_protocol.answers import DaemonStatusResult
from tiller_protocol.events import Event, SessionTitled
from tiller_protocol.ops import DaemonStatus
from tiller_protocol.places import OPS_SOCKET, Places

TIMEOUT_S = 10.0
REP_GREETING = b"\0SP\0\0\x31\0\0"
FRONTENDS = 40


class PlainPeer:
    """Accepts connections at the ops socket and shows what comes; says what a test makes it say."""

    def __init__(self, runtime: Path) -> None:
        runtime.mkdir(mode=0o700, parents=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(TIMEOUT_S)
        self.listener.bind(str(runtime / OPS_SOCKET))
        self.listener.listen()

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        connection.settimeout(TIMEOUT_S)
        assert exactly(connection, 8) == b"\0SP\0\0\x30\0\0"
        connection.sendall(REP_GREETING)
        return connection


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data))
    return data


def next_message(connection: socket.socket) -> bytes:
    header = exactly(connection, 9)
    return exactly(connection, int.from_bytes(header[1:], "big"))


def say(connection: socket.socket, message: bytes) -> None:
    connection.sendall(b"\x01" + len(message).to_bytes(8, "big") + message)


@pytest.fixture
def peer(places: Places) -> Generator[PlainPeer]:
    made = PlainPeer(places.runtime)
    yield made
    made.listener.close()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not happened():
        assert time.monotonic() < deadline


def test_a_late_answer_to_an_earlier_request_is_dropped(places: Places, peer: PlainPeer) -> None:
    with contextlib.closing(RequestSocket(places)) as ops:
        assert ops.connect()
        ops.send(b"first")
        with peer.accept() as other:
            first = next_message(other)
            assert ops.receive(0.01) is None
            ops.send(b"second")
            second = next_message(other)
            assert first[4:], second[4:] == (b"first", b"second")
            assert first[0] & second[0] & 0x80
            say(other, first[:4] + b"late")
            say(other, second[:4] + b"answer")
            assert ops.receive(TIMEOUT_S) == b"answer"


@pytest.mark.promise("G3")
def test_a_new_connection_gets_the_unanswered_request_again(
    places: Places, peer: PlainPeer
) -> None:
    with contextlib.closing(RequestSocket(places)) as ops:
        assert ops.connect()
        ops.send(b"op")
        with peer.accept() as other:
            first = next_message(other)
        assert ops.receive(TIMEOUT_S) is None
        assert not ops.connected
        assert ops.connect()
        with peer.accept() as other:
            assert next_message(other) == first
            say(other, first[:4] + b"done")
            assert ops.receive(TIMEOUT_S) == b"done"
        assert ops.receive(TIMEOUT_S) is None
        assert ops.connect()
        with peer.accept() as other:  # what was answered is not sent again
            ops.send(b"next")
            assert next_message(other)[4:] == b"next"


@pytest.mark.promise("G3")
def test_an_unanswered_request_is_sent_again_after_a_while(
    places: Places, peer: PlainPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "RESEND_S", 0.01)
    with contextlib.closing(RequestSocket(places)) as ops:
        assert ops.connect()
        ops.send(b"op")
        with peer.accept() as other:
            waiting = threading.Thread(target=ops.receive, args=(TIMEOUT_S,))
            waiting.start()
            first = next_message(other)
            assert next_message(other) == first
            say(other, first[:4] + b"done")
            waiting.join()


@pytest.mark.parametrize("answer", [b"", b"abc"])
def test_an_answer_without_a_number_ends_the_connection(
    places: Places, peer: PlainPeer, answer: bytes
) -> None:
    with contextlib.closing(RequestSocket(places)) as ops:
        assert ops.connect()
        ops.send(b"op")
        with peer.accept() as other:
            say(other, answer)
            assert ops.receive(TIMEOUT_S) is None
            assert not ops.connected


def test_a_connection_is_made_once_and_never_to_see_whether_somebody_listens(
    places: Places,
) -> None:
    """Nng waits 100 ms after a connection that is closed at once: other frontends pay for it."""
    made: list[str] = []
    connect = socket.socket.connect
    with FakeDaemon(places.runtime), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "socket.socket.connect",
            lambda self, address: (made.append(address), connect(self, address))[1],
        )
        with DaemonConnection(places, "test") as connection:
            connection.ask(DaemonStatus(), DaemonStatusResult)
    assert made == [str(places.runtime / OPS_SOCKET)]


def test_many_frontends_at_once_are_all_answered(places: Places) -> None:
    places.runtime.mkdir(mode=0o700, parents=True)
    address = f"ipc://{places.runtime / OPS_SOCKET}"
    with pynng.Rep0(listen=address, recv_timeout=10_000) as echo, contextlib.ExitStack() as stack:

        def answer() -> None:
            for _ in range(FRONTENDS):
                echo.send(echo.recv())

        answering = threading.Thread(target=answer)
        answering.start()
        frontends = [RequestSocket(places) for _ in range(FRONTENDS)]
        for number, ops in enumerate(frontends):
            stack.callback(ops.close)
            assert ops.connect()
            ops.send(b"%d" % number)
        for number, ops in enumerate(frontends):
            assert ops.receive(TIMEOUT_S) == b"%d" % number
        answering.join()


def join(daemon: FakeDaemon, events: EventSocket) -> None:
    """Publish until something arrives: nng sends to a subscriber a moment after it greets it."""
    received: list[Event] = []

    def has_arrived() -> bool:
        daemon.add("s1", [started()])
        received.extend(events.drain())
        return bool(received)

    def has_last() -> bool:
        received.extend(events.drain())
        return received[-1].seq == len(daemon.sessions["s1"])

    wait_until(has_arrived)
    wait_until(has_last)


def titles(events: list[Event]) -> list[str]:
    return [event.body.title for event in events if isinstance(event.body, SessionTitled)]


def drained(events: EventSocket, count: int) -> list[Event]:
    got: list[Event] = []

    def enough() -> bool:
        got.extend(events.drain())
        return len(got) >= count

    wait_until(enough)
    return got


def test_only_events_of_the_topic_come_though_the_daemon_sends_all(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon, EventSocket(places, "s1") as events:
        join(daemon, events)
        for session_id in ("s1", "s", "s10", "daemon", "s1"):
            daemon.add(session_id, [SessionTitled(session_id)])
        assert titles(drained(events, 2)) == ["s1", "s1"]


def test_an_event_that_can_not_be_decoded_is_dropped(places: Places) -> None:
    with FakeDaemon(places.runtime) as daemon, EventSocket(places, "s1") as events:
        join(daemon, events)
        daemon._pub.send(b"s1\0not an event")
        daemon._pub.send(b"no topic")
        daemon.add("s1", [started()])
        assert len(drained(events, 1)) == 1


def test_events_come_again_after_the_daemon_has_come_back(places: Places) -> None:
    with contextlib.ExitStack() as stack:
        with FakeDaemon(places.runtime):
            events = stack.enter_context(EventSocket(places, "s1"))
            assert not events.take_joined()
            assert events.sources
        wait_until(lambda: not events.drain() and not events.sources)
        assert events.wait_s_max < 1
        with FakeDaemon(places.runtime) as second:
            wait_until(lambda: not events.drain() and events.take_joined())
            assert not events.take_joined()
            join(second, events)
            second.add("s1", [SessionTitled("back")])
            assert titles(drained(events, 1)) == ["back"]


def test_a_daemon_that_does_not_listen_yet_is_joined_late(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "JOIN_DEADLINE_S", 0.01)
    places.runtime.mkdir(mode=0o700, parents=True)
    with EventSocket(places, "s1") as events, FakeDaemon(places.runtime):
        wait_until(lambda: not events.drain() and events.take_joined())
