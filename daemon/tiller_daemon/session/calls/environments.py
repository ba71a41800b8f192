"""The environment of a turn's tool calls: files, processes, the user, the web."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tiller_daemon.policy.readable import Readable
from tiller_daemon.redaction.byte_stream import SECRET_PLACEHOLDER
from tiller_daemon.sandbox.confinement import CommandSandbox
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.tools.base import (
    BackgroundCommands,
    Diagnostics,
    FileVersions,
    Requirement,
    ToolEnvironment,
    ToolResult,
)
from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.ports import Emit, Output
from tiller_protocol.events import PlanUpdated
from tiller_protocol.items import PlanEntry, ToolCall

Delegate = Callable[[str, str, str, str], Awaitable[ToolResult]]
"""`Delegation.run` for one turn: takes the call's id, the prompt, the agent, the id to resume."""


@dataclass(frozen=True)
class ProcessSettings:
    """The environment of child processes."""

    variables: Callable[[str], Mapping[str, str]]
    """Returns the environment variables for a child process of the call with this id."""
    secrets: Callable[[], tuple[str, ...]]
    """Returns the API keys in use, which are removed from all tool output."""
    background: BackgroundCommands


@dataclass(frozen=True)
class WebSettings:
    """How tools reach the web."""

    private_addresses: bool
    """Whether tools may connect to private addresses."""
    proxies: Mapping[str, str]
    """The daemon's proxy variables, with their passwords."""


@dataclass(frozen=True)
class Environments:
    """Makes the `ToolEnvironment` of each call of one turn."""

    context: TurnContext
    """The turn's frozen settings."""
    permission: Permission
    """Puts questions to the user."""
    files: FileVersions
    """The versions of files that the model has read."""
    diagnostics: Diagnostics
    """The language servers."""
    spill_directory: Path
    """For output that is too long for the model."""
    journals: Path
    """For journals of changes to several files."""
    processes: ProcessSettings
    """For child processes."""
    web: WebSettings
    """For tools that use the network."""
    emit: Emit
    """Emits events of the turn."""
    delegate: Delegate
    """Runs a sub-agent."""
    withdraw: Callable[[str], None]
    """Cancels the open questions of the call with this id."""

    def make(
        self,
        call: ToolCall,
        requirements: tuple[Requirement, ...],
        confined: CommandSandbox | None,
        output: Output,
    ) -> ToolEnvironment:
        """Return the environment of one call."""
        return ToolEnvironment(
            workspace=Path(self.context.workspace),
            spill_directory=self.spill_directory,
            session_id=self.context.session_id,
            call_id=call.id,
            files=self.files,
            variables=self.processes.variables(call.id),
            output=lambda piece: output(self.without_secrets(piece)),
            show_plan=self._show_plan,
            ask=partial(self.permission.put_question, call),
            delegate=partial(self.delegate, call.id),
            background=self.processes.background,
            requirements=requirements,
            journals=self.journals,
            private_addresses=self.web.private_addresses,
            diagnostics=self.diagnostics,
            # Per call, as the user may have granted rules since the last one.
            readable=Readable(self.permission.rules()),
            withdraw=partial(self.withdraw, call.id),
            secrets=self.processes.secrets(),
            confined=confined,
            proxies=self.web.proxies,
        )

    def without_secrets(self, text: str) -> str:
        """Return `text` without API keys.

        A file may contain one, and root can read the daemon's own environment.
        """
        for secret in self.processes.secrets():
            text = text.replace(secret, SECRET_PLACEHOLDER)
        return text

    async def _show_plan(self, plan: tuple[PlanEntry, ...]) -> None:
        await self.emit(PlanUpdated(plan))
