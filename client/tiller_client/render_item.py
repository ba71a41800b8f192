"""Renders single items, calls and diffs as text; pure."""

import sys
from collections.abc import Iterable
from typing import Any, assert_never, cast

import msgspec

from tiller_client.render_request import request_block
from tiller_client.text import (
    Paint,
    cells,
    count,
    cut,
    dollars,
    indent,
    one_line,
    sanitized,
    seconds,
)
from tiller_protocol.items import (
    AssistantMessage,
    BackgroundCommand,
    Citation,
    Compaction,
    FileChange,
    Image,
    Item,
    Notice,
    Patch,
    QueuedInput,
    Reasoning,
    ToolCall,
    Usage,
    UserMessage,
)
from tiller_protocol.snapshot import Snapshot

DIFF_LINES_SHOWN = 24
OUTPUT_LINES_SHOWN = 10
"""Of failed calls, the user's own commands and hosted calls; other output is for the model."""

CITATIONS_SHOWN = 10

UNCUT = sys.maxsize
"""A width or number of lines without a limit."""

ARGUMENTS_SHOWN = (
    "command", "path", "pattern", "url", "query", "text", "prompt", "code", "id"
)  # fmt: skip
"""Arguments that describe a call, the best first; used until it has a title."""

_DELIVERY = {"start": "", "steer": " (steering)", "queue": " (queued)"}


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
            state = "ended with the daemon"
    return f"⚙ {command.id} {state}: {one_line(command.command)}"


def call_label(call: ToolCall) -> str:
    """Name and subject of a call in one line."""
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
            return one_line(value)
    return ""


def call_state(call: ToolCall) -> str:
    """State and duration of a call: `ok 1.2 s`, `exit 1 80 ms`, `denied`."""
    if call.state == "completed":
        word = f"exit {call.exit_status}" if call.exit_status else "ok"
    elif call.state == "error":
        word = call.error_kind or "failed"
        if call.exit_status:
            word = f"exit {call.exit_status}"
    else:
        word = call.state
    return word if call.duration_s is None else f"{word} {seconds(call.duration_s)}"


def call_lines(call: ToolCall, paint: Paint, width: int) -> str:
    """A call that has ended: a line with its state, then its diff or its output.

    Output is shown if the call failed or is the user's own command; after an edit, only the
    problems that the edit caused.
    """
    failed = call.state == "error" or bool(call.exit_status)
    state = call_state(call)
    name = one_line(call.name)
    title = cut(call_title(call), width - cells(name) - cells(state) - 5)
    tint = paint.bad if failed else paint.good if call.state == "completed" else paint.dim
    head = f"{tint('●')} {paint.bold(name)} {title} {tint(state)}"
    below = [head.replace("  ", " ")]
    if call.rewritten_arguments:
        changed = f"    a hook changed the arguments to {one_line(call.rewritten_arguments)}"
        below.append(paint.dim(cut(changed, width - 1)))
    below.extend(paint.dim(f"    {label}") for label in attached((), call.images))
    if call.diff:
        below.append(diff_lines(call.diff, paint, width, DIFF_LINES_SHOWN))
        # Problems that the edit caused follow the first blank line.
        if problems := call.output.partition("\n\n")[2]:
            below.append(paint.dim(_tail(problems, width, call.spill_path)))
    elif call.by_provider and not failed and call.output.strip():
        below.append(paint.dim(_head(call.output, width)))
    elif (failed or call.by_user) and call.output.strip():
        below.append(paint.dim(_tail(call.output, width, call.spill_path)))
    return "\n".join(below)


def citation_lines(citations: Iterable[Citation], paint: Paint, width: int) -> list[str]:
    """A line for each source of a message, every source once."""
    sources = dict.fromkeys((one.url, one.title) for one in citations)
    shown = [_source(url, title) for url, title in sources]
    more = [f"… {len(shown) - CITATIONS_SHOWN} more"] if len(shown) > CITATIONS_SHOWN else []
    lines = [*shown[:CITATIONS_SHOWN], *more]
    return [paint.dim(cut(f"    ↗ {line}", width - 1)) for line in lines]


