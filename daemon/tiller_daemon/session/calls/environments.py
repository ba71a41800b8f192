"""What the calls of one turn run with: files, processes, the user, the web."""

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
"""`Delegation.run`: the call's id, the prompt, the agent, what to resume."""


@dataclass(frozen=True)
class ProcessSettings:
    """What child processes of calls get."""

    variables: Callable[[str], Mapping[str, str]]
    """The environment of a child process, by the id of the call that starts it."""
    secrets: Callable[[], tuple[str, ...]]
    """The keys in use now; removed from everything that a tool outputs."""
    background: BackgroundCommands


@dataclass(frozen=True)
class WebSettings:
    """How tools reach the web."""

    private_addresses: bool
    """Whether machines that are not on the public internet may be asked."""
    proxies: Mapping[str, str]
    """The daemon's own variables that name proxies, with passwords."""


@dataclass(frozen=True)
class Environments:
    """Makes the `ToolEnvironment` of each call of one turn."""

    context: TurnContext
    permission: Permission
    files: FileVersions
    diagnostics: Diagnostics
    spill_directory: Path
    """For output that is too long for the model."""
    journals: Path
    """For changes of several files that are under way."""
    processes: ProcessSettings
    web: WebSettings
    emit: Emit
    delegate: Delegate
    withdraw: Callable[[str], None]
    """Withdraws the open questions of a call, by its id."""

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
            readable=Readable(self.permission.rules()),
            withdraw=partial(self.withdraw, call.id),
            secrets=self.processes.secrets(),
            confined=confined,
            proxies=self.web.proxies,
        )

    def without_secrets(self, text: str) -> str:
        """Return `text` without keys: a file may hold one, and root can read the daemon's own."""
        for secret in self.processes.secrets():
            text = text.replace(secret, SECRET_PLACEHOLDER)
        return text

    async def _show_plan(self, plan: tuple[PlanEntry, ...]) -> None:
        await self.emit(PlanUpdated(plan))
