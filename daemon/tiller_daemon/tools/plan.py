"""The tool `plan`: the model's list of steps, shown to the user each time it changes."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Tool, ToolEnvironment, ToolResult, nothing_required
from tiller_protocol.items import PlanEntry

ENTRIES_MAX: Final = 50
ENTRY_CHARS_MAX: Final = 300
"""People read a plan at a glance, and every snapshot of the session contains it."""

TIMEOUT_S: Final = 30.0


class PlannedArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a plan."""

    text: Annotated[str, Meta(min_length=1, max_length=ENTRY_CHARS_MAX)]
    state: Literal["pending", "in_progress", "completed"]


class PlanArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `plan`."""

    items: Annotated[
        tuple[PlannedArguments, ...],
        Meta(
            max_length=ENTRIES_MAX,
            description="The whole plan in order; it replaces the previous one",
        ),
    ]


async def _run(arguments: PlanArguments, environment: ToolEnvironment) -> ToolResult:
    await environment.user.show_plan(tuple(PlanEntry(i.text, i.state) for i in arguments.items))
    done = sum(item.state == "completed" for item in arguments.items)
    progress = f"{done} of {len(arguments.items)} done" if arguments.items else "no plan"
    return ToolResult(f"The user sees the plan: {progress}.", title=progress)


PLAN: Final = Tool(
    name="plan",
    description=(
        "Show the user what you plan to do and how far you have got. Use this for work of three "
        "or more steps. Give the whole plan before you begin, and again each time an entry "
        "changes. Keep one entry `in_progress` at a time. A plan has at most "
        f"{ENTRIES_MAX} entries of up to {ENTRY_CHARS_MAX} characters."
    ),
    arguments=PlanArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=nothing_required,
    run=_run,
)
