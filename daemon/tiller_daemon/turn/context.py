"""What is fixed for a turn, and how a turn can end. Frozen: a change waits for the next turn."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tiller_daemon.config import Hook, SandboxPolicy
from tiller_daemon.models.base import ToolSpec
from tiller_daemon.turn.budget import Spent
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import Outcome, TurnContextShown
from tiller_protocol.items import Usage
from tiller_protocol.settings import Approve, Budget, FollowUps, Rule

DEFAULT_CONTEXT_WINDOW_TOKENS = 128_000
"""Assumed for a model whose window neither configuration nor catalogue knows."""


class SubAgentOffered(Struct, frozen=True):
    """An agent that may be given a task; one that `has_model` does not take its owner's."""

    name: str
    description: str
    read_only: bool
    has_model: bool


CostOf = Callable[[Usage], float | None]
"""What some usage costs in US dollars; `None` when the price is unknown, or nothing was counted."""


def unpriced(_: Usage) -> float | None:
    """The cost at a model without a known price."""
    return None


class TurnContext(Struct, frozen=True):
    """One configuration for all of a turn.

    `model` is provider/model as the user names it, `provider_model` what the provider calls it;
    `compaction_model` likewise, when summaries are made by another one.
    `first_ordinal` is the number of steps that the session had before this turn; the
    provider counted `counted_tokens` for the first `counted_items` items of history. `rules` are
    the permission rules above the built-in ones, weakest layer first. `spent_before` is what the
    session had spent before this turn. With `read_only` a call that may write is denied.
    `effort` is the variant, if configuration does not define it; else it is in `options`. `depth`
    is 0 for a turn that works for no other one. `sandbox` is what its commands may do.
    """

    turn_id: str
    session_id: str
    workspace: str
    agent: str
    model: str
    provider_model: str
    system_prompt: str
    tools: tuple[ToolSpec, ...]
    rules: tuple[Rule, ...]
    approve: Approve
    follow_ups: FollowUps
    max_steps: int
    turn_budget: Budget
    session_budget: Budget
    spent_before: Spent
    first_ordinal: int
    counted_tokens: int = 0
    counted_items: int = 0
    variant: str = ""
    effort: str = ""
    options: dict[str, Any] = {}
    compaction_options: dict[str, Any] = {}
    price: CostOf = unpriced
    compaction_price: CostOf = unpriced
    read_only: bool = False
    sandbox: SandboxPolicy = SandboxPolicy("full_access")
    compaction_model: str = ""
    context_window: int = DEFAULT_CONTEXT_WINDOW_TOKENS
    max_output_tokens: int | None = None
    output_schema: dict[str, Any] | None = None
    depth: int = 0
    sub_agents: tuple[SubAgentOffered, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def shown(self) -> TurnContextShown:
        """Return what frontends are told of it."""
        return TurnContextShown(
            workspace=self.workspace,
            agent=self.agent,
            model=self.model,
            variant=self.variant,
            approve=self.approve,
            max_steps=self.max_steps,
            tools=tuple(tool.name for tool in self.tools),
            context_window=self.context_window,
            turn_budget=self.turn_budget,
            session_budget=self.session_budget,
            output_schema=self.output_schema,
            system_prompt=self.system_prompt,
            sandbox=self.sandbox.mode,
        )


class Ending(Struct, frozen=True):
    """How a turn ended; `error` says why when it did not complete.

    `last_message` is what counts as the turn's, if it is not the last message as it was said.
    """

    outcome: Outcome
    error: ErrorInfo | None = None
    last_message: str = ""
