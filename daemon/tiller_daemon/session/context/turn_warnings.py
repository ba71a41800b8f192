"""The warnings with which a session's turns begin. Each is given once."""

from tiller_daemon.session.context.freeze import FrozenTurn
from tiller_daemon.session.context.model_choice import replaced_model_warnings
from tiller_daemon.session.context.project_trust import (
    configuration_for,
    unsandboxed_hooks_warning,
    untrusted_project_warning,
)
from tiller_daemon.session.services import Services
from tiller_daemon.turn.context import TurnContext
from tiller_protocol.events import WarningRaised
from tiller_protocol.settings import TurnChoices
from tiller_protocol.snapshot import Snapshot

REASONS_SHOWN_MAX = 5
"""How many reasons why tools of an MCP server are left out are shown; the log has all."""


class TurnWarnings:
    """The warnings of one loaded session, and which of them it has already given."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._configuration_problem = ""
        self._given: set[tuple[str, str]] = set()

    def due(
        self, frozen: FrozenTurn, snapshot: Snapshot, choices: TurnChoices
    ) -> list[WarningRaised]:
        """Return the warnings for a turn that begins now, and note them as given.

        `snapshot` is the session before the turn.
        """
        return [
            *replaced_model_warnings(self._services, snapshot, frozen.context, choices),
            *self._of_configuration(),
            *self._of_lasting_rules(),
            *self._of_mcp_servers(frozen.context.session_id),
            *self._of_surplus_tools(frozen),
            *self._of_sandbox(frozen.context),
            *self._of_project(frozen.context.workspace),
            *self._of_documents(frozen.refused_documents),
        ]

    def _is_new(self, code: str, subject: str) -> bool:
        is_new = (code, subject) not in self._given
        self._given.add((code, subject))
        return is_new

    def _of_configuration(self) -> list[WarningRaised]:
        problem = self._services.user.problem()
        # Only the last problem is remembered, so a mistake that comes back is reported again.
        if problem == self._configuration_problem:
            return []
        self._configuration_problem = problem
        return [WarningRaised("configuration", problem)] if problem else []

    def _of_lasting_rules(self) -> list[WarningRaised]:
        problem = self._services.user.lasting_rules.problem()
        if not problem or not self._is_new("lasting_rules", problem):
            return []
        message = f"No lasting rule is in effect. {problem} Correct the file or remove it."
        return [WarningRaised("lasting_rules", message)]

    def _of_mcp_servers(self, session_id: str) -> list[WarningRaised]:
        servers = self._services.tools.servers
        unusable = [
            WarningRaised("mcp_server", f"The MCP server {name} can't be used. {why}")
            for name, why in servers.problems(session_id).items()
            if self._is_new("mcp_server", name)
        ]
        messages = (
            f"Tools of the MCP server {name} are left out. {'; '.join(why[:REASONS_SHOWN_MAX])}."
            for name, why in servers.left_out(session_id).items()
        )
        new = (message for message in messages if self._is_new("mcp_tools", message))
        return [*unusable, *(WarningRaised("mcp_tools", message) for message in new)]

    def _of_surplus_tools(self, frozen: FrozenTurn) -> list[WarningRaised]:
        surplus, model = frozen.surplus_tools, frozen.model
        if not surplus or not self._is_new("mcp_tools", f"{model.name} {surplus}"):
            return []
        message = (
            f"Model {model.name} takes {model.accepts.tools_max} tools, so {len(surplus)} are left "
            f"out, from {surplus[0]} to {surplus[-1]}. Choose fewer in the agent's `tools`, or "
            "deny the permission `mcp` for those that are not needed."
        )
        return [WarningRaised("mcp_tools", message)]

    def _of_sandbox(self, context: TurnContext) -> list[WarningRaised]:
        sandboxes, policy = self._services.commands.sandboxes, context.permissions.sandbox
        if not sandboxes.must_ask(policy) or not self._is_new("no_sandbox", ""):
            return []
        search = sandboxes.search_result()
        message = (
            f"The sandbox mode `{policy.mode}` can't be enforced, so every command that does more "
            f"than read needs your approval. {search.problem or search.instead}"
        )
        message += unsandboxed_hooks_warning(configuration_for(self._services, context.workspace))
        return [WarningRaised("no_sandbox", message)]

    def _of_project(self, workspace: str) -> list[WarningRaised]:
        project = self._services.user.projects.inspect(workspace)
        message = untrusted_project_warning(project)
        if not message or not self._is_new("untrusted_project", project.digest or project.problem):
            return []
        return [WarningRaised("untrusted_project", message)]

    def _of_documents(self, refused: tuple[str, ...]) -> list[WarningRaised]:
        new = [document for document in refused if self._is_new("document_refused", document)]
        if not new:
            return []
        message = f"Left out of the system prompt: {'; '.join(new)}."
        return [WarningRaised("document_refused", message)]
