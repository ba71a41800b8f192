"""What is fixed for a turn, and how a turn can end. Frozen: a change waits for the next turn."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.models.base import ToolSpec
from tiller_daemon.turn.budget import Spent
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import Outcome, TurnContextShown
from tiller_protocol.items import Usage
from tiller_protocol.settings import Approve, Budget, FollowUps, Rule

DEFAULT_CONTEXT_WINDOW_TOKENS = 128_000
"""Assumed for a model whose window neither configuration nor catalogue knows."""


class OfferedSubAgent(Struct, frozen=True):
    """An agent that the model may give a task."""

    name: str
    description: str
    read_only: bool
    has_model: bool
    """Whether it names a model of its own instead of using its owner's."""


CostOf = Callable[[Usage], float | None]
"""The cost of some usage in US dollars; None when the price is unknown or nothing was counted."""


def unpriced(_: Usage) -> float | None:
    """The cost at a model without a known price."""
    return None


class TurnModel(Struct, frozen=True):
    """A model as a turn asks it."""

    name: str
    """Provider and model, as the user writes it."""
    provider_model: str
    """What the provider calls it."""
    variant: str = ""
    effort: str = ""
    """The variant, where the configuration does not define it: the dialect has to know it."""
    options: dict[str, Any] = {}
    """Fields of the provider's request, those of a configured variant among them."""
    price: CostOf = unpriced
    context_window: int = DEFAULT_CONTEXT_WINDOW_TOKENS
    """Tokens."""
    max_output_tokens: int | None = None
    """None leaves it to the provider."""


class TurnPrompt(Struct, frozen=True):
    """What the model gets with every request of a turn, besides the history."""

    system: str
    tools: tuple[ToolSpec, ...]
    sub_agents: tuple[OfferedSubAgent, ...]
    output_schema: dict[str, Any] | None
    """A JSON Schema for the last answer."""


class Permissions(Struct, frozen=True):
    """What the calls of a turn may do."""

    rules: tuple[Rule, ...]
    """Those above the built-in ones, weakest layer first."""
    approve: Approve
    read_only: bool
    """Whether a call that may write is denied."""
    sandbox: SandboxPolicy
    """What commands may do."""


class Budgets(Struct, frozen=True):
    """What a turn and its session may spend."""

    max_steps: int
    turn: Budget
    session: Budget
    spent_before: Spent
    """By the session, before the turn."""
    spent: Spent = Spent()
    """By a resumed turn, until the daemon stopped."""


class PriorTotals(Struct, frozen=True):
    """What the session had come to before the turn."""

    steps: int
    tokens: int
    """What the provider counted for the first `items` of the history."""
    items: int
    turn_steps: int = 0
    """Steps that a resumed turn had taken itself."""


class TurnContext(Struct, frozen=True):
    """One configuration for a whole turn."""

    turn_id: str
    session_id: str
    workspace: str
    """Absolute."""
    agent: str
    model: TurnModel
    compaction: TurnModel
    """The model that writes summaries: `model`, unless another one is configured."""
    prompt: TurnPrompt
    permissions: Permissions
    budgets: Budgets
    before: PriorTotals
    follow_ups: FollowUps
    depth: int
    """0 for a turn of the user, 1 for its sub-agents, and so on."""

    def shown(self) -> TurnContextShown:
        """Return what frontends see of it."""
        return TurnContextShown(
            workspace=self.workspace,
            agent=self.agent,
            model=self.model.name,
            variant=self.model.variant,
            approve=self.permissions.approve,
            max_steps=self.budgets.max_steps,
            tools=tuple(tool.name for tool in self.prompt.tools),
            context_window=self.model.context_window,
            turn_budget=self.budgets.turn,
            session_budget=self.budgets.session,
            output_schema=self.prompt.output_schema,
            system_prompt=self.prompt.system,
            sandbox=self.permissions.sandbox.mode,
            follow_ups=self.follow_ups,
        )


class Ending(Struct, frozen=True):
    """How a turn ended."""

    outcome: Outcome
    error: ErrorInfo | None = None
    """Why it did not complete."""
    last_message: str = ""
    """Counts as the turn's last message if it is not the one that was sent."""
