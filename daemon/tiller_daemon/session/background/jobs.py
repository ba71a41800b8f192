"""Gives tools access to a session's background commands and sub-agents, by id."""

from typing import NamedTuple

from tiller_daemon.session.background.commands import Background
from tiller_daemon.session.sub_agents.background_tasks import ID_PREFIX, BackgroundTasks
from tiller_daemon.tools.base import BackgroundReport, BackgroundStart


class BackgroundJobs(NamedTuple):
    """Implements `tools.base.BackgroundCommands`; an id may also belong to a sub-agent."""

    commands: Background
    tasks: BackgroundTasks

    async def start(self, start: BackgroundStart) -> BackgroundReport:
        """Start a command and watch it for a moment."""
        return await self.commands.start(start)

    async def poll(self, command_id: str, wait_s: float) -> BackgroundReport:
        """Return new output of a command, or the progress of a sub-agent."""
        return await self._with(command_id).poll(command_id, wait_s)

    async def kill(self, command_id: str) -> BackgroundReport:
        """End a command with all its processes, or a sub-agent."""
        return await self._with(command_id).kill(command_id)

    async def send(self, command_id: str, text: str, wait_s: float) -> BackgroundReport:
        """Type text to a command, then return new output."""
        return await self.commands.send(command_id, text, wait_s)

    def _with(self, command_id: str) -> Background | BackgroundTasks:
        return self.tasks if command_id.startswith(ID_PREFIX) else self.commands
