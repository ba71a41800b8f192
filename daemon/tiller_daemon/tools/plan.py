"""The tool `plan`: the list of what is to be done, shown to the user whole each time it changes."""

from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from tiller_daemon.tools.base import Requirement, Tool, ToolEnvironment, ToolResult
from tiller_protocol.items import PlanEntry

ENTRIES_MAX: Final = 50
ENTRY_CHARS_MAX: Final = 300
"""A plan is for people to see at a glance; it is in every snapshot of the session."""

TIMEOUT_S: Final = 30.0


class PlannedArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry, as the model writes it."""

    text: Annotated[str, Meta(min_length=1, max_length=ENTRY_CHARS_MAX)]
    state: Literal["pending", "in_progress", "completed"]


class PlanArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says."""

    items: Annotated[
        tuple[PlannedArguments, ...],
        Meta(max_length=ENTRIES_MAX, description="The whole plan, in order; it replaces the last"),
    ]


def _requirements(arguments: PlanArguments, workspace: Path) -> tuple[Requirement, ...]:  # noqa: ARG001
    return ()


async def _run(arguments: PlanArguments, environment: ToolEnvironment) -> ToolResult:
    await environment.show_plan(tuple(PlanEntry(i.text, i.state) for i in arguments.items))
    done = sum(item.state == "completed" for item in arguments.items)
    said = f"{done} of {len(arguments.items)} done" if arguments.items else "no plan"
    return ToolResult(f"The user sees the plan: {said}.", title=said)


PLAN: Final = Tool(
    name="plan",
    description=(
        "Show the user what you are going to do and how far it is. For work of three steps and "
        "more: give the whole plan before you begin and each time an entry changes, with one entry "
        f"`in_progress` at a time. At most {ENTRIES_MAX} entries of {ENTRY_CHARS_MAX} characters."
    ),
    arguments=PlanArguments,
    effect="read",
    timeout_s=TIMEOUT_S,
    requirements=_requirements,
    run=_run,
)
