"""What a session holds between two ops. Handlers change it; the loop and the turn work on it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from tiller_daemon.session.active_turn import ActiveTurn, SessionParts
from tiller_daemon.session.background import Background
from tiller_daemon.session.input_queue import InputQueue
from tiller_daemon.session.notices import Notices
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import OpenRequests
from tiller_daemon.session.services import Services
from tiller_daemon.session.sub_agents.delegation import Sessions
from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun
from tiller_daemon.tools.base import FileVersions
from tiller_daemon.turn.history import History
from tiller_protocol.answers import AnyAnswer, RevertResult
from tiller_protocol.events import AnyBody
from tiller_protocol.items import Image
from tiller_protocol.ops import AnyOp
from tiller_protocol.snapshot import Snapshot


@dataclass(eq=False)
class Pending:
    """A submission on its way through the loop. `answer` is there once `answered` is set.

    `sub_agent_run` is set when the input is the prompt of a sub-agent. `images` are those of the
    input as a model gets them, `files` what became of those that a revert is about.
    """

    submission_id: str
    op: AnyOp
    client: str
    digest: bytes
    sub_agent_run: SubAgentRun | None = None
    images: tuple[Image, ...] = ()
    files: RevertResult | None = None
    answered: trio.Event = field(default_factory=trio.Event)
    answer: AnyAnswer | None = None


class BegunTurn(NamedTuple):
    """A turn that is to run, and the history that it continues."""

    turn: ActiveTurn
    history: History


class SessionState:
    """The state of one loaded session."""

    def __init__(
        self,
        services: Services,
        snapshot: Snapshot,
        sessions: Sessions,
    ) -> None:
        self.services = services
        self.outbox = Outbox(snapshot, services.log, services.publish, services.time)
        self.queue = InputQueue(snapshot.queue)
        self.requests = OpenRequests(self.outbox)
        self.background = Background(self.outbox, services.time)
        self.parts = SessionParts(
            services,
            self.outbox,
            self.queue,
            self.requests,
            FileVersions(),
            sessions,
            self.background,
        )
        self.notices = Notices(services)
        self.turn: ActiveTurn | None = None
        self._begun: BegunTurn | None = None

    def begin(self, turn: ActiveTurn, history: History) -> None:
        """Make this the session's turn; the actor runs it as soon as the handler has returned."""
        self.turn = turn
        self._begun = BegunTurn(turn, history)

    def take_begun(self) -> BegunTurn | None:
        """Return the turn that was begun and does not run yet, once."""
        begun, self._begun = self._begun, None
        return begun

    def put(self, pending: Pending, *bodies: AnyBody, turn_id: str | None = None) -> None:
        """Put events that `pending` causes."""
        self.outbox.put(*bodies, turn_id=turn_id, submission_id=pending.submission_id)
