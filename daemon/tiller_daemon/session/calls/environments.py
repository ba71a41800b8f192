"""Makes the environment of a turn's tool calls: files, processes, the user and the web."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from tiller_daemon.policy.readable import Readable
from tiller_daemon.redaction.byte_stream import without_secrets
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.session.services import CommandSettings
from tiller_daemon.tools.base import (
    Assignment,
    BackgroundCommands,
    CommandAccess,
    FileAccess,
    Requirement,
    ToolEnvironment,
    ToolResult,
    UserAccess,
    WebAccess,
)
from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.ports import Emit, Output
from tiller_protocol.events import PlanUpdated
from tiller_protocol.items import ToolCall


class Environments(Struct, frozen=True):
    """Makes the `ToolEnvironment` of each call of one turn."""

    context: TurnContext
    """The turn's frozen settings."""
    permission: Permission
    """Asks the user the tools' questions."""
    files: FileAccess
    """For tools that work with files; each call gets the files that are readable then."""
    commands: CommandSettings
    """The environment of child processes, and the secrets that are removed from tool output."""
    background: BackgroundCommands
    """The background commands of the session."""
    web: WebAccess
    """For tools that use the network."""
    emit: Emit
    """Emits events of the turn."""
    delegate: Callable[[str, Assignment], Awaitable[ToolResult]]
    """`Delegation.run` for this turn: takes the call's id and the assignment."""
    withdraw: Callable[[str], None]
    """Cancels the open questions of the call with this id."""

    def make(
        self,
        call: ToolCall,
        requirements: tuple[Requirement, ...],
        sandbox: CommandSandbox | None,
        output: Output,
    ) -> ToolEnvironment:
        """Return the environment of one call."""
        # For each call anew, as the user may have granted rules since the last call.
        readable = Readable(self.permission.rules())
        variables = partial(self.commands.variables, call.id)
        return ToolEnvironment(
            workspace=Path(self.context.workspace),
            session_id=self.context.session_id,
            call_id=call.id,
            files=structs.replace(self.files, readable=readable),
            commands=CommandAccess(variables, self.background, sandbox),
            user=UserAccess(
                output=lambda piece: output(self.without_secrets(piece)),
                show_plan=lambda plan: self.emit(PlanUpdated(plan)),
                ask=partial(self.permission.put_question, call),
                withdraw=partial(self.withdraw, call.id),
            ),
            delegate=partial(self.delegate, call.id),
            web=self.web,
            requirements=requirements,
            secrets=self.commands.secrets(),
        )

    def without_secrets(self, text: str) -> str:
        """Return `text` without API keys, and without passwords in URLs.

        A file may contain a key, and root can read the daemon's own environment.
        """
        return without_secrets(text, self.commands.secrets())
