"""The state of a session: `Snapshot`, its summary, and the part that a fork shares with its parent.

`fold` defines how events change the snapshot.
"""

import re
from typing import Annotated

from msgspec import Struct, field, structs

from tiller_protocol.doc import doc
from tiller_protocol.errors import ErrorInfo
from tiller_protocol.events import (
    Outcome,
    StatusName,
)
from tiller_protocol.items import (
    AssistantMessage,
    Background,
    Item,
    Patch,
    PlanEntry,
    QueuedInput,
    Reasoning,
    Request,
    ToolCall,
    Usage,
    UsdCost,
)
from tiller_protocol.settings import Settings, TurnChoices
from tiller_protocol.turns import OpenTurn

LINE_CHARS_MAX = 200
"""The most characters of `last_line`."""

_MARKS = re.compile(
    r"^(?:#{1,6} +|> ?|[-*+] +(?:\[[ xX]\] +)?)"
    r"|(`+)(?P<code>.+?)\1"
    r"|!?\[(?P<link>[^\]]+)\]\([^)\s]+\)"
    r"|(?<![\w*])(\*{1,3})(?=[^\s*])(?P<stars>.*?[^\s*])\4(?![\w*])"
)
"""The marks of Markdown in a line."""


class Mark(Struct, frozen=True, omit_defaults=True):
    """A point to which history can be reverted: before a turn, or before one of its steps."""

    turn_id: Annotated[str, doc("Id of the turn.")]
    seq: Annotated[int, doc("`seq` of the last event before this point.")]
    items: Annotated[int, doc("Number of items before this point.")]
    step: Annotated[int, doc("The step that begins here; 0 if the turn begins here.")] = 0
    agent: Annotated[str, doc("Name of the turn's agent.")] = ""
    read_only: Annotated[bool, doc("Whether the agent is limited to reading.")] = False
    at: Annotated[float, doc("When the turn or step began, in Unix seconds.")] = 0.0
    duration_s: Annotated[
        float | None,
        doc("For a turn that has ended: the same duration as in `turn_ended`, in seconds."),
    ] = None
    choices: Annotated[
        TurnChoices | None,
        doc("Choices for the turn, as in `turn_started`; always absent for steps."),
    ] = None
    model: Annotated[str, doc("The model of the turn, as `provider/model`.")] = ""
    outcome: Annotated[Outcome | None, doc("Outcome of a turn that has ended.")] = None
    error: Annotated[ErrorInfo | None, doc("Reason for the outcome, as in `turn_ended`.")] = None


class Reverted(Struct, frozen=True, omit_defaults=True):
    """The part of history that a revert removed."""

    position: Annotated[int, doc("Number of items that the revert kept.")]
    items: Annotated[tuple[Item, ...], doc("The items that the revert removed.")]
    marks: Annotated[
        tuple[Mark, ...],
        doc("The marks that the revert removed. Each says where a turn or step began."),
    ]
    conflicts: Annotated[tuple[str, ...], doc("Files that the revert did not restore.")] = ()


