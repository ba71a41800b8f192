"""Settings of sessions and turns, the context in which a turn runs, and ops on permission rules."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tiller_protocol.doc import doc
from tiller_protocol.ids import IdText
from tiller_protocol.op import Op, Result

Approve = Literal["ask", "always", "never"]
SandboxMode = Literal["read_only", "workspace_write", "full_access"]
FollowUps = Literal["one_at_a_time", "all"]
Action = Literal["allow", "ask", "deny"]

MAX_STEPS_LIMIT = 10_000
"""Maximum number of steps that a frontend can ask for in one turn."""

Positive = Annotated[int, Meta(ge=1)]
Steps = Annotated[int, Meta(ge=1, le=MAX_STEPS_LIMIT)]

AgentChoice = Annotated[str | None, doc("Name of an agent.")]
ModelChoice = Annotated[str | None, doc("Model, as `provider/model`.")]
VariantChoice = Annotated[
    str | None,
    doc("Name of a variant of the model. Empty for no variant, even if one is configured."),
]
ApproveChoice = Annotated[
    Approve | None,
    doc(
        "What happens to a call if no rule decides. `ask`: the user is asked. `always`: the "
        "call is allowed. `never`: the call is denied, and nobody is asked."
    ),
]
SandboxChoice = Annotated[
    SandboxMode | None,
    doc(
        "What commands are allowed to do. `read_only`: only read. `workspace_write`: also write in "
        "the workspace. `full_access`: everything that the user is allowed to do."
    ),
]
StepsChoice = Annotated[Steps | None, doc("Maximum number of model requests in one turn.")]
ToolsChoice = Annotated[
    tuple[str, ...] | None,
    doc(
        "Names of the tools to offer, or patterns for MCP tools. Default: the tools that the agent "
        "lists, or all tools if the agent has no list."
    ),
]
TurnBudgetChoice = Annotated["Budget | None", doc("Limit for each turn.")]


class Rule(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A permission rule; the last matching rule wins.

    A granted rule is stronger than all others, except those that deny.
    """

    permission: Annotated[
        str, doc("The permission, such as `bash`, or a glob that matches several.")
    ]
    pattern: Annotated[str, doc("A glob that matches subjects, such as commands or paths.")]
    action: Action
    granted: Annotated[
        bool,
        doc(
            "Whether the rule comes from an answer such as `always`. Such a rule never overrides "
            "a denial."
        ),
    ] = False


