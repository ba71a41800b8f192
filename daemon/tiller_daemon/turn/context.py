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


class AskedModel(Struct, frozen=True):
    """A model as a turn asks it.

    `name` is provider/model as the user names it, `provider_model` what the provider calls it.
    `effort` is the variant, if configuration does not define it; else it is in `options`, the
    fields of the provider's own request.
    """

    name: str
    provider_model: str
    variant: str = ""
    effort: str = ""
    options: dict[str, Any] = {}
    price: CostOf = unpriced
    context_window: int = DEFAULT_CONTEXT_WINDOW_TOKENS
    max_output_tokens: int | None = None


class Permissions(Struct, frozen=True):
    """What the calls of a turn may do.

    `rules` are those above the built-in ones, weakest layer first. With `read_only` a call that may
    write is denied. `sandbox` is what its commands may do.
    """

    rules: tuple[Rule, ...]
    approve: Approve
    read_only: bool
    sandbox: SandboxPolicy


class Budgets(Struct, frozen=True):
    """What a turn and its session may spend, and what the session had spent before the turn.

    A turn that is resumed had spent `spent` itself when the daemon stopped.
    """

    max_steps: int
    turn: Budget
    session: Budget
    spent_before: Spent
    spent: Spent = Spent()


class Before(Struct, frozen=True):
    """What the session had come to before the turn.

    It had taken so many `steps`; the provider counted `tokens` for the first `items` of history. A
    turn that is resumed had taken `turn_steps` more.
    """

    steps: int
    tokens: int
    items: int
    turn_steps: int = 0


class TurnContext(Struct, frozen=True):
    """One configuration for all of a turn.

    `compaction` is the model that writes summaries: `model`, unless another one is configured.
    `depth` is 0 for a turn that works for no other one.
    """

    turn_id: str
    session_id: str
    workspace: str
    agent: str
    model: AskedModel
    compaction: AskedModel
    system_prompt: str
    tools: tuple[ToolSpec, ...]
    sub_agents: tuple[SubAgentOffered, ...]
    hooks: tuple[Hook, ...]
    permissions: Permissions
    budgets: Budgets
    before: Before
    follow_ups: FollowUps
    output_schema: dict[str, Any] | None
    depth: int

    def shown(self) -> TurnContextShown:
        """Return what frontends are told of it."""
        return TurnContextShown(
            workspace=self.workspace,
            agent=self.agent,
            model=self.model.name,
            variant=self.model.variant,
            approve=self.permissions.approve,
            max_steps=self.budgets.max_steps,
            tools=tuple(tool.name for tool in self.tools),
            context_window=self.model.context_window,
            turn_budget=self.budgets.turn,
            session_budget=self.budgets.session,
            output_schema=self.output_schema,
            system_prompt=self.system_prompt,
            sandbox=self.permissions.sandbox.mode,
            follow_ups=self.follow_ups,
        )


class Ending(Struct, frozen=True):
    """How a turn ended; `error` says why when it did not complete.

    `last_message` is what counts as the turn's, if it is not the last message as it was said.
    """

    outcome: Outcome
    error: ErrorInfo | None = None
    last_message: str = ""