class Snapshot(Struct, omit_defaults=True):
    """A session's state after the event `seq`. Mutable: `fold` applies the next event in place."""

    session_id: Annotated[str, doc("The session.")]
    seq: Annotated[
        int, doc("`seq` of the last event that the snapshot includes; 0 if it includes none.")
    ] = 0
    workspace: Annotated[str, doc("Absolute path of the workspace.")] = ""
    settings: Annotated[Settings, doc("Settings of the next turn.")] = Settings()
    title: Annotated[str, doc("Title in one line; empty if the session has none.")] = ""
    archived: Annotated[bool, doc("Whether the session is archived.")] = False
    created_at: Annotated[float, doc("Time of creation in Unix seconds.")] = 0.0
    updated_at: Annotated[float, doc("Time of the last event in Unix seconds.")] = 0.0
    status: Annotated[StatusName, doc("What the session is doing now.")] = "idle"
    items: Annotated[list[Item], doc("History, in the order in which items started.")] = []
    open_items: Annotated[list[str], doc("Ids of items that are still incomplete.")] = []
    requests: Annotated[list[Request], doc("Open requests, oldest first.")] = []
    queue: Annotated[tuple[QueuedInput, ...], doc("Queued inputs, next one first.")] = ()
    plan: Annotated[tuple[PlanEntry, ...], doc("The model's plan.")] = ()
    background: Background = ()
    pruned: Annotated[
        list[str], doc("Ids of calls whose output is no longer sent to the model.")
    ] = []
    marks: Annotated[list[Mark], doc("Points at which turns and steps began, oldest first.")] = []
    reverted: Annotated[
        list[Reverted],
        doc("Reverts since the last turn, in order. They can still be undone."),
    ] = []
    context_tokens: Annotated[
        int,
        doc(
            "Number of tokens in the first `context_items` items, as counted by the "
            "provider; after a compaction, an estimate of all, with `context_items` 0. It is 0 "
            "without a count, or after a revert."
        ),
    ] = 0
    context_items: Annotated[int, doc("Number of items that `context_tokens` covers.")] = 0
    context_window: Annotated[
        int, doc("Context window of the latest turn's model, in tokens; 0 before the first turn.")
    ] = 0
    branch: Annotated[
        str, doc("Branch in the workspace, from the latest `turn_ended` that has one.")
    ] = ""
    turn: Annotated[OpenTurn | None, doc("The running turn, if any.")] = None
    last_outcome: Annotated[
        Outcome | None,
        doc(
            "Outcome of the latest turn that used a model. Absent before the first such turn and "
            "after a revert."
        ),
    ] = None
    last_line: Annotated[
        str, doc("The last line of the model's latest message, shortened; empty if there is none.")
    ] = ""
    changed_files: Annotated[
        dict[str, int],
        doc("Files that the steps in history have changed, with the number of these steps."),
    ] = {}
    added_lines: Annotated[int, doc("Number of lines that these steps have added.")] = 0
    removed_lines: Annotated[int, doc("Number of lines that these steps have removed.")] = 0
    wants_user: Annotated[
        int, doc("`seq` of the latest `turn_ended` or `request_opened`; 0 if there is none.")
    ] = 0
    seen: Annotated[int, doc("`seq` up to which a user has seen the session.")] = 0
    turns: Annotated[int, doc("Number of turns so far.")] = 0
    steps: Annotated[
        int, doc("Number of model requests in all turns, not counting those of sub-agents.")
    ] = 0
    usage: Annotated[
        Usage, doc("Tokens of all turns, including titles, summaries and sub-agents.")
    ] = Usage()
    cost: Annotated[
        float | None,
        doc(
            "Cost of `usage` in US dollars, without model requests of unknown price; absent if no "
            "price is known."
        ),
    ] = None
    unpriced: Annotated[
        int, doc("Number of model requests that `cost` omits, not counting those of sub-agents.")
    ] = 0
    worked_s: Annotated[float, doc("Total duration of all turns that have ended, in seconds.")] = (
        0.0
    )
    delegated_steps: Annotated[int, doc("Number of model requests by sub-agents.")] = 0
    parent_id: Annotated[str | None, doc("For a fork: the session that it branches from.")] = None
    parent_turns: Annotated[int, doc("For a fork: number of turns shared with its parent.")] = 0
    owner_id: Annotated[str | None, doc("For a sub-agent: the session that it works for.")] = None
    owner_item_id: Annotated[str | None, doc("For a sub-agent: the tool call that started it.")] = (
        None
    )
    worktree: Annotated[str, doc("Name of the worktree around the workspace; may be empty.")] = ""


def is_working(snapshot: Snapshot) -> bool:
    """Whether a turn is running.

    A turn that has ended stays open in the snapshot as long as its end can't be stored, for example
    on a full disk. The session is then idle.
    """
    return snapshot.turn is not None and snapshot.status != "idle"


