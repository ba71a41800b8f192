"""The way to submit ops: one REQ socket, the token, and the daemon started when none lives.

An op that gets no answer is sent again under its own id, which the daemon takes once. Events come
by `watch`.
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
"""Longest wait for one answer; the daemon answers when an op is in its log, not when it is done."""

PROBE_S = 0.25
"""How often a wait for an answer looks whether the daemon is still there."""

_Kind = TypeVar("_Kind", bound=AnyResult)


def new_id() -> str:
    """A fresh submission id."""
    return ulid(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))


class DaemonConnection:
    """One frontend's line to the daemon; a context manager. For one thread only.

    `hello` is what the daemon said last; its `log_id` changes when another log is there. With
    `may_start` a daemon is started when none lives, now and whenever it is found dead later.
    """

    hello: HelloResult

    def __init__(self, places: Places, name: str, *, may_start: bool = True) -> None:
        """Connect and introduce `name`.

        Raises `NoDaemon`, `StartFailed`, `NotPrivate`, `NoAnswer`, or `RejectedError` when the
        daemon speaks another version.
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
        """Close the socket; the daemon goes on."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def ask(self, op: AnyOp, kind: type[_Kind]) -> _Kind:
        """Submit an op that is answered by a result of `kind`; raises as `submit`."""
        result = self.submit(op).result
        if not isinstance(result, kind):
            raise TillerError(
                f"the daemon answered {type(op).__name__} with {type(result).__name__}: "
                "it is of another version; try: tiller daemon restart"
            )
        return result

    def submit(self, op: AnyOp) -> Accepted:
        """Submit an op and wait for its answer.

        Raises `RejectedError`, `NoAnswer` after `ANSWER_DEADLINE_S`, or, when the daemon is gone,
        `NoDaemon` or `StartFailed`. Ctrl-C ends the wait at once; the op may have taken effect.
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
        """Read the token of the daemon that lives now and say hello to it."""
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
                    f"this tiller speaks protocol {PROTOCOL_VERSION} and the running daemon "
                    "another; when no turn runs: tiller daemon restart",
                )
            case Rejected():
                raise RejectedError(answer)
            case Accepted(result=HelloResult() as hello):
                self.hello = hello
            case _:
                raise TillerError("what listens on the daemon's socket does not speak tiller")

    def _read_token(self) -> str:
        """The token; a daemon that is just starting listens a moment before it is written."""
        deadline = time.monotonic() + PROBE_S
        while True:
            try:
                return read_token(self.places.runtime)
            except NoDaemon:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PROBE_S / 10)

    def _reach(self, *, look: bool) -> RequestSocket:
        """The socket to the daemon; with `look` the daemon is started again if it died."""
        if self._socket and not look:
            return self._socket
        if not self._daemon_is_running():
            self.close()
            if not self._may_start:
                raise NoDaemon("no daemon runs; start one with: tiller daemon start")
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
        """Send and wait; a daemon that takes a dead one's place is sent the same again."""
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
            "see what it does: tiller daemon logs"
        )


def _decode(data: bytes) -> AnyAnswer:
    try:
        return decode_answer(data)
    except BadMessage as error:
        raise TillerError(f"the daemon's answer can't be read: {error}") from None