class Budget(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits on the use of models. An absent field means no limit.

    A step that is expected to use up a budget is the turn's last one, and gets no tools.
    """

    steps: Annotated[Positive | None, doc("Number of model requests.")] = None
    tokens: Annotated[Positive | None, doc("Number of tokens sent and received.")] = None
    cost: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        doc("Cost in US dollars; requests without a known price don't count."),
    ] = None
    time_s: Annotated[Annotated[float, Meta(gt=0)] | None, doc("Working time in seconds.")] = None


class Settings(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of a session.

    An absent field leaves the choice to the agent or the configuration.
    """

    agent: AgentChoice = None
    model: ModelChoice = None
    variant: VariantChoice = None
    approve: ApproveChoice = None
    sandbox: SandboxChoice = None
    follow_ups: Annotated[
        FollowUps | None, doc("How many queued inputs a turn takes at a time: one, or all.")
    ] = None
    max_steps: StepsChoice = None
    turn_budget: TurnBudgetChoice = None
    session_budget: Annotated[Budget | None, doc("Limit for the whole session.")] = None
    permissions: Annotated[
        tuple[Rule, ...] | None,
        doc("The session's own rules, which are stronger than configured rules."),
    ] = None
    tools: ToolsChoice = None


class TurnOverrides(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Choices for the turn that one input starts.

    An absent field leaves the choice to the session.
    """

    agent: AgentChoice = None
    model: ModelChoice = None
    variant: VariantChoice = None
    approve: ApproveChoice = None
    sandbox: SandboxChoice = None
    max_steps: StepsChoice = None
    turn_budget: TurnBudgetChoice = None
    tools: ToolsChoice = None
    output_schema: Annotated[
        dict[str, Any] | None, doc("JSON Schema that the final message must match.")
    ] = None
    options: Annotated[
        dict[str, Any] | None,
        doc("Fields to add to each request to the provider; they override configured fields."),
    ] = None


class TurnChoices(Struct, frozen=True, omit_defaults=True):
    """Choices for one turn only."""

    overrides: Annotated[TurnOverrides, doc("Choices that came with the input.")] = TurnOverrides()
    system: Annotated[str, doc("Text that the input added to the system prompt.")] = ""


class TurnContextShown(Struct, frozen=True, omit_defaults=True):
    """The context of a turn for frontends: everything except secrets."""

    workspace: Annotated[str, doc("Absolute path of the workspace.")]
    agent: Annotated[str, doc("Name of the agent.")]
    model: Annotated[str, doc("Model of the turn, as `provider/model`.")]
    variant: Annotated[str, doc("Variant of the model; empty if there is none.")]
    approve: Annotated[Approve, doc("What happens to a call if no permission rule decides.")]
    max_steps: Annotated[int, doc("Maximum number of model requests in the turn.")]
    tools: Annotated[tuple[str, ...], doc("Names of the tools offered to the model.")]
    context_window: Annotated[int, doc("Context window of the model, in tokens.")]
    turn_budget: Annotated[Budget, doc("Limit for this turn.")] = Budget()
    session_budget: Annotated[Budget, doc("Limit for the whole session.")] = Budget()
    output_schema: Annotated[
        dict[str, Any] | None, doc("JSON Schema that the final message must match.")
    ] = None
    system_prompt: Annotated[str, doc("System prompt, exactly as the model gets it.")] = ""
    sandbox: Annotated[SandboxMode, doc("What commands are allowed to do.")] = "full_access"
    follow_ups: Annotated[
        FollowUps, doc("How many queued inputs a turn takes at a time: one, or all.")
    ] = "one_at_a_time"
    read_only: Annotated[
        bool, doc("Whether the agent is limited to reading, whatever the rules say.")
    ] = False
    write_paths: Annotated[
        tuple[str, ...] | None,
        doc(
            "For a sub-agent whose `task` call has `paths`: the only places that the sub-agent is "
            "allowed to change."
        ),
    ] = None


class RulesList(Op, frozen=True, tag="rules_list"):
    """Lists lasting rules, which the answer `always_here` makes. Answered by `RulesResult`."""

    workspace: Annotated[str | None, doc("Only rules for this directory. Default: all.")] = None
    session_id: Annotated[
        IdText | None, doc("Only this session's own rules and the lasting rules for its directory.")
    ] = None


class RuleSummary(Struct, frozen=True, omit_defaults=True):
    """A permission rule that was made by an answer or a frontend."""

    id: Annotated[str, doc("Id of the rule, for `rule_revoke`.")]
    permission: Annotated[str, doc("The permission that the rule decides, such as `bash`.")]
    pattern: Annotated[str, doc("A glob that matches subjects, such as commands or paths.")]
    action: Annotated[Action, doc("The rule's decision; a lasting rule always allows.")] = "allow"
    workspace: Annotated[str, doc("Directory of a lasting rule; empty for a session's rule.")] = ""
    session_id: Annotated[str, doc("Session that has the rule; empty for a lasting rule.")] = ""
    granted_at: Annotated[
        float | None, doc("When the rule was made, in Unix seconds; absent if unknown.")
    ] = None
    by: Annotated[str, doc("Name of the frontend that made the rule; empty if unknown.")] = ""


class RulesResult(Result, frozen=True, tag="rules"):
    """The lasting rules, by directory. If the op names a session, that session's rules follow."""

    rules: Annotated[tuple[RuleSummary, ...], doc("The rules. Later rules take precedence.")]


class RuleRevoke(Op, frozen=True, tag="rule_revoke"):
    """Revokes one permission rule. Running turns lose the rule, too."""

    rule_id: Annotated[IdText, doc("Id of the rule, from a `RuleSummary`.")]
    session_id: Annotated[
        IdText | None, doc("Session that has the rule; absent for a lasting rule.")
    ] = None