def _source(url: str, title: str) -> str:
    return one_line(" · ".join(part for part in (title, url) if part))


def diff_lines(diff: str, paint: Paint, width: int, lines_max: int) -> str:
    """The hunks of a unified diff in colours; with file names if there are several files."""
    lines = _without_headers(sanitized(diff).rstrip("\n").split("\n"))
    shown = [_diff_line(line, paint, width) for line in lines[:lines_max]]
    if len(lines) > lines_max:
        shown.append(paint.dim(f"    … {_lines(len(lines) - lines_max, 'more ')}"))
    return "\n".join(shown)


def item_block(item: Item, paint: Paint, width: int) -> str:
    """A whole item of history."""
    match item:
        case UserMessage():
            text = " ".join([sanitized(item.text), *attached(item.files, item.images)]).lstrip(" ")
            first, *rest = text.rstrip("\n").split("\n")
            head = f"{paint.bold('» ' + first)}{paint.dim(_DELIVERY[item.delivery])}"
            return "\n".join([head, *(paint.bold("  " + line) for line in rest)])
        case AssistantMessage():
            note = {"discarded": " (discarded)", "interrupted": " (interrupted)"}.get(
                item.state, ""
            )
            text = sanitized(item.text).rstrip("\n") + paint.dim(note)
            return "\n".join([text, *citation_lines(item.citations, paint, width)])
        case Reasoning():
            return paint.dim("∴ " + sanitized(item.text).rstrip("\n"))
        case ToolCall():
            return call_lines(item, paint, width)
        case Compaction():
            return paint.dim("≡ history up to here was summarised:\n") + paint.dim(
                indent(sanitized(item.summary), "    ")
            )
        case Notice():
            return paint.dim(cut(f"▪ {one_line(item.text)}", width - 1))
        case Patch():
            return paint.dim(cut(f"± {_changed(item)}", width - 1))
        case _:
            assert_never(item)


def change_line(change: FileChange, paint: Paint) -> str:
    """One line about a changed file."""
    mark = {"added": "A", "removed": "D", "modified": "M"}[change.kind]
    counts = ""
    if change.added_lines is not None and change.removed_lines is not None:
        counts = paint.dim(f"  +{change.added_lines} -{change.removed_lines}")
    return f"{mark} {one_line(change.path)}{counts}"


def _changed(patch: Patch) -> str:
    if not patch.tree_after:
        return "it is not known what this step changed in files"
    more = f" and {patch.more} more" if patch.more else ""
    return ", ".join(map(one_line, patch.files)) + more


def input_line(queued: QueuedInput) -> str:
    """One line about a queued input."""
    labels = attached(queued.files, queued.images)
    return " ".join([one_line(queued.text), *labels]).strip()


def waiting_line(count: int, session_id: str) -> str:
    """One line about inputs that no turn takes by itself, and how to go on with them."""
    inputs = "1 input waits" if count == 1 else f"{count} inputs wait"
    return f"{inputs}; go on with: tiller resume {session_id}"


def attached(files: Iterable[str], images: Iterable[Image]) -> list[str]:
    """A label for each attached file and image."""
    labels = [f"[{file}]" for file in files]
    labels += [f"[{image.media_type}, {count(len(image.data))}B]" for image in images]
    return [one_line(label) for label in labels]


