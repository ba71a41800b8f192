"""What is fixed for a turn, and how a turn ends. Frozen: changes apply from the next turn on."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tiller_daemon.config import CompactionPolicy, SandboxPolicy
from tiller_daemon.models.base import ToolSpec
from tiller_daemon.tools.write_scope import WriteScope
from tiller_daemon.turn.budget import Spent
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import Outcome, TurnContextShown
from tiller_protocol.items import Usage
from tiller_protocol.settings import Approve, Budget, FollowUps, Rule

DEFAULT_CONTEXT_WINDOW_TOKENS = 128_000
"""Assumed for a model whose window neither the configuration nor the catalog knows."""


class OfferedSubAgent(Struct, frozen=True):
    """An agent that the model may delegate a task to."""

    name: str
    """What a `task` call names."""
    description: str
    """What it is for, for the model."""
    read_only: bool
    """Whether it may change nothing."""
    has_model: bool
    """Whether it has its own model; otherwise it uses its owner's."""
    has_variant: bool = False
    """Whether it has its own variant; otherwise that of its owner goes with the owner's model."""


CostOf = Callable[[Usage], float | None]
"""The cost of usage in US dollars; None when the price is unknown or nothing was counted."""


def unpriced(_: Usage) -> float | None:
    """The cost for a model without a known price."""
    return None


class TurnModel(Struct, frozen=True):
    """A model with everything that a turn's requests to it have in common."""

    name: str
    """Provider and model, as the user writes them."""
    provider_model: str
    """The provider's name for it."""
    variant: str = ""
    """Empty for none."""
    effort: str = ""
    """The variant if the configuration does not define it: then the dialect must know it."""
    options: dict[str, Any] = {}
    """Fields of the provider's request, including those of a configured variant."""
    hosted_tools: dict[str, dict[str, Any]] = {}
    """The tools that the provider runs itself: their fields in requests, by their names."""
    price: CostOf = unpriced
    """What a response costs."""
    context_window: int = DEFAULT_CONTEXT_WINDOW_TOKENS
    """Tokens."""
    max_output_tokens: int | None = None
    """None leaves it to the provider."""
    prompt_header: str = ""
    """What its provider wants at the beginning of each system prompt; a turn's has it already."""


class TurnCompaction(Struct, frozen=True):
    """How a turn keeps its history within the context window."""

    model: TurnModel
    """Writes summaries: that of the turn unless another one is configured."""
    policy: CompactionPolicy = CompactionPolicy()


class TurnPrompt(Struct, frozen=True):
    """What every request of a turn contains besides the history."""

    system: str
    tools: tuple[ToolSpec, ...]
    sub_agents: tuple[OfferedSubAgent, ...]
    output_schema: dict[str, Any] | None
    """A JSON Schema for the final message; None accepts any text."""


class Permissions(Struct, frozen=True):
    """What the calls of a turn may do."""

    rules: tuple[Rule, ...]
    """Rules on top of the built-in ones, weakest layer first."""
    approve: Approve
    """What becomes of calls that the rules ask about."""
    read_only: bool
    """Whether calls that may write are denied."""
    sandbox: SandboxPolicy
    """What commands may do."""
    tools: tuple[str, ...] | None = None
    """The tools that the user allows the turn and its sub-agents, as patterns; None allows all."""
    scope: WriteScope | None = None
    """What the turn and its sub-agents may change, as its task declared; None without a limit."""


class Budgets(Struct, frozen=True):
    """What a turn and its session may spend."""

    max_steps: int
    """Maximum number of model requests of the turn."""
    turn: Budget
    """For the turn and its sub-agents."""
    session: Budget
    """For all turns of the session."""
    spent_before: Spent
    """Spent by the session before the turn."""
    spent: Spent = Spent()
    """Spent by a resumed turn before the daemon stopped."""


class PriorTotals(Struct, frozen=True):
    """Totals of the session before the turn."""

    steps: int
    """Model requests so far."""
    tokens: int
    """The provider's count for the first `items` of the history; 0 if there is none."""
    items: int
    turn_steps: int = 0
    """Steps that a resumed turn took before the daemon stopped."""


class TurnContext(Struct, frozen=True):
    """The configuration of one turn."""

    turn_id: str
    """The turn."""
    session_id: str
    """Its session."""
    workspace: str
    """Absolute path."""
    agent: str
    """The name of the agent whose prompt, rules and tools apply."""
    model: TurnModel
    """The model that its steps ask."""
    compaction: TurnCompaction
    """How its history is kept within the context window."""
    prompt: TurnPrompt
    """What its requests contain besides the history."""
    permissions: Permissions
    """What its calls may do."""
    budgets: Budgets
    """What it may spend."""
    before: PriorTotals
    """What the session had spent and sent before."""
    follow_ups: FollowUps
    """How much of the queue the turn takes at a time."""
    depth: int
    """0 for the user's turn, 1 for its sub-agents, and so on."""

    def shown(self) -> TurnContextShown:
        """Return the part that frontends see."""
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
