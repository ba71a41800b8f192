"""Submits ops to the daemon over one REQ socket, and starts the daemon if none is running.

An op without an answer is sent again with the same id; the daemon executes an id once. Events
come through `watch`.
"""

import os
import time
from types import TracebackType
from typing import Self, TypeVar

from tiller_client.errors import NoAnswer, NoDaemon, RejectedError, TillerError
from tiller_client.runtime import check_runtime, is_listening, read_token
from tiller_client.sockets import RequestSocket
from tiller_client.starting import start_daemon
from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import Accepted, AnyAnswer, AnyResult, HelloResult, Rejected
from tiller_protocol.codec import decode_answer, encode_submission
from tiller_protocol.errors import BadMessage
from tiller_protocol.ids import ULID_RANDOM_BYTES, ulid
from tiller_protocol.ops import AnyOp, Hello, Submission
from tiller_protocol.places import Places

ANSWER_DEADLINE_S = 30.0
"""Longest wait for an answer. The daemon answers once an op is in its log, not when it is done."""

PROBE_S = 0.25
"""Interval at which a wait for an answer checks that the daemon is still running."""

_Kind = TypeVar("_Kind", bound=AnyResult)


def new_id() -> str:
    """A fresh submission id."""
    return ulid(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))


class DaemonConnection:
    """A frontend's connection to the daemon; a context manager, for one thread only.

    `hello` is the daemon's latest greeting; its `log_id` changes with the log. With `may_start` a
    daemon is started if none is running, now or at any later op.
    """

    hello: HelloResult

    def __init__(self, places: Places, name: str, *, may_start: bool = True) -> None:
        """Connect and say hello as `name`.

        Raises `NoDaemon`, `StartFailed`, `NotPrivate` or `NoAnswer`, or `RejectedError` if the
        daemon speaks another version of the protocol.
        """
        self.places = places
        self._name = name
        self._may_start = may_start
        self._socket: RequestSocket | None = None
        self._token = ""
        self._handshake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the daemon keeps running."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def ask(self, op: AnyOp, kind: type[_Kind]) -> _Kind:
        """Submit an op and return its result of type `kind`; raises as `submit`."""
        result = self.submit(op).result
        if not isinstance(result, kind):
            raise TillerError(
                f"the daemon answered {type(op).__name__} with {type(result).__name__}: "
                "its version is different; try: tiller daemon restart"
            )
        return result

    def submit(self, op: AnyOp) -> Accepted:
        """Submit an op and wait for its answer.

        Raises `RejectedError`, `NoAnswer` after `ANSWER_DEADLINE_S`, or `NoDaemon` or `StartFailed`
        if the daemon is gone. Ctrl-C ends the wait at once; the op may still take effect.
        """
        submission_id = new_id()
        answer = self._exchange(op, submission_id)
        if isinstance(answer, Rejected) and answer.code == "unauthorized":
            self._handshake()
            answer = self._exchange(op, submission_id)
        if isinstance(answer, Rejected):
            raise RejectedError(answer)
        return answer

    def _handshake(self) -> None:
        """Read the token of the running daemon and say hello."""
        self._reach(look=True)
        self._token = self._read_token()
        answer = self._exchange(Hello(PROTOCOL_VERSION, self._name), new_id())
        if isinstance(answer, Rejected) and answer.code == "unauthorized":
            self._token = self._read_token()
            answer = self._exchange(Hello(PROTOCOL_VERSION, self._name), new_id())
        match answer:
            case Rejected(code="unsupported_protocol"):
                raise RejectedError(
                    answer,
                    f"this tiller speaks protocol {PROTOCOL_VERSION}, the running daemon "
                    "another; when no turn is running: tiller daemon restart",
                )
            case Rejected():
                raise RejectedError(answer)
            case Accepted(result=HelloResult() as hello):
                self.hello = hello
            case _:
                raise TillerError(
                    "the process on the daemon's socket does not speak tiller's protocol"
                )

    def _read_token(self) -> str:
        """Read the token. A daemon that is just starting listens a moment before it writes it."""
        deadline = time.monotonic() + PROBE_S
        while True:
            try:
                return read_token(self.places.runtime)
            except NoDaemon:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PROBE_S / 10)

    def _reach(self, *, look: bool) -> RequestSocket:
        """Return the socket to the daemon; with `look`, start the daemon again if it died."""
        if self._socket and not look:
            return self._socket
        if not self._daemon_is_running():
            self.close()
            if not self._may_start:
                raise NoDaemon("no daemon is running; start one with: tiller daemon start")
            start_daemon(self.places, os.environ)
            check_runtime(self.places.runtime)
        if self._socket is None:
            self._socket = RequestSocket(self.places.runtime)
        return self._socket

    def _daemon_is_running(self) -> bool:
        try:
            check_runtime(self.places.runtime)
        except NoDaemon:
            return False
        return is_listening(self.places.runtime)

    def _exchange(self, op: AnyOp, submission_id: str) -> AnyAnswer:
        """Send and wait. If the daemon dies meanwhile, its successor gets the same submission."""
        frame = encode_submission(Submission(submission_id, op, self._name, self._token))
        deadline = time.monotonic() + ANSWER_DEADLINE_S
        sent_on: RequestSocket | None = None
        unanswered = False
        while (left := deadline - time.monotonic()) > 0:
            socket = self._reach(look=unanswered)
            if socket is not sent_on and socket.send(frame, PROBE_S):
                sent_on = socket
            if socket is sent_on and (data := socket.receive(min(PROBE_S, left))) is not None:
                return _decode(data)
            unanswered = True
        raise NoAnswer(
            f"the daemon did not answer within {ANSWER_DEADLINE_S:g} s; "
            "see its log: tiller daemon logs"
        )


def _decode(data: bytes) -> AnyAnswer:
    try:
        return decode_answer(data)
    except BadMessage as error:
        raise TillerError(f"the daemon's answer can't be decoded: {error}") from None
