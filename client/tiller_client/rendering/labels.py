"""Names items, calls, changes and inputs in one line; pure."""

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import structs

from tiller_client.program_name import program
from tiller_client.rendering.text import (
    count,
    counted,
    cut,
    one_line,
    quoted_path,
)
from tiller_protocol.items import (
    AssistantMessage,
    BackgroundCommand,
    FileChange,
    Item,
    Notice,
    Patch,
    QueuedInput,
    Reasoning,
    ToolCall,
)
from tiller_protocol.snapshot import Snapshot, is_working, plain
from tiller_protocol.worktrees import WorktreeLanded, WorktreeSummary

QUESTION = "question"
"""The tool with which the model asks the user."""

COMMIT_CHARS_SHOWN = 12

HOOK_COLUMNS = 100
"""How much to show of a hook's text for the model."""

_AGENT = re.compile(r"agent `([^`]+)`")
_SENTENCE = re.compile(r".*?(?:[.!?](?= )|$)")

ARGUMENTS_SHOWN = (
    "command", "path", "pattern", "url", "query", "text", "prompt", "code", "id"
)  # fmt: skip
"""Arguments that describe a call, the best first; used until the call has a title."""

DELIVERY_NOTES = {"start": "", "steer": " (steering)", "queue": " (queued)"}
STATE_NOTES = {"discarded": " (discarded)", "interrupted": " (interrupted)"}


def background_line(command: BackgroundCommand) -> str:
    """One line about a background command or sub-agent."""
    is_task = command.sub_agent is not None
    match command.state:
        case "running":
            state = "works in the background" if is_task else "runs in the background"
        case "exited":
            failure = "failed" if is_task else f"ended with {command.exit_status}"
            state = "ended" if command.exit_status == 0 else failure
        case "killed":
            state = "was ended"
        case "lost":
            state = "ended when the daemon stopped"
    return f"⚙ {command.id} {state}: {one_line(command.command)}"


def is_shown(item: Item) -> bool:
    """Whether an item has anything to show to people."""
    match item:
        case Reasoning():
            return bool(item.text)  # an item may have only opaque data for the provider
        case ToolCall():
            return not item.discarded
        case _:
            return True


def as_shown(item: Item, snapshot: Snapshot) -> Item:
    """Return an item as it will be once the end of a turn that was cut off is stored."""
    if item.id not in snapshot.open_items or is_working(snapshot):
        return item
    match item:
        case ToolCall():
            kind = "aborted" if item.started_at is None else "lost"
            return structs.replace(item, state="error", error_kind=kind)
        case AssistantMessage() | Reasoning():
            return structs.replace(item, state="interrupted")
        case _:
            return item


def call_label(call: ToolCall) -> str:
    """The name and subject of a call, in one line."""
    return f"{one_line(call.name)} {call_title(call)}".rstrip()


def call_title(call: ToolCall) -> str:
    """The title of a call, or else its most descriptive argument."""
    if call.title:
        return one_line(call.title)
    try:
        arguments: object = msgspec.json.decode(call.arguments or "{}")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(arguments, dict):
        return ""
    known = cast("dict[str, Any]", arguments)
    for name in ARGUMENTS_SHOWN:
        if isinstance(value := known.get(name), str):
            return one_line(plain(value) if call.name == QUESTION else value)
    return ""


def notice_line(notice: Notice) -> str:
    """A short line about a notice, whose text is for the model, not for people.

    Most texts begin with a sentence about what has happened; instructions follow.
    """
    text = one_line(notice.text)
    match notice.code:
        case "continued":
            return "The turn goes on without a new message."
        case "mode" if agent := _AGENT.search(text):
            return f"The agent is {agent[1]} now."
        case "output_schema":
            return "The answer did not match the output schema; the model is asked again."
        case "hook":
            return f"A hook told the model: {cut(text, HOOK_COLUMNS)}"
        case _:
            return _SENTENCE.match(text)[0]  # type: ignore[index] - matches any line


def change_line(change: FileChange) -> str:
    """One line about a changed file."""
    mark = {"added": "A", "removed": "D", "modified": "M"}[change.kind]
    counts = ""
    if change.added_lines is not None and change.removed_lines is not None:
        counts = f"  +{change.added_lines} -{change.removed_lines}"
    return f"{mark} {quoted_path(change.path)}{counts}"


def patch_title(patch: Patch) -> str:
    """The files that a step changed, in one line."""
    if not patch.tree_after:
        return "it is unknown which files this step changed"
    more = f" and {patch.more} more" if patch.more else ""
    return ", ".join(map(quoted_path, patch.files)) + more


def input_line(queued: QueuedInput) -> str:
    """One line about a queued input."""
    images = (f"{image.media_type}, {count(len(image.data))}B" for image in queued.images)
    labels = "".join(f" [{label}]" for label in (*queued.files, *images))
    return one_line(queued.text + labels)


def worktree_around(trees: Sequence[WorktreeSummary], directory: str) -> WorktreeSummary | None:
    """The worktree that contains a directory."""
    present = (one for one in trees if one.state != "removed")
    return next((one for one in present if f"{directory}/".startswith(f"{one.path}/")), None)


def landed_line(landed: WorktreeLanded) -> str:
    """Where the commits of a worktree are now."""
    where = f", and updated {one_line(landed.checkout)}" if landed.checkout else ""
    return f"{one_line(landed.onto)} is at {landed.commit[:COMMIT_CHARS_SHOWN]}{where}"


def no_turn_began() -> str:
    """Why the options of a turn had no effect, and what to do."""
    return (
        "this input did not start a turn, so turn options such as --model have no effect; for "
        f"later turns, use: {program()} set"
    )


def waiting_line(count: int, goes_on: str) -> str:
    """One line about inputs that wait without a turn, and the command that starts one."""
    inputs = "1 input waits" if count == 1 else f"{count} inputs wait"
    return f"{inputs}; continue with: {goes_on}"


def more_lines(count: int) -> str:
    """The text about omitted lines."""
    return f"… {counted(count, 'more line')}"