def transcript(snapshot: Snapshot, paint: Paint, width: int) -> str:
    """A whole session, with open requests and queued input at its end."""
    model = f" · {snapshot.settings.model}" if snapshot.settings.model else ""
    lines = [
        paint.bold(one_line(snapshot.title) or "(no title)"),
        paint.dim(f"{snapshot.session_id} · {one_line(snapshot.workspace)}{one_line(model)}"),
    ]
    for item in snapshot.items:
        if isinstance(item, Reasoning) and not item.text:
            continue  # it has only opaque data for the provider
        before = "\n" if isinstance(item, UserMessage) else ""
        lines.append(before + item_block(item, paint, width))
    lines.extend(request_block(request, paint, width) for request in snapshot.requests)
    running = [one for one in snapshot.background if one.state == "running"]
    lines.extend(paint.dim(background_line(one)) for one in running)
    lines.extend(paint.dim(f"queued: {input_line(queued)}") for queued in snapshot.queue)
    if snapshot.queue and snapshot.turn is None:
        lines.append(paint.asking(f"! {waiting_line(len(snapshot.queue), snapshot.session_id)}"))
    cost = f" · {_cost(snapshot)}" if snapshot.cost is not None or snapshot.unpriced else ""
    tokens = (
        f" · {count(snapshot.usage.input_tokens)} in, {count(snapshot.usage.output_tokens)} out"
        if snapshot.usage != Usage()
        else ""  # the provider did not count
    )
    turns = f"{snapshot.turns} turn{'' if snapshot.turns == 1 else 's'}"
    lines.append(paint.dim(f"\n{snapshot.status} · {turns}{tokens}{cost}"))
    return "\n".join(lines)


def _cost(snapshot: Snapshot) -> str:
    """The cost of a session, and how much of it is unknown."""
    if snapshot.cost is None:
        return "cost unknown"
    if not snapshot.unpriced:
        return dollars(snapshot.cost)
    requests = "1 request" if snapshot.unpriced == 1 else f"{snapshot.unpriced} requests"
    return f"{dollars(snapshot.cost)} and {requests} of unknown price"


def _head(output: str, width: int) -> str:
    """The first lines, where the best results are."""
    lines = sanitized(output).rstrip("\n").split("\n")
    shown = [f"    {cut(line.expandtabs(4), width - 5)}" for line in lines[:OUTPUT_LINES_SHOWN]]
    if len(lines) > OUTPUT_LINES_SHOWN:
        shown.append(f"    … {_lines(len(lines) - OUTPUT_LINES_SHOWN, 'more ')}")
    return "\n".join(shown)


def _tail(output: str, width: int, spill_path: str) -> str:
    """The last lines, after the name of the file with the whole output if it was truncated."""
    lines = sanitized(output).rstrip("\n").split("\n")
    lines = [line.expandtabs(4).rstrip() for line in lines]
    shown = [f"    {cut(line, width - 5)}".rstrip() for line in lines[-OUTPUT_LINES_SHOWN:]]
    if len(lines) > OUTPUT_LINES_SHOWN:
        left_out = f"{_lines(len(lines) - OUTPUT_LINES_SHOWN)} before"
        shown.insert(0, f"    … {f'all of it: {one_line(spill_path)}' if spill_path else left_out}")
    return "\n".join(shown)


def _lines(count: int, which: str = "") -> str:
    return f"{count} {which}{'line' if count == 1 else 'lines'}"


def _without_headers(lines: list[str]) -> list[str]:
    """Remove the two header lines of each file, but not content that looks like headers."""
    starts = [
        at
        for at in range(len(lines) - 2)
        if lines[at].startswith("--- ")
        and lines[at + 1].startswith("+++ ")
        and lines[at + 2].startswith("@@")
    ]
    names = {at: lines[at + 1][4:].removeprefix("b/") for at in starts} if len(starts) > 1 else {}
    headers = {*starts, *(at + 1 for at in starts)}
    result: list[str] = []
    binary = False
    for at, line in enumerate(lines):
        if line.startswith("diff --git "):
            binary = False
        if line == "GIT binary patch" and not binary:
            binary = True
            result.append("(binary)")
        if binary:
            continue
        if at in names:
            result.append(names[at])
        if at not in headers and not line.startswith(("diff --git ", "index ")):
            result.append(line)
    return result


def _diff_line(line: str, paint: Paint, width: int) -> str:
    text = f"    {cut(line.expandtabs(4), width - 5)}"
    match line[:1]:
        case "+":
            return paint.good(text)
        case "-":
            return paint.bad(text)
        case _:
            return paint.dim(text)
