"""The sessions of sub-agents, as the code that starts sub-agents sees them."""

from typing import Protocol

from tiller_daemon.session.sub_agents.sub_agent_run import SubAgentRun
from tiller_protocol.settings import Settings, TurnOverrides
from tiller_protocol.snapshot import Snapshot


class OwnedSession(Protocol):
    """The session of a sub-agent."""

    snapshot: Snapshot
    """The session's current state."""

    async def run_sub_agent(
        self, sub_agent_run: SubAgentRun, prompt: str, overrides: TurnOverrides
    ) -> None:
        """Start the sub-agent's turn; raises `RejectionError`."""
        ...


class Sessions(Protocol):
    """Creates and finds the sessions of sub-agents."""

    async def create_owned(
        self, workspace: str, settings: Settings, owner_id: str, item_id: str
    ) -> OwnedSession:
        """Create a session for a sub-agent; raises `LogError`."""
        ...

    async def find_owned(self, session_id: str, owner_id: str) -> OwnedSession:
        """Find the session of an earlier sub-agent; raises `RejectionError` or `LogError`."""
        ...
