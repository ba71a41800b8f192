"""The configuration of a turn, and how a turn ends.

The configuration is frozen when the turn begins; changes apply from the next turn on.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tiller_daemon.config import CompactionPolicy, SandboxPolicy
from tiller_daemon.models.base import ToolSpec
from tiller_daemon.tools.write_scope import WriteScope
from tiller_daemon.turn.budget import Spent
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import Outcome
from tiller_protocol.items import Usage
from tiller_protocol.settings import Approve, Budget, FollowUps, Rule, TurnContextShown

DEFAULT_CONTEXT_WINDOW_TOKENS = 128_000
"""Assumed for a model whose window neither the configuration nor the catalog knows."""


class OfferedSubAgent(Struct, frozen=True):
    """An agent that the model may delegate a task to."""

    name: str
    """The name by which a `task` call chooses the agent."""
    description: str
    """The agent's purpose, as the model reads it."""
    read_only: bool
    """Whether the agent may change nothing."""
    has_model: bool
    """Whether the agent has its own model; otherwise it uses its owner's model."""
    has_variant: bool = False
    """Whether the agent has its own variant; otherwise the owner's variant goes with the owner's
    model."""


CostOf = Callable[[Usage], float | None]
"""Returns the cost of usage in US dollars; None if the price is unknown or nothing was counted."""


class TurnModel(Struct, frozen=True):
    """A model with everything that a turn's requests to it have in common."""

    name: str
    """Provider and model, as the user writes them."""
    provider_model: str
    """The provider's name for the model."""
    price: CostOf
    """Returns the cost of a response."""
    variant: str = ""
    """The chosen variant; empty for none."""
    effort: str = ""
    """The variant if the configuration does not define it, in which case the dialect must know
    it."""
    options: dict[str, Any] = {}
    """Fields of the provider's request, including the fields of a configured variant."""
    hosted_tools: dict[str, dict[str, Any]] = {}
    """The tools that the provider runs itself, by name, with their fields in requests."""
    context_window: int = DEFAULT_CONTEXT_WINDOW_TOKENS
    """The size of the context window in tokens."""
    max_output_tokens: int | None = None
    """Maximum length of a response; None leaves the limit to the provider."""
    prompt_header: str = ""
    """Text that the provider requires at the beginning of each system prompt. The turn's own prompt
    already has it."""


class TurnCompaction(Struct, frozen=True):
    """How a turn keeps its history within the context window."""

    model: TurnModel
    """The model that writes summaries: the turn's model unless another is configured."""
    policy: CompactionPolicy = CompactionPolicy()


class TurnPrompt(Struct, frozen=True):
    """The parts of every request of a turn besides the history."""

    system: str
    tools: tuple[ToolSpec, ...]
    sub_agents: tuple[OfferedSubAgent, ...]
    output_schema: dict[str, Any] | None
    """A JSON Schema that the final message must match; None accepts any text."""


class Permissions(Struct, frozen=True):
    """The permissions of a turn's calls."""

    rules: tuple[Rule, ...]
    """Rules on top of the built-in ones, weakest layer first."""
    approve: Approve
    """The setting `approve`: whether the user is asked, and the answer if they are not."""
    read_only: bool
    """Whether calls that may write are denied."""
    sandbox: SandboxPolicy
    """The limits on commands."""
    tools: tuple[str, ...] | None = None
    """Patterns for the tools that the user allows the turn and its sub-agents; None allows all."""
    scope: WriteScope | None = None
    """The files that the turn and its sub-agents may change, if its task declared them; None
    without such a limit."""


class Budgets(Struct, frozen=True):
    """The budgets of a turn and its session."""

    max_steps: int
    """Maximum number of model requests of the turn."""
    turn: Budget
    """The budget for the turn and its sub-agents."""
    session: Budget
    """The budget for all turns of the session."""
    spent_before: Spent
    """The session's spending before the turn."""
    spent: Spent = Spent()
    """A resumed turn's spending before the daemon stopped."""


class PriorTotals(Struct, frozen=True):
    """Totals of the session before the turn."""

    steps: int
    """Model requests so far."""
    tokens: int
    """The provider's count for the first `items` items of the history; 0 without a count."""
    items: int
    turn_steps: int = 0
    """Steps that a resumed turn took before the daemon stopped."""


class TurnContext(Struct, frozen=True):
    """The configuration of one turn."""

    turn_id: str
    """The id of the turn."""
    session_id: str
    """The id of the turn's session."""
    workspace: str
    """The absolute path of the workspace."""
    agent: str
    """The name of the agent whose prompt, rules and tools apply."""
    model: TurnModel
    """The model for the steps."""
    compaction: TurnCompaction
    """How the turn keeps its history within the context window."""
    prompt: TurnPrompt
    """The parts of each request besides the history."""
    permissions: Permissions
    """The permissions of the turn's calls."""
    budgets: Budgets
    """The budgets of the turn and its session."""
    before: PriorTotals
    """Totals of the session before the turn."""
    follow_ups: FollowUps
    """How many queued inputs the turn takes at a time."""
    depth: int
    """0 for the user's turn, 1 for its sub-agents, and so on."""

    def shown(self) -> TurnContextShown:
        """Return the part of the configuration that frontends see."""
        return TurnContextShown(
            workspace=self.workspace,
            agent=self.agent,
            model=self.model.name,
            variant=self.model.variant,
            approve=self.permissions.approve,
            max_steps=self.budgets.max_steps,
            tools=(*(tool.name for tool in self.prompt.tools), *self.model.hosted_tools),
            context_window=self.model.context_window,
            turn_budget=self.budgets.turn,
            session_budget=self.budgets.session,
            output_schema=self.prompt.output_schema,
            system_prompt=self.prompt.system,
            sandbox=self.permissions.sandbox.mode,
            follow_ups=self.follow_ups,
            read_only=self.permissions.read_only,
            write_paths=self.permissions.scope.names if self.permissions.scope else None,
        )


class Ending(Struct, frozen=True):
    """How a turn ended."""

    outcome: Outcome
    error: ErrorInfo | None = None
    """Why the turn did not complete."""
    last_message: str = ""
    """Overrides the turn's last message, unless empty."""
