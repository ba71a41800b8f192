# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The connection to NATS, with its errors as sentences, and messages of any size.

A message that is larger than the servers allow goes in parts, in order, to the same subject. NATS
keeps the order of one sender's messages, but a part may get lost with a connection.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error, MaxPayloadError, SlowConsumerError
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

from tiller_client.errors import LinkLost, NoDaemon, TillerError, UsageError
from tiller_client.fleet.names import make
from tiller_client.fleet.parts import Parts, split
from tiller_client.fleet.sealing import NotOurs, Sealing, sealing_of
from tiller_protocol.codec import MESSAGE_BYTES_MAX
from tiller_protocol.fleet import Fleet

CONNECT_S = 5
"""Longest wait for a server, in seconds."""

RECONNECT_S = 1.0
"""Time between two attempts to reach a server again."""

PING_S = 5
"""Time between pings, two of which may go unanswered: how soon a dead connection is noticed."""

REQUEST_S = 10.0
"""How long to wait for an answer before the request is sent again; hosts answer it once."""

OVERHEAD_BYTES = 4096
"""Room for headers and encryption in each message."""

NOT_OURS_HEADER = "Tiller-Not-Ours"
"""In an empty answer: the request is not encrypted with the team's key."""

Handler = Callable[[bytes], Awaitable[bytes]]

_REFUSED_SUBJECT = re.compile(
    r'permissions violation for (?:publish|subscription) to "([^"]+)"', re.IGNORECASE
)


class HostAway(NoDaemon):
    """No gateway of that host is connected."""


class Forbidden(UsageError):
    """The servers don't permit it with these credentials."""


class _Request(NamedTuple):
    """A request that waits for its answer."""

    subject: str
    arrived: "asyncio.Queue[Msg | Forbidden | None]"
    """Parts of the answer, or why there is none; `None`: send the request again."""


