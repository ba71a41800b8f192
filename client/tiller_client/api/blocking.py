"""A frontend in plain Python, whose objects may be used by several threads.

Run a turn and print its text as it comes::

    from tiller_client.api.blocking import Client
    from tiller_protocol.events import ItemDelta, TurnEnded
    from tiller_protocol.settings import Settings

    with Client("my program") as client:
        session = client.create_session(".", Settings(approve="always"))
        session.send("What is in this directory?")
        for event in session.follow():
            match event.body:
                case ItemDelta(item_type="assistant_message", delta=piece):
                    print(piece, end="", flush=True)
                case TurnEnded(outcome=outcome):
                    break
    print(outcome)
"""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Self, TypeVar

from tiller_client.connecting.pool import ConnectionPool
from tiller_client.following.feed import Feed
from tiller_client.following.snapshots import read_snapshot
from tiller_protocol.answers import (
    AnyResult,
    Created,
    HelloResult,
    Queued,
    Started,
    Steered,
)
from tiller_protocol.events import Event
from tiller_protocol.items import Decision
from tiller_protocol.ops import (
    Answer,
    AnyOp,
    Interrupt,
    SessionCreate,
    UserInput,
)
from tiller_protocol.places import Places, find_places
from tiller_protocol.settings import Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot

Sent = Started | Steered | Queued
"""The result of sending input: it starts a turn, steers the running turn, or waits."""

Delivery = Literal["auto", "start", "steer", "queue"]

NO_SETTINGS = Settings()
NO_OVERRIDES = TurnOverrides()

Kind = TypeVar("Kind", bound=AnyResult)
_Stream = TypeVar("_Stream", bound=Feed)


class Client:
    """A frontend; a context manager that connects when it is entered.

    Entering and each submission start a daemon if none is running. Every method may raise a
    `TillerError`, whose message says what to do.
    """

    hello: HelloResult
    """The daemon's greeting: its version, the `log_id`, its limits."""

    def __init__(
        self, name: str, *, environ: Mapping[str, str] = os.environ, places: Places | None = None
    ) -> None:
        """Do not connect yet.

        Other frontends see `name`. The variables in `environ` tell where the daemon is, unless
        `places` is given.
        """
        places = places or find_places(environ, sys.platform, os.getuid())
        self.pool = ConnectionPool(places, name, environ=environ)
        self._open: list[Feed] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Say hello to the daemon.

        Raises `StartFailed`, `NoAnswer`, `NotPrivate`, or `RejectedError` if the daemon speaks
        another version of the protocol.
        """
        with self.pool.connection() as connection:
            self.hello = connection.hello

    def close(self) -> None:
        """Close all connections, and end every `follow`; the daemon and its turns go on."""
        with self._lock:
            streams, self._open = self._open, []
        for stream in streams:
            stream.close()
        self.pool.close()

    def submit(self, op: AnyOp, *, submission_id: str = "") -> AnyResult | None:
        """Submit any op and return the result, if it has one.

        If you pass your own `submission_id`, the call may be repeated, even by another process, but
        the op is executed once. Raises `RejectedError` with the daemon's answer, or `NoAnswer`.
        """
        with self.pool.connection() as connection:
            return connection.submit(op, submission_id=submission_id).result

    def ask(self, op: AnyOp, kind: type[Kind]) -> Kind:
        """Submit an op with a result of type `kind`; raises the same errors as `submit`."""
        with self.pool.connection() as connection:
            return connection.ask(op, kind)

    def create_session(
        self, workspace: str | os.PathLike[str], settings: Settings = NO_SETTINGS
    ) -> "Session":
        """Create a session in a directory."""
        op = SessionCreate(str(Path(workspace).absolute()), settings=settings)
        return Session(self, self.ask(op, Created).session_id)

    def session(self, session_id: str) -> "Session":
        """Return an existing session; its id is checked only when the session is used."""
        return Session(self, session_id)

    def opened(self, stream: _Stream) -> _Stream:
        """Remember a stream, so that `close` closes it, too."""
        with self._lock:
            self._open = [one for one in self._open if not one.closed] + [stream]
        return stream


class Session:
    """One session of the daemon."""

    def __init__(self, client: Client, session_id: str) -> None:
        self.client = client
        self.session_id = session_id

    def send(
        self, text: str, delivery: Delivery = "auto", overrides: TurnOverrides = NO_OVERRIDES
    ) -> Sent:
        """Send input, which by default starts a turn, or steers the running turn.

        To send more than text, submit a `UserInput` with `Client.submit`.
        """
        result = self.client.submit(
            UserInput(self.session_id, text, delivery=delivery, overrides=overrides)
        )
        assert isinstance(result, Sent)
        return result

    def snapshot(self) -> Snapshot:
        """Return the session as it is now; later events have numbers above the snapshot's `seq`."""
        return read_snapshot(self.client.ask, self.session_id)

    def interrupt(self) -> None:
        """End the running turn at once."""
        self.client.submit(Interrupt(self.session_id))

    def answer(self, request_id: str, decision: Decision, text: str = "") -> None:
        """Answer an open request, of this session or any other."""
        self.client.submit(Answer(request_id, decision, text))

    def follow(self, after: int = 0) -> "EventStream":
        """Return the events after number `after`: past events, then each new one."""
        return self.client.opened(EventStream(self.client.pool, self.session_id, after))


class EventStream(Feed):
    """An iterator over a session's events that waits for new ones; closing the client closes it.

    Each event comes once, in order, even if the daemon restarts. A daemon that has crashed is
    started; if it was stopped, the iterator waits until someone starts it. You may go on iterating
    after any exception: `StartedOver` if the daemon has a new event log, whose events follow from
    the first one; `RejectedError` if there is no such session, or with `is_cut_off` if a turn has
    ended whose last events follow once they can be stored; `StartFailed` or `NoAnswer`.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        """Wait for the next event; the iteration ends when the stream is closed."""
        while not self.closed:
            if (event := self.take()) is not None:
                return event
            self.wait()
        raise StopIteration
