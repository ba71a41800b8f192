"""Settings of a session and overrides of a turn, as frontends send them and events show them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Approve = Literal["ask", "always", "never"]
SandboxMode = Literal["read_only", "workspace_write", "full_access"]
FollowUps = Literal["one_at_a_time", "all"]
Action = Literal["allow", "ask", "deny"]

MAX_STEPS_LIMIT = 10_000
"""Most steps that a frontend may ask for in one turn."""

Steps = Annotated[int, Meta(ge=1, le=MAX_STEPS_LIMIT)]


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """A permission rule. `pattern` is a glob over the subject; the last rule that matches wins."""

    permission: str
    pattern: str
    action: Action


class Budget(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Most that may be spent: model requests, tokens in and out, US dollars, seconds of work.

    `None` is no limit. The step after which one is used up is the last and gets no tools. A model
    without a known price spends no dollars that could be counted.
    """

    steps: Annotated[int, Meta(ge=1)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None
    cost: Annotated[float, Meta(gt=0)] | None = None
    time_s: Annotated[float, Meta(gt=0)] | None = None


class Settings(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What may be chosen for a session. `None` leaves the choice to the layer below.

    `approve` says what becomes of a question that no rule answers: `ask` opens a request, `always`
    allows, `never` denies. `sandbox` is what commands may do: nothing but look, write in the
    workspace, or whatever the user may.
    """

    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    approve: Approve | None = None
    sandbox: SandboxMode | None = None
    follow_ups: FollowUps | None = None
    max_steps: Steps | None = None
    turn_budget: Budget | None = None
    session_budget: Budget | None = None
    permissions: tuple[Rule, ...] | None = None


class TurnOverrides(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one input may choose for its own turn only. `tools` names the tools to offer.

    `options` are fields of the provider's own request, over those that are configured.
    """

    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    approve: Approve | None = None
    sandbox: SandboxMode | None = None
    max_steps: Steps | None = None
    turn_budget: Budget | None = None
    tools: tuple[str, ...] | None = None
    output_schema: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


class TurnContextShown(Struct, frozen=True, omit_defaults=True):
    """The frozen context of a turn as frontends see it: everything but secrets.

    `system_prompt` and `tools` are what the model is sent beside history.
    """

    workspace: str
    agent: str
    model: str
    variant: str
    approve: Approve
    max_steps: int
    tools: tuple[str, ...]
    context_window: int
    turn_budget: Budget = Budget()
    session_budget: Budget = Budget()
    output_schema: dict[str, Any] | None = None
    system_prompt: str = ""
    sandbox: SandboxMode = "full_access"
    follow_ups: FollowUps = "one_at_a_time"
