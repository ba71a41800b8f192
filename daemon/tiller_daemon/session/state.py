"""The state of a loaded session. Handlers change it; the submission loop and the turn use it."""

from dataclasses import dataclass, field

import trio

from tiller_daemon.session.background.commands import Background
from tiller_daemon.session.clock import SessionClock
from tiller_daemon.session.context.freeze import with_grants
from tiller_daemon.session.context.turn_warnings import TurnWarnings
from tiller_daemon.session.inputs.input_queue import InputQueue
from tiller_daemon.session.inputs.server_content import NO_CONTENT, ServerContent
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import OpenRequests
from tiller_daemon.session.services import Services
from tiller_daemon.session.session_parts import SessionParts
from tiller_daemon.session.sub_agents.background_tasks import BackgroundTask, BackgroundTasks
from tiller_daemon.session.sub_agents.sub_agent_run import Sessions, SubAgentRun
from tiller_daemon.session.turns.active_turn import ActiveTurn
from tiller_daemon.session.turns.title import WantedTitle
from tiller_daemon.store.base import SubmissionRow
from tiller_daemon.tools.base import FileVersions
from tiller_protocol.answers import AnyAnswer, RevertResult
from tiller_protocol.codec import encode_answer
from tiller_protocol.events import AnyBody, SessionConfigured
from tiller_protocol.items import Image
from tiller_protocol.ops import AnyOp, UserInput
from tiller_protocol.settings import Rule
from tiller_protocol.snapshot import Snapshot


@dataclass(frozen=True)
class SubAgentPrompt:
    """The prompt of a sub-agent, which starts a turn in the sub-agent's session."""

    run: SubAgentRun
    input: UserInput


@dataclass(frozen=True)
class SubAgentEnded:
    """The end of a background sub-agent, whose report the session's model gets."""

    task: BackgroundTask


@dataclass(frozen=True)
class SetUp:
    """The set-up of a new worktree, which runs as the session's first turn."""

    command: str
    place: str
    """The top of the worktree, where it runs."""


SessionMessage = AnyOp | SubAgentPrompt | SubAgentEnded | SetUp
"""What a session's loop handles: the ops of frontends, and messages from inside the daemon."""


@dataclass(eq=False)
class PendingSubmission:
    """A submission, or a message from inside the daemon, that has no answer yet."""

    submission_id: str
    """The ULID by which retries are recognized as the same submission."""
    op: SessionMessage
    """What to do."""
    client: str
    """The frontend's name."""
    digest: bytes
    """A hash of the op, to detect that the same id is used for another op."""
    images: tuple[Image, ...] = ()
    """The images of the input as the model gets them."""
    content: ServerContent = NO_CONTENT
    """Content from MCP servers for the input."""
    files: RevertResult | None = None
    """The result of a revert for files, which are restored before the handler runs."""
    answered: trio.Event = field(default_factory=trio.Event)
    """Set when there is an `answer`, or the attempt failed without one."""
    answer: AnyAnswer | None = None
    """Valid once `answered` is set."""

    def row(self, answer: AnyAnswer) -> SubmissionRow:
        """Return the row of an answer in the log's table of answers."""
        return SubmissionRow(self.submission_id, self.digest, encode_answer(answer))


class SessionState:
    """The state of one loaded session."""

    def __init__(
        self,
        services: Services,
        snapshot: Snapshot,
        sessions: Sessions,
    ) -> None:
        self.services = services
        self.clock = SessionClock(services.clock)
        self.outbox = Outbox(snapshot, services.log, services.publish, self.clock.time)
        self.queue = InputQueue(snapshot.queue)
        self.requests = OpenRequests(self.outbox)
        self.background = Background(self.outbox, self.clock.time)
        self.tasks = BackgroundTasks(self.outbox, self.clock.time)
        self.parts = SessionParts(
            services,
            self.outbox,
            self.queue,
            self.requests,
            FileVersions(),
            sessions,
            self.background,
            self.tasks,
        )
        self.warnings = TurnWarnings(services)
        self.wanted_title = WantedTitle()
        self.turn: ActiveTurn | None = None
        self._begun: ActiveTurn | None = None

    def begin(self, turn: ActiveTurn) -> None:
        """Make `turn` the session's turn; the actor starts its task after the handler returns."""
        self.clock.begin_turn()
        self.turn = turn
        self._begun = turn

    def end_turn(self) -> None:
        """Forget the turn, because it is over."""
        self.turn = None
        self.clock.end_turn()

    def grant(self, rules: tuple[Rule, ...]) -> None:
        """Apply rules that the user granted to the session and to its sub-agents."""
        settings = with_grants(self.outbox.fold_pending().settings, rules)
        self.outbox.put(SessionConfigured(settings))
        if self.turn:
            self.turn.owner.grant(rules)
        self.tasks.reconsider()

    def reconsider(self) -> None:
        """Resolve open requests that the rules now allow, including sub-agents' requests."""
        if self.turn:
            self.turn.reconsider()
        self.tasks.reconsider()

    def take_begun(self) -> ActiveTurn | None:
        """Return the turn that was begun and has no task yet, but only once."""
        begun, self._begun = self._begun, None
        return begun

    def put(self, pending: PendingSubmission, *bodies: AnyBody, turn_id: str | None = None) -> None:
        """Put events that `pending` causes into the outbox."""
        self.outbox.put(*bodies, turn_id=turn_id, submission_id=pending.submission_id)
