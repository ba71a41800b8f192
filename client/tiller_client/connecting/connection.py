"""Submits ops to the daemon over one REQ socket, and starts the daemon if none is running.

An op without an answer is sent again with the same id, which the daemon executes only once.
`watch` receives events.
"""

import contextlib
import os
import time
from collections.abc import Generator, Mapping
from typing import ClassVar, Self, TypeVar

from tiller_client.connecting.daemons import POLL_S, daemon_at
from tiller_client.connecting.runtime import check_runtime, my_places, runtime_of
from tiller_client.connecting.silence import LEAVE, SEARCH, Silence, waits_for
from tiller_client.connecting.sockets import RequestSocket
from tiller_client.errors import LinkLost, NoAnswer, NoDaemon, RejectedError, TillerError
from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import Accepted, AnyAnswer, AnyResult, HelloResult, Rejected
from tiller_protocol.codec import decode_answer, encode_submission
from tiller_protocol.errors import BadMessage
from tiller_protocol.ids import ULID_RANDOM_BYTES, Ulids
from tiller_protocol.op_traits import traits_of
from tiller_protocol.ops import AnyOp, Hello, Submission
from tiller_protocol.places import Places

ANSWER_DEADLINE_S = 30.0
"""Longest wait for an answer from a daemon that answers nothing else either."""

ALIVE_DEADLINE_S = 5.0
"""Longest wait for a sign of life from a daemon that has not answered an op in time."""

_Kind = TypeVar("_Kind", bound=AnyResult)


