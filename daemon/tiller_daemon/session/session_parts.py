"""The objects that the turns of one session share."""

from msgspec import Struct, field

from tiller_daemon.session.background.commands import Background
from tiller_daemon.session.inputs.input_queue import InputQueue
from tiller_daemon.session.outbox import Outbox
from tiller_daemon.session.requests import OpenRequests
from tiller_daemon.session.services import Services
from tiller_daemon.session.sub_agents.background_tasks import BackgroundTasks
from tiller_daemon.session.sub_agents.sub_agent_run import Sessions
from tiller_daemon.tools.base import FileVersions


class SessionParts(Struct, frozen=True):
    """The objects that the successive turns of one session share."""

    services: Services
    """The daemon's environment, the same for all sessions."""
    outbox: Outbox
    """Takes the session's events."""
    queue: InputQueue
    """Input that is waiting."""
    requests: OpenRequests
    """Open questions to the user."""
    files: FileVersions
    """The versions of files that the model has read."""
    sessions: Sessions
    """Creates and finds the sessions of sub-agents."""
    background: Background
    """The session's background commands."""
    tasks: BackgroundTasks
    """The session's background sub-agents."""
    told: set[str] = field(default_factory=set[str])
    """The codes of warnings that need not be repeated."""