class SessionSummary(Struct, frozen=True, omit_defaults=True):
    """One entry of a list of sessions."""

    session_id: Annotated[str, doc("The session.")]
    workspace: Annotated[str, doc("Absolute path of the workspace.")]
    created_at: Annotated[float, doc("Time of creation in Unix seconds.")]
    updated_at: Annotated[float, doc("Time of the last event in Unix seconds.")]
    head: Annotated[int, doc("`seq` of the last event.")]
    status: Annotated[StatusName, doc("What the session is doing now; always present.")] = field(
        default_factory=lambda: "idle"
    )
    title: Annotated[str, doc("Title in one line; empty if the session has none.")] = ""
    archived: Annotated[bool, doc("Whether the session is archived.")] = False
    turns: Annotated[int, doc("Number of turns so far.")] = 0
    cost: UsdCost = None
    requests: Annotated[tuple[Request, ...], doc("Open requests, oldest first.")] = ()
    parent_id: Annotated[str | None, doc("For a fork: the session that it branches from.")] = None
    parent_turns: Annotated[int, doc("For a fork: number of turns shared with its parent.")] = 0
    context_tokens: Annotated[int, doc("As in `Snapshot`.")] = 0
    context_window: Annotated[int, doc("As in `Snapshot`.")] = 0
    branch: Annotated[str, doc("As in `Snapshot`.")] = ""
    worktree: Annotated[str, doc("As in `Snapshot`.")] = ""
    last_outcome: Annotated[
        Outcome | None,
        doc("As in `Snapshot`. Also absent if the latest turn ran before this field existed."),
    ] = None
    reason: Annotated[str, doc("Why the latest turn ended so; empty if not needed.")] = ""
    last_line: Annotated[str, doc("As in `Snapshot`.")] = ""
    changed_files: Annotated[int, doc("Number of files that the session has changed.")] = 0
    added_lines: Annotated[int, doc("As in `Snapshot`.")] = 0
    removed_lines: Annotated[int, doc("As in `Snapshot`.")] = 0
    plan_done: Annotated[int, doc("Number of tasks of the plan that are completed.")] = 0
    plan_size: Annotated[int, doc("Number of tasks of the plan.")] = 0
    unseen: Annotated[
        bool,
        doc("Whether a turn has ended, or a request was opened, since a user saw the session."),
    ] = False
    owner_id: Annotated[str | None, doc("As in `Snapshot`.")] = None
    queued: Annotated[int, doc("Number of inputs in the queue.")] = 0
    working_since: Annotated[
        float | None, doc("When the running turn began, in Unix seconds; absent without a turn.")
    ] = None
    doing: Annotated[
        str,
        doc("Name and title of the call that runs now, shortened; empty if no call is running."),
    ] = ""
    checkout: Annotated[
        str,
        doc("In a worktree: the same place in the checkout that it was made from. Else empty."),
    ] = ""
    landed: Annotated[
        bool, doc("In a worktree: whether its commits have landed, and there are no new ones.")
    ] = False


def last_line(text: str) -> str:
    """The last line of a text that says something, shortened to `LINE_CHARS_MAX`.

    Rows of tables say little alone; rules, and the fences of code, say nothing.
    """
    lines = [one.strip() for one in reversed(text.rstrip()[-LINE_CHARS_MAX * 10 :].split("\n"))]
    telling = [one for one in lines if any(map(str.isalnum, one))] or lines
    line = next((one for one in telling if not one.startswith("|")), telling[0])
    return line if len(line) <= LINE_CHARS_MAX else f"{line[: LINE_CHARS_MAX - 1]}…"


def plain(line: str) -> str:
    """Remove the marks of Markdown from a line: of headings, lists, code, links and emphasis.

    Underscores stay, as they are in names more often.
    """
    return _MARKS.sub(_inside, line)


def _inside(found: re.Match[str]) -> str:
    if found["code"]:
        return found["code"]
    return plain(found["link"] or found["stars"] or "")


def last_words(answer: str) -> str:
    """The last line of a model's answer, without the marks of Markdown."""
    return plain(last_line(answer))


