"""Answers submissions: takes an encoded submission, and returns an encoded answer. Uses no sockets.

The server checks the token before it decodes the op. It handles ops about the daemon itself, and
passes ops about sessions to the supervisor.
"""

import hmac
import os
from typing import Protocol

import structlog
import trio

import tiller_daemon
import tiller_protocol
from tiller_daemon import DAEMON_VERSION
from tiller_daemon.errors import RejectionError
from tiller_daemon.session.context.project_trust import project_answer, trusted_workspace
from tiller_daemon.session.context.read_access import may_read
from tiller_daemon.session.inputs.validation import check_workspace
from tiller_daemon.session.services import ModelSurvey, Services
from tiller_daemon.session.sub_agents.agents import list_agents
from tiller_daemon.session.supervisor import Supervisor
from tiller_daemon.stamps import Stamp, take_stamp
from tiller_daemon.workspace.commands import list_commands
from tiller_protocol import PROTOCOL_VERSION
from tiller_protocol.answers import (
    Accepted,
    AgentSummary,
    AnyAnswer,
    AnyResult,
    CatalogResult,
    CommandSummary,
    DaemonStatusResult,
    HelloResult,
    Limits,
    Rejected,
    SandboxSummary,
    ToolSummary,
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
from tiller_protocol.errors import BadMessage
from tiller_protocol.lending import LentFile
from tiller_protocol.op_traits import traits_of
from tiller_protocol.ops import (
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
    ) -> None:
        self.stopping = trio.Event()
        self.must_stop = trio.Event()
        self.drain = False
        self._services = services
        self._supervisor = supervisor
        self._token = token.encode()
        self._survey_models = survey_models
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
                return self._catalog(op, survey)
            case Project():
                check_workspace(op.workspace)
                return project_answer(self._services, op)
            case McpLogin():
                return await self._services.tools.servers.log_in(op)
            case LentFile():
                self._services.tools.editors.take(op)
            case DaemonStatus():
                return await self._status()
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

    def _catalog(self, op: Catalog, survey: ModelSurvey) -> CatalogResult:
        workspace, session_id = op.workspace, op.session_id or ""
        tools = tuple(
            ToolSummary(tool.name, tool.effect, tool.description, tool.server)
            for tool in self._services.tools.available(session_id).values()
        )
        if workspace is not None:
            check_workspace(workspace)
        agents = tuple(
            AgentSummary(
                name=name,
                description=one.description,
                model=one.model,
                read_only=bool(one.read_only),
                problem=problem,
                variant=one.variant,
                max_steps=one.max_steps,
            )
            for name, (one, problem) in list_agents(self._services, workspace).items()
        )
        place = trusted_workspace(self._services, workspace)
        unasked = may_read(place or "/", self._services.user.configuration().permissions)
        commands = tuple(
            CommandSummary(
                one.name, one.description, one.agent, one.model, one.problem, one.subtask
            )
            for one in list_commands(place, self._services.user.config_directory, unasked)
        )
        commands += self._services.tools.servers.commands(session_id)
        servers = self._services.tools.servers.summaries(session_id)
        language_servers = self._services.tools.language_servers.summaries()
        return CatalogResult(
            survey.models,
            tools,
            agents,
            commands,
            servers,
            language_servers,
            self._sandbox(),
            survey.providers,
            survey.offers,
            self._services.user.problem(),
        )

    def _sandbox(self) -> SandboxSummary:
        policy = self._services.user.configuration().sandbox
        found = self._services.commands.confiner.search_result()
        if (sandbox := found.sandbox) is None:
            return SandboxSummary(policy.mode, policy.network, problem=found.problem)
        return SandboxSummary(
            policy.mode, policy.network, sandbox.name, limits=sandbox.limits, instead=found.instead
        )

    async def _status(self) -> DaemonStatusResult:
        return DaemonStatusResult(
            daemon_version=DAEMON_VERSION,
            pid=os.getpid(),
            uptime_s=self._services.clock.steady() - self._started_at,
            log_path=self._services.log.path,
            sessions=await self._services.log.count(),
            sessions_loaded=self._supervisor.loaded,
            turns_running=self._supervisor.turns_running,
            rss_bytes=_rss_bytes(),
            draining=self.stopping.is_set(),
            problems=self._services.log.problems(),
            recordings_path=self._services.user.configuration().record or "",
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


def _rss_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 on systems without /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - no Path for /proc
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
