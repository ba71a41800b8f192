"""The near end of a link: the sockets of a daemon on another host, for frontends on this machine.

A link listens while it reaches the host. If it loses the host, it closes its sockets, so frontends
notice it as they do with ssh, read the reason in the state file, and try again. Once the host is
there again, the link listens again.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import structs
from nats.aio.subscription import Subscription
from nats.errors import Error

from tiller_client.connecting.fleet_daemon import STATE_FILE, LinkState, encode_state
from tiller_client.connecting.linked import LINK_DEADLINE_S, RETRY_S
from tiller_client.errors import LinkLost, TillerError, UsageError
from tiller_client.fleet import names
from tiller_client.fleet.broker import Broker, Forbidden, HostAway
from tiller_client.fleet.reception import GAP
from tiller_client.fleet.records import HostInfo, decode_host
from tiller_client.fleet.sockets import Sockets
from tiller_client.fleet.table import Bucket, Record
from tiller_client.fleet.topics import Topics
from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import Rejected
from tiller_protocol.codec import (
    Encoding,
    decode_envelope,
    decode_op,
    encode_answer,
    encode_submission,
)
from tiller_protocol.errors import BadMessage, RejectionCode
from tiller_protocol.events import LIFECYCLE_TOPIC
from tiller_protocol.fleet import Fleet
from tiller_protocol.op_traits import only_reads
from tiller_protocol.ops import AnyOp, Hello, Replay, Submission
from tiller_protocol.places import TOKEN_FILE

IDLE_S = 120.0
"""How long a link stays without a frontend, so that the next verb is quick."""

LOST_S = 5.0
"""How long the connection to the servers may be away until frontends are told."""

GREETING_S = 10.0
"""Longest wait for a sign of life from the host."""

TABLE_S = 1.0
"""Longest wait for what the fleet knows of the host."""

TICK_S = 0.5


class Link:
    """A link to one host."""

    def __init__(self, settings: Fleet, host: str, directory: Path, config: Path) -> None:
        """Use a private directory, which the caller has locked; raises `UsageError`.

        The link ends if the file `config`, the credentials or the key have changed.
        """
        self._broker = Broker(settings, f"tiller link {host}")
        self._files = [config, *(Path(one) for one in (settings.creds, settings.key) if one)]
        self._stamps = list(map(_stamp, self._files))
        self._host = host
        self._directory = directory
        self._token = secrets.token_hex(16)
        self._home = ""
        self._sockets: Sockets | None = None
        self._topics = Topics()
        self._heard: dict[str, Subscription] = {}
        self._hearing = asyncio.Lock()
        self._in_progress: dict[tuple[str, Encoding], asyncio.Task[bytes | None]] = {}
        self._lost: asyncio.Queue[TillerError] = asyncio.Queue()

    async def run(self, report: Callable[[LinkState], None]) -> None:
        """Serve frontends until none is there, or until the host was away for long.

        Calls `report` once the link is up; raises `TillerError` if the host can't be reached.
        """
        async with self._broker:
            self._broker.missed.append(self._drop_subscribers)
            await self._hear(LIFECYCLE_TOPIC)
            await self._greet()
            while True:
                problem = await self._serve(report)
                report = _ignore
                if problem is None or not await self._is_back(problem):
                    break
            (self._directory / TOKEN_FILE).unlink(missing_ok=True)
            (self._directory / STATE_FILE).unlink(missing_ok=True)

    async def _greet(self) -> None:
        """Make sure that the host answers."""
        hello = Submission(secrets.token_hex(16), Hello(PROTOCOL_VERSION, "tiller link"))
        looking = self._broker.request(self._host, names.look(self._host), encode_submission(hello))
        record = asyncio.create_task(self._record())
        try:
            async with asyncio.timeout(GREETING_S):
                await looking
            self._broker.check_permitted(names.live(self._host, LIFECYCLE_TOPIC))
        except TimeoutError:
            raise LinkLost(f"the gateway of {self._host} does not answer") from None
        except HostAway as error:
            raise _away(self._host, error, await record) from None
        found = await record
        self._home = _info(found).home if found else ""

    async def _record(self) -> Record | str | None:
        """What the fleet knows of the host; an empty text if that can't be read."""
        try:
            async with asyncio.timeout(TABLE_S):
                return await Bucket(self._broker, names.HOSTS).get(self._host)
        except (TimeoutError, TillerError, Error):
            return ""

    async def _serve(self, report: Callable[[LinkState], None]) -> TillerError | None:
        """Serve frontends until the host is lost; `None` if this link is not needed any more."""
        self._lost = asyncio.Queue()
        async with Sockets(self._directory, self._handle) as self._sockets:
            self._write(TOKEN_FILE, self._token.encode())
            self._write(STATE_FILE, encode_state(LinkState(self._home)))
            report(LinkState(self._home))
            try:
                problem = await self._until_lost()
                if problem is None:
                    (self._directory / STATE_FILE).unlink(missing_ok=True)
                else:
                    self._tell(problem)
            finally:
                for task in self._in_progress.values():
                    task.cancel()
        return problem

    async def _until_lost(self) -> TillerError | None:
        loop = asyncio.get_running_loop()
        used_at = connected_at = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    return await self._lost.get()
            now = loop.time()
            if self._in_progress or (self._sockets and self._sockets.is_used):
                used_at = now
            if self._broker.nc.is_connected:
                connected_at = now
            if self._broker.nc.is_closed or now - connected_at > LOST_S:
                return self._broker.unreachable()
            if now - used_at > IDLE_S or list(map(_stamp, self._files)) != self._stamps:
                return None
            for topic in self._topics.expire(now):
                if heard := self._heard.pop(topic, None):
                    with contextlib.suppress(Error):
                        await heard.unsubscribe()

    async def _is_back(self, problem: TillerError) -> bool:
        """Wait until the host answers again; false after some minutes, or if it will never."""
        deadline = asyncio.get_running_loop().time() + LINK_DEADLINE_S
        while asyncio.get_running_loop().time() < deadline:
            if isinstance(problem, UsageError) or self._broker.nc.is_closed:
                return False
            await asyncio.sleep(RETRY_S)
            if not self._broker.nc.is_connected:
                continue
            try:
                await self._greet()
            except TillerError as error:
                problem = error
                self._tell(problem)
            else:
                return True
        return False

    async def _handle(self, data: bytes) -> bytes | None:
        """Answer a submission, or return `None` if the host is lost."""
        try:
            frame = decode_envelope(data)
            envelope = frame.envelope
            if not hmac.compare_digest(envelope.token.encode(), self._token.encode()):
                message = "The token is wrong. Read it from the file `token` in the directory."
                return _rejected(envelope.id, "unauthorized", message, frame.encoding)
            op = decode_op(frame)
        except BadMessage as error:
            return _rejected(error.submission_id, "bad_message", str(error), "msgpack")
        # A frontend sends a submission again if its answer takes long.
        key = (envelope.id, frame.encoding)
        task = self._in_progress.get(key)
        if task is None:
            submission = Submission(envelope.id, op, envelope.client)
            task = asyncio.create_task(self._forward(submission, frame.encoding))
            self._in_progress[key] = task
            task.add_done_callback(lambda _: self._in_progress.pop(key, None))
        return await asyncio.shield(task)

    async def _forward(self, submission: Submission, encoding: Encoding) -> bytes | None:
        drive = names.drive(self._host)
        try:
            if topic := self._topics.note(submission.op, asyncio.get_running_loop().time()):
                await self._hear(topic)
            op = self._permitted(submission.op)
            subject = names.look(self._host) if only_reads(op) else drive
            data = encode_submission(structs.replace(submission, op=op), encoding)
            return await self._broker.request(self._host, subject, data)
        except Forbidden as error:
            if isinstance(submission.op, Replay) and submission.op.focus:
                return await self._forward(submission, encoding)
            message = f"these credentials permit only to look at {self._host} ({error})"
            return _rejected(submission.id, "forbidden", message, encoding)
        except HostAway as error:
            self._lost.put_nowait(_away(self._host, error, await self._record()))
        except (TillerError, Error) as error:
            problem = error if isinstance(error, TillerError) else self._broker.unreachable()
            self._lost.put_nowait(problem)
        return None

    def _permitted(self, op: AnyOp) -> AnyOp:
        """Leave out of a replay what only those who may drive can say, once that was refused."""
        try:
            self._broker.check_permitted(names.drive(self._host))
        except Forbidden:
            return structs.replace(op, focus=False) if isinstance(op, Replay) else op
        return op

    async def _hear(self, topic: str) -> None:
        """Subscribe to a topic, unless this was done."""
        async with self._hearing:
            if topic not in self._heard:
                subject = names.live(self._host, topic)
                self._heard[topic] = await self._broker.hear(subject, partial(self._publish, topic))

    def _publish(self, topic: str, body: bytes) -> None:
        if body == GAP:
            self._drop_subscribers()
        elif self._sockets:
            self._sockets.publish(topic, body)

    def _drop_subscribers(self) -> None:
        if self._sockets:
            self._sockets.drop_subscribers()

    def _tell(self, problem: TillerError) -> None:
        state = LinkState(self._home, str(problem), isinstance(problem, UsageError))
        self._write(STATE_FILE, encode_state(state))

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file in one step; others can't read it."""
        new = self._directory / f"{name}.new"
        new.touch(mode=0o600)
        new.write_bytes(data)
        new.replace(self._directory / name)


def _away(host: str, error: HostAway, known: Record | str | None) -> TillerError:
    """The error about a host that is not connected, by what the fleet knows of it."""
    if known is None:
        return UsageError(f"the fleet has no host {host!r}; its hosts: tiller fleet ls")
    return LinkLost(str(error))


def _stamp(path: Path) -> int:
    """Changes when a file is written; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _ignore(_: LinkState) -> None:
    """Report nothing."""


def _info(record: Record | str) -> HostInfo:
    return decode_host(record.value) if isinstance(record, Record) else HostInfo("", "", "", "")


def _rejected(submission_id: str, code: RejectionCode, message: str, encoding: Encoding) -> bytes:
    return encode_answer(Rejected(submission_id, code, message), encoding)
