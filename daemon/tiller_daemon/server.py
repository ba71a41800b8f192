"""Answers submissions: takes an encoded submission, and returns an encoded answer. Uses no sockets.

The server checks the token before it decodes the op. It handles ops about the daemon itself, and
passes ops about sessions to the supervisor.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
import trio

import tiller_daemon
import tiller_protocol
from tiller_daemon import DAEMON_VERSION
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.about_daemon import catalog, daemon_status
from tiller_daemon.session.context.project_trust import project_answer
from tiller_daemon.session.inputs.validation import check_workspace
from tiller_daemon.session.services import ModelSurvey, Services
from tiller_daemon.session.supervisor import Supervisor
from tiller_daemon.stamps import Stamp, take_stamp
from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import (
    Accepted,
    AccountsResult,
    AnyAnswer,
    AnyResult,
    HelloResult,
    Rejected,
)
from tiller_protocol.codec import (
    INPUT_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    REPLAY_BYTES_MAX,
    Frame,
    decode_envelope,
    decode_op,
    encode_answer,
)
from tiller_protocol.daemon import Limits
from tiller_protocol.errors import BadMessage
from tiller_protocol.lending import LentFile
from tiller_protocol.op_traits import traits_of
from tiller_protocol.ops import (
    Accounts,
    AnyOp,
    Catalog,
    DaemonStatus,
    Hello,
    McpLogin,
    Project,
    SessionGet,
    Shutdown,
)

log = structlog.get_logger()


class SurveyModels(Protocol):
    """Lists models and their providers."""

    async def __call__(self, *, ask: bool, offers: bool) -> ModelSurvey:
        """Return the configured models, the default one first; `ask` also queries providers.

        `offers` also searches for providers that could be configured.
        """
        ...


class SubmissionServer:
    """Answers submissions that carry the `token`.

    `stopping` is set when the daemon should stop, and `must_stop` when turns must be interrupted.
    `drain` tells whether running turns may complete first.
    """

    def __init__(
        self,
        services: Services,
        supervisor: Supervisor,
        token: str,
        survey_models: SurveyModels,
        log_in: Callable[[Accounts], Awaitable[AccountsResult]],
    ) -> None:
        self.stopping = trio.Event()
        self.must_stop = trio.Event()
        self.drain = False
        self._services = services
        self._supervisor = supervisor
        self._token = token.encode()
        self._survey_models = survey_models
        self._log_in = log_in
        self._started_at = services.clock.steady()

    def stop(self, *, drain: bool) -> None:
        """Begin to stop. Without `drain`, turns are interrupted, even during an earlier drain."""
        self.drain = drain and not self.must_stop.is_set()
        if not drain:
            self.must_stop.set()
        self.stopping.set()

    def admit(self, data: memoryview) -> bytes | None:
        """Return the rejection of a submission without the token; None if it may be handled.

        This is much cheaper than `handle` and copies nothing, so floods from strangers cost little.
        """
        try:
            frame = decode_envelope(data)
        except BadMessage as error:
            return encode_answer(Rejected(error.submission_id, "bad_message", str(error)))
        if self._shows_token(frame):
            return None
        return encode_answer(_unauthorized(frame), frame.encoding)

    async def handle(self, data: bytes) -> bytes:
        """Answer a submission in its own encoding; raises only on cancellation."""
        try:
            frame = decode_envelope(data)
        except BadMessage as error:
            return encode_answer(Rejected(error.submission_id, "bad_message", str(error)))
        answer = encode_answer(await self._answer(frame), frame.encoding)
        if len(answer) <= MESSAGE_BYTES_MAX:
            return answer
        message = (
            f"The answer has {len(answer):,} bytes and does not fit into a message. "
            f"{_smaller_answer(decode_op(frame))}"
        )
        too_large = Rejected(frame.envelope.id, "too_large", message, {"limit": MESSAGE_BYTES_MAX})
        return encode_answer(too_large, frame.encoding)

    async def _answer(self, frame: Frame) -> AnyAnswer:
        submission_id = frame.envelope.id
        try:
            if not self._shows_token(frame):
                return _unauthorized(frame)
            return await self._dispatch(submission_id, decode_op(frame), frame.envelope.client)
        except BadMessage as error:
            return Rejected(submission_id, "bad_message", str(error))
        except RejectionError as rejection:
            return rejection.answer(submission_id)
        except Exception as error:
            log.exception("submission_crashed", submission_id=submission_id)
            what = f"{type(error).__name__}: {error}"
            message = f"This is a bug in the daemon: {what}. Its log has the details."
            return Rejected(submission_id, "internal", message)

    def _shows_token(self, frame: Frame) -> bool:
        # In constant time, so that response times do not reveal the beginning of the token.
        shown = frame.envelope.token
        return len(shown) == len(self._token) and hmac.compare_digest(shown.encode(), self._token)

    async def _dispatch(self, submission_id: str, op: AnyOp, client: str) -> AnyAnswer:
        traits = traits_of(op)
        if traits.needs_configuration:
            await self._services.user.refresh()
        if traits.handled_by == "daemon":
            return Accepted(submission_id, await self._handle_own(op))
        if self.stopping.is_set() and traits.starts != "nothing":
            message = "The daemon is stopping. Send this again after it has restarted."
            raise RejectionError("shutting_down", message)
        return await self._supervisor.handle(submission_id, op, client)

    async def _handle_own(self, op: AnyOp) -> AnyResult | None:
        match op:
            case Hello():
                return self._hello(op)
            case Catalog():
                if op.start_servers:
                    await self._services.tools.servers.ready(op.session_id or "", every=True)
                survey = await self._survey_models(ask=op.ask, offers=op.offers)
                return catalog(self._services, op, survey)
            case Project():
                check_workspace(op.workspace)
                return project_answer(self._services, op)
            case McpLogin():
                return await self._services.tools.servers.log_in(op)
            case Accounts():
                return await self._log_in(op)
            case LentFile():
                self._services.tools.editors.take(op)
            case DaemonStatus():
                uptime_s = self._services.clock.steady() - self._started_at
                return await daemon_status(
                    self._services, self._supervisor, uptime_s, draining=self.stopping.is_set()
                )
            case Shutdown():
                self.stop(drain=op.mode == "drain")
            case _:
                raise AssertionError(f"{type(op).__name__} has no handler in the server")
        return None

    def _hello(self, op: Hello) -> HelloResult:
        if op.protocol_version != PROTOCOL_VERSION:
            raise RejectionError(
                "unsupported_protocol",
                f"This daemon speaks protocol {PROTOCOL_VERSION}, not {op.protocol_version}. "
                "Install a daemon and a frontend of the same release.",
                {"protocol_version": PROTOCOL_VERSION},
            )
        limits = Limits(MESSAGE_BYTES_MAX, REPLAY_BYTES_MAX, INPUT_BYTES_MAX)
        return HelloResult(
            DAEMON_VERSION,
            PROTOCOL_VERSION,
            self._services.log.log_id,
            limits,
            missing_keys=self._services.user.missing_keys(),
            replaced=_program_stamp() != _PROGRAM_STAMP,
            searches_model=not self._services.user.has_default_model(),
        )


def _smaller_answer(op: AnyOp) -> str:
    """Return a sentence that tells what to do about an answer that is too large."""
    if isinstance(op, SessionGet):
        return "Use `replay`, which answers in parts."
    if hasattr(op, "limit"):
        return "Ask for less at once, with a lower `limit`."
    return "An answer of this kind should never be too large, so this is a bug in the daemon."


def _unauthorized(frame: Frame) -> Rejected:
    message = "The token is wrong. Read it from the file `token` in the runtime directory."
    return Rejected(frame.envelope.id, "unauthorized", message)


def _program_stamp() -> tuple[Stamp, ...]:
    """Return stamps of the program's files, which change when a release is installed."""
    files = (tiller_daemon.__file__, tiller_protocol.__file__)
    return tuple(take_stamp(file, follows=True) for file in files)


_PROGRAM_STAMP = _program_stamp()