class Broker:
    """A connection to the fleet's servers; an asynchronous context manager."""

    nc: Client
    js: JetStreamContext

    def __init__(self, settings: Fleet, name: str) -> None:
        """Do not connect yet. Raises `UsageError` if the team's key can't be used.

        The servers' statistics show `name`.
        """
        self._settings = settings
        self._name = name
        self.sealing: Sealing = sealing_of(settings.key)
        self.reconnected = asyncio.Event()
        """Set when a lost connection is there again; messages may be missing."""
        self.missed: list[Callable[[], None]] = []
        """Called when messages may be missing: after a lost connection, or if we were too slow."""
        self._requests: set[_Request] = set()
        self._publishing: set[tuple[str, asyncio.Timeout]] = set()
        """By subject, in small letters, what waits to be stored in a stream."""
        self._forbidden: dict[str, Forbidden] = {}
        """By subject, what the servers have refused on this connection."""
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._parts = Parts()
        self._last_error = self._problem = ""
        """The last failure of the connection, and the last refusal by the server."""

    async def __aenter__(self) -> "Broker":
        settings = self._settings
        context = None
        if settings.ca:
            try:
                context = ssl.create_default_context(cafile=settings.ca)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"the certificates {settings.ca} can't be used: {error}") from None
        if settings.creds and not os.path.isfile(settings.creds):  # noqa: PTH113, ASYNC240 - once
            raise UsageError(f"there is no file with credentials {settings.creds}")
        try:
            self.nc = await nats.connect(
                list(settings.servers),
                name=self._name,
                user_credentials=settings.creds or None,
                tls=context,
                connect_timeout=CONNECT_S,
                reconnect_time_wait=RECONNECT_S,  # type: ignore[arg-type]
                max_reconnect_attempts=1,
                ping_interval=PING_S,
                pending_size=8 * MESSAGE_BYTES_MAX,
                error_cb=self._note,
                reconnected_cb=self._reconnected,
                closed_cb=self._note_closed,
            )
        except (TimeoutError, Error, OSError, ValueError) as error:
            problem = self._problem or self._last_error or str(error) or repr(error)
            raise _not_connected(settings, problem) from None
        self.nc.options["max_reconnect_attempts"] = -1  # a connection that was once there
        self.js = self.nc.jetstream(timeout=REQUEST_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        with suppress(Exception):
            await self.nc.close()

    async def prepare(self) -> None:
        """Make the streams and buckets that do not exist yet; raises `TillerError`."""
        try:
            await make(self.js)
        except (TimeoutError, Error, APIError) as error:
            raise self.explained(error) from None

    def explained(self, error: BaseException) -> TillerError:
        """Say in a sentence what a failure of NATS means."""
        if isinstance(error, NoStreamResponseError | ServiceUnavailableError):
            return UsageError(
                f"{_shown(self._settings)} runs without JetStream, or not for this account; "
                "start it with: nats-server --jetstream"
            )
        if self._problem:
            return UsageError(f"{_shown(self._settings)} refuses: {self._problem}")
        if self.nc.is_closed:
            return self._closing()
        if isinstance(error, APIError):
            return TillerError(f"{_shown(self._settings)} refuses: {error.description}")
        return LinkLost(f"{_shown(self._settings)} does not answer: {str(error) or 'timeout'}")

    def unreachable(self) -> TillerError:
        """The error about a connection that is lost."""
        return _not_connected(self._settings, self._last_error or "the connection was lost")

    async def until_closed(self) -> NoReturn:
        """Wait until the servers end the connection for good, and raise the reason.

        They do so when a credential expires.
        """
        await self._closed.wait()
        raise self._closing()

    def _closing(self) -> TillerError:
        reason = str(self.nc.last_error or "the connection was closed")
        return _not_connected(self._settings, reason)

    async def request(self, host: str, subject: str, data: bytes) -> bytes:
        """Send a request to a host and return its answer, however long that takes.

        Until the answer comes, the request is sent again from time to time, and when a lost
        connection is there again. Raises `HostAway` if no gateway listens there, `LinkLost` without
        a connection, `Forbidden`, or `NotOurs` if the host has another key.
        """
        inbox = self.nc.new_inbox()
        request = _Request(subject, asyncio.Queue())

        async def take(message: Msg) -> None:
            request.arrived.put_nowait(message)

        answers: Subscription | None = None
        self._requests.add(request)
        try:
            answers = await self.nc.subscribe(inbox, cb=take)
            while True:
                await self.send(subject, data, reply=inbox)
                answer = await self._answer_to(request, host)
                if answer is not None:
                    return answer
        except Error as error:
            raise self.explained(error) from None
        finally:
            self._requests.discard(request)
            if answers:
                with suppress(Error):
                    await answers.unsubscribe()

    async def _answer_to(self, request: _Request, host: str) -> bytes | None:
        """Wait for an answer; return `None` if the request is to be sent again."""
        subject = request.subject
        while True:
            try:
                async with asyncio.timeout(REQUEST_S):
                    message = await request.arrived.get()
            except TimeoutError:
                if self.nc.is_connected:
                    return None
                raise self.unreachable() from None
            if message is None or isinstance(message, Forbidden):
                if message:
                    raise message
                return None
            headers = message.headers or {}
            if headers.get("Status") == "503":
                raise HostAway(f"no gateway of the host {host} is connected")
            if NOT_OURS_HEADER in headers:
                raise NotOurs(f"{host} has another key of the team; give all hosts the same file")
            whole = self._assembled(message)
            if whole is not None:
                return self.sealing.open(subject, whole)

    async def publish(
        self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None
    ) -> int:
        """Store a message in its stream, and return its number there.

        Raises the errors of `nats`, and `TimeoutError` also as soon as the servers refuse it.
        """
        async with asyncio.timeout(None) as limit:
            waiting = subject.lower(), limit
            self._publishing.add(waiting)
            try:
                return (await self.js.publish(subject, data, headers=headers)).seq
            finally:
                self._publishing.discard(waiting)

    async def serve(self, subject: str, handler: Handler) -> None:
        """From now on, answer requests to a subject; `handler` must not raise."""

        async def take(message: Msg) -> None:
            whole = self._assembled(message)
            if whole is not None:
                task = asyncio.create_task(self._answer(subject, message.reply, whole, handler))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        await self.nc.subscribe(subject, cb=take)

    async def hear(self, subject: str, handler: Callable[[bytes], None]) -> Subscription:
        """From now on, call `handler` with each message to a subject, in order.

        Content that is not encrypted for us is dropped.
        """

        async def take(message: Msg) -> None:
            whole = self._assembled(message)
            if whole is not None:
                with suppress(NotOurs):
                    handler(self.sealing.open(subject, whole))

        return await self.nc.subscribe(subject, cb=take)

    def check_permitted(self, *subjects: str) -> None:
        """Raise `Forbidden` if the servers have refused one of these; ask them something before."""
        for subject in subjects:
            if problem := self._forbidden.get(subject.lower()):
                raise problem

    async def _answer(self, subject: str, reply: str, data: bytes, handler: Handler) -> None:
        with suppress(TillerError, Error):
            try:
                answer = await handler(self.sealing.open(subject, data))
            except NotOurs:
                await self.nc.publish(reply, headers={NOT_OURS_HEADER: "1"})
            else:
                await self.send(reply, answer, sealed_for=subject)

    async def send(
        self,
        subject: str,
        data: bytes,
        *,
        reply: str = "",
        sealed_for: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Publish content, encrypted and in parts if need be; nobody acknowledges it."""
        data = self.sealing.seal(sealed_for or subject, data)
        for part, more in split(data, self.part_bytes):
            await self.nc.publish(subject, part, reply, headers={**(headers or {}), **more} or None)

    @property
    def part_bytes(self) -> int:
        """The largest content of one message."""
        return max(1, self.nc.max_payload - OVERHEAD_BYTES)

    def _assembled(self, message: Msg) -> bytes | None:
        """Return the whole message once its last part has come."""
        place = (message.subject, message.reply)
        return self._parts.add(place, message.headers or {}, message.data)

    async def _note(self, error: Exception) -> None:
        text = self._last_error = str(error) or repr(error)
        if isinstance(error, SlowConsumerError):
            self._tell_missed()
        if "permissions violation" in text.lower() or "authorization" in text.lower():
            self._problem = text.removeprefix("nats: ")
        if found := _REFUSED_SUBJECT.search(text):
            self._forbid(found[1].lower())

    def _forbid(self, subject: str) -> None:
        """Note that the servers have refused a subject, in small letters."""
        problem = Forbidden(f"{_shown(self._settings)} refuses: {self._problem}")
        self._forbidden[subject] = problem
        for request in self._requests:
            if request.subject.lower() == subject:
                request.arrived.put_nowait(problem)
        for published, limit in self._publishing:
            if published == subject and not limit.expired():
                limit.reschedule(0)

    async def _note_closed(self) -> None:
        self._closed.set()

    async def _reconnected(self) -> None:
        self._parts.clear()
        self._forbidden.clear()
        self.reconnected.set()
        for request in self._requests:
            request.arrived.put_nowait(None)
        self._tell_missed()

    def _tell_missed(self) -> None:
        for call in self.missed:
            call()


def is_full(error: BaseException) -> bool:
    """Whether a stream or the account takes no more messages."""
    text = str(getattr(error, "description", "") or error)
    return isinstance(error, MaxPayloadError) or any(
        word in text for word in ("maximum", "insufficient", "resource limits", "exceeded")
    )


def is_wrong_last(error: BaseException) -> bool:
    """Whether a guarded write came too late: somebody else has written meanwhile."""
    return isinstance(error, APIError) and error.err_code in {10071, 10070}


def _not_connected(settings: Fleet, problem: str) -> TillerError:
    where = _shown(settings)
    text = problem.removeprefix("nats: ").strip("'\" ")
    if "uthorization" in text or "xpired" in text or "uthentication" in text:
        what = f"check {settings.creds}" if settings.creds else "set `creds` in [fleet]"
        return UsageError(f"{where} refuses the credentials ({text}); {what}")
    return LinkLost(f"the fleet's NATS server {where} can't be reached: {text}")


def _shown(settings: Fleet) -> str:
    """The servers without passwords."""
    return ", ".join(one.rpartition("@")[2] for one in settings.servers)