def note_patch(snapshot: Snapshot, patch: Patch) -> None:
    """Count the changes of a step."""
    for path in patch.files:
        snapshot.changed_files[path] = snapshot.changed_files.get(path, 0) + 1
    snapshot.added_lines += sum(one.added_lines or 0 for one in patch.changes)
    snapshot.removed_lines += sum(one.removed_lines or 0 for one in patch.changes)


def note_items(snapshot: Snapshot) -> None:
    """Count all changes again, because history has become another one."""
    snapshot.changed_files = {}
    snapshot.added_lines = snapshot.removed_lines = 0
    snapshot.last_line = ""
    for item in snapshot.items:
        if isinstance(item, Patch):
            note_patch(snapshot, item)
        elif isinstance(item, AssistantMessage) and item.state != "discarded":
            snapshot.last_line = last_words(item.text) or snapshot.last_line


def summary_of(snapshot: Snapshot) -> SessionSummary:
    """Return what a list shows of a session, as if it were idle and had no requests."""
    latest = next((mark for mark in reversed(snapshot.marks) if mark.step == 0), None)
    error = None if snapshot.turn or latest is None else latest.error
    return SessionSummary(
        snapshot.session_id,
        snapshot.workspace,
        snapshot.created_at,
        snapshot.updated_at,
        snapshot.seq,
        title=snapshot.title,
        archived=snapshot.archived,
        turns=snapshot.turns,
        cost=snapshot.cost,
        parent_id=snapshot.parent_id,
        parent_turns=snapshot.parent_turns,
        context_tokens=snapshot.context_tokens,
        context_window=snapshot.context_window,
        branch=snapshot.branch,
        worktree=snapshot.worktree,
        last_outcome=snapshot.last_outcome,
        reason=last_line(error.message) if error else "",
        last_line=snapshot.last_line,
        changed_files=len(snapshot.changed_files),
        added_lines=snapshot.added_lines,
        removed_lines=snapshot.removed_lines,
        plan_done=sum(entry.state == "completed" for entry in snapshot.plan),
        plan_size=len(snapshot.plan),
        unseen=snapshot.wants_user > snapshot.seen,
        owner_id=snapshot.owner_id,
        queued=len(snapshot.queue),
    )


def running_call(snapshot: Snapshot) -> str:
    """The name and title of the latest call that is open, shortened; empty if there is none."""
    left = len(snapshot.open_items) if is_working(snapshot) else 0
    for item in reversed(snapshot.items):  # open items are near the end
        if not left:
            break
        if item.id in snapshot.open_items:
            left -= 1
            if isinstance(item, ToolCall):
                return last_line(" ".join(f"{item.name} {item.title}".split()))
    return ""


def find_mark(snapshot: Snapshot, turn_id: str, step: int) -> int | None:
    """The index of the mark before a turn (`step` 0) or one of its steps, or `None`."""
    marks = enumerate(snapshot.marks)
    return next((n for n, mark in marks if (mark.turn_id, mark.step) == (turn_id, step)), None)


def fork_base(parent: Snapshot, session_id: str) -> Snapshot:
    """Return the part of `parent` that a fork shares: history, settings, title; nothing is open.

    The fork's events, beginning with its `session_created`, are folded onto this snapshot.
    """
    items = [_closed(item) if item.id in parent.open_items else item for item in parent.items]
    fork = Snapshot(
        session_id,
        settings=parent.settings,
        title=parent.title,
        items=items,
        plan=parent.plan,
        pruned=list(parent.pruned),
        marks=list(parent.marks),
        context_tokens=parent.context_tokens,
        context_items=parent.context_items,
        steps=parent.steps,
    )
    note_items(fork)
    return fork


def _closed(item: Item) -> Item:
    if isinstance(item, (AssistantMessage, Reasoning)):
        return structs.replace(item, state="interrupted")
    if isinstance(item, ToolCall):
        return structs.replace(
            item,
            state="error",
            error_kind="aborted",
            output="The call had not finished when the session was forked.",
        )
    return item