class DaemonConnection:
    """A frontend's connection to the daemon; a context manager, for one thread at a time.

    `hello` is the daemon's latest greeting; its `log_id` changes with the log. With `may_start`, a
    daemon is started if none is running, both now and at any later op.
    """

    hello: HelloResult

    leave = LEAVE
    """The advice on how to end a wait for an answer."""

    latest: ClassVar["DaemonConnection | None"] = None
    """The latest connection to the daemon on this machine, until it is stopped."""

    def __init__(
        self,
        places: Places,
        name: str,
        *,
        may_start: bool = True,
        only_crashed: bool = False,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Connect and say hello as `name`; a daemon that this starts gets `environ`.

        With `only_crashed`, start a daemon only in place of one that has crashed. Raises
        `NoDaemon`, `StartFailed`, `NotPrivate` or `NoAnswer`, or `RejectedError` if the daemon
        speaks another version of the protocol.
        """
        self.places = places
        self._name = name
        self._may_start = may_start
        self._only_crashed = only_crashed
        self.environ = environ
        self._daemon = daemon_at(places, environ)
        self._socket = RequestSocket(places)
        self._token = ""
        self._ulids = Ulids()
        self._searches_model = False
        self._silence_was_said = False
        try:
            self._handshake()
        except BaseException:
            self.close()
            raise
        self._only_crashed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def program(self) -> str:
        """The first words of a command line for this daemon, such as `tiller --host far`."""
        return self._daemon.program

    @property
    def is_remote(self) -> bool:
        """Whether the daemon is on another machine."""
        return self._daemon.is_remote

    def close(self) -> None:
        """Close the socket; the daemon keeps running."""
        self._socket.close()

    def ask(self, op: AnyOp, kind: type[_Kind]) -> _Kind:
        """Submit an op and return its result of type `kind`; raises the same errors as `submit`."""
        result = self.submit(op).result
        if not isinstance(result, kind):
            raise TillerError(
                f"the daemon answered {type(op).__name__} with {type(result).__name__}: "
                f"its version is different; try: {self.program} daemon restart"
            )
        return result

    def look(self, op: AnyOp, kind: type[_Kind]) -> _Kind:
        """Like `ask`, but raise `NoDaemon` instead of starting a daemon that the user has stopped.

        A daemon that has crashed is started.
        """
        with self.starting_only_crashed():
            return self.ask(op, kind)

    @contextlib.contextmanager
    def starting_only_crashed(self) -> Generator[None]:
        """Within the block, raise `NoDaemon` instead of starting a daemon that the user stopped.

        For work that no user waits for, which must not undo `tiller daemon stop`.
        """
        self._only_crashed = True
        try:
            yield
        finally:
            self._only_crashed = False

    @contextlib.contextmanager
    def unless_stopped(self) -> Generator[None]:
        """Run the block, but leave it as soon as it needs a daemon that the user has stopped."""
        with contextlib.suppress(NoDaemon), self.starting_only_crashed():
            yield

    def submit(self, op: AnyOp, *, submission_id: str = "", client: str = "") -> Accepted:
        """Submit an op, by default with a new id and the connection's name; wait for its answer.

        The wait has no limit while the daemon answers others, for example during a large revert.
        Raises `RejectedError`, `NoAnswer` if nothing is answered for `ANSWER_DEADLINE_S`, or
        `NoDaemon` or `StartFailed` if the daemon is gone. Ctrl-C ends the wait at once; the op may
        still take effect.
        """
        submission_id = submission_id or self._new_id()
        answer = self._exchange(op, submission_id, client)
        while _is_for_another_daemon(answer):  # it was replaced once more
            self._handshake()
            answer = self._exchange(op, submission_id, client)
        if isinstance(answer, Rejected):
            raise RejectedError(answer)
        return answer

    def _handshake(self) -> None:
        """Read the token of the running daemon and say hello.

        Between these two steps, the daemon may be replaced by another one, even several times. As
        each writes its own token before it listens, only a token that is refused twice is wrong.
        """
        refused = ""
        while True:
            self._token = self._read_token()
            answer = self._exchange(Hello(PROTOCOL_VERSION, self._name), self._new_id())
            if not _is_for_another_daemon(answer) or self._token == refused:
                break
            refused = self._token
        match answer:
            case Rejected(code="unsupported_protocol"):
                raise RejectedError(
                    answer,
                    f"this tiller speaks protocol {PROTOCOL_VERSION}, but the running daemon "
                    f"speaks another; {self._daemon.restart}",
                )
            case Rejected():
                raise RejectedError(answer)
            case Accepted(result=HelloResult() as hello):
                self.hello, self._searches_model = hello, hello.searches_model
                self._daemon.was_greeted = True
                if not self.is_remote:
                    DaemonConnection.latest = self
            case _:
                raise TillerError(
                    "the process on the daemon's socket does not speak tiller's protocol; "
                    "stop that process and try again"
                )

    def _new_id(self) -> str:
        """Make a new submission id."""
        return self._ulids.make(time.time_ns() // 1_000_000, os.urandom(ULID_RANDOM_BYTES))

    def _read_token(self) -> str:
        """Read the token of the listening daemon, which wrote it before it listened."""
        deadline = time.monotonic() + self._daemon.token_deadline_s
        while True:
            self._reach()
            try:
                return self._daemon.token()
            except (NoDaemon, LinkLost):  # the daemon has stopped since the connection was made
                if time.monotonic() > deadline:
                    raise
                self._socket.close()
                time.sleep(POLL_S)

    def _reach(self) -> None:
        """Connect if there is no connection; start the daemon if none is running."""
        self._daemon.reach(
            self._connect, may_start=self._may_start, only_crashed=self._only_crashed
        )

    def _connect(self) -> bool:
        """Connect if a daemon listens; raises `NotPrivate` if others can access the directory."""
        if self._socket.connected:
            return True
        try:
            check_runtime(runtime_of(self.places))
        except NoDaemon:
            return False
        return self._socket.connect(self._daemon.greeting_s)

    def _exchange(self, op: AnyOp, submission_id: str, client: str = "") -> AnyAnswer:
        """Send an op and wait. If the daemon dies, its successor gets the same submission."""
        submission = Submission(submission_id, op, client or self._name, self._token)
        frame = encode_submission(submission)
        deadline = time.monotonic() + ANSWER_DEADLINE_S
        silence = self._silence(op)
        self._socket.send(frame)
        while True:
            if (left := deadline - time.monotonic()) <= 0:
                if not self._is_alive():
                    break
                left, deadline = ANSWER_DEADLINE_S, time.monotonic() + ANSWER_DEADLINE_S
            begun = time.monotonic()
            self._reach()
            if self._daemon.is_remote:  # a lost network is not a daemon that hangs
                deadline += time.monotonic() - begun
            if (data := self._socket.receive(min(left, silence.left_s))) is not None:
                self._silence_was_said = False
                return _decode(data)
            silence.check()
            self._silence_was_said = silence.was_said
            time.sleep(POLL_S)
        raise NoAnswer(
            f"the daemon did not answer within {ANSWER_DEADLINE_S:g} s; "
            f"see its log: {self.program} daemon logs"
        )

    def _is_alive(self) -> bool:
        """Whether the daemon answers other ops, as it does while one takes long."""
        socket = RequestSocket(self.places)
        try:
            if not socket.connect(self._daemon.greeting_s):
                return False
            hello = Hello(PROTOCOL_VERSION, self._name)
            socket.send(
                encode_submission(Submission(self._new_id(), hello, self._name, self._token))
            )
            return socket.receive(ALIVE_DEADLINE_S) is not None
        finally:
            socket.close()

    def _silence(self, op: AnyOp) -> Silence:
        """The wait for an op's answer, which tells the user at most once until the next answer."""
        was_said = self._silence_was_said
        if traits_of(op).needs_model and self._searches_model:
            return Silence(lambda: SEARCH, soon=True, was_said=was_said)
        places, program = self.places, self.program
        return Silence(lambda: f"{waits_for(op, places, program)}; {self.leave}", was_said=was_said)


def connect(name: str) -> DaemonConnection:
    """Connect to the user's daemon as `name`; start it if necessary."""
    return DaemonConnection(my_places(), name)


def _is_for_another_daemon(answer: AnyAnswer) -> bool:
    """Whether the daemon that got the op has a different token from the one sent with the op."""
    return isinstance(answer, Rejected) and answer.code == "unauthorized"


def _decode(data: bytes) -> AnyAnswer:
    try:
        return decode_answer(data)
    except BadMessage as error:
        raise TillerError(f"the daemon's answer can't be decoded: {error}") from None
