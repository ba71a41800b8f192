"""Names items and calls in one line; renders calls, diffs and items for verbs; pure."""

import re
import sys
from collections.abc import Iterable
from typing import Any, assert_never, cast

import msgspec
from msgspec import structs

from tiller_client.program_name import program
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import (
    cells,
    count,
    counted,
    cut,
    indent,
    one_line,
    quoted_path,
    rows,
    sanitized,
    seconds,
)
from tiller_client.rendering.wrap import hanging, wrapped
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
    UserMessage,
)
from tiller_protocol.snapshot import Snapshot, is_working

DIFF_LINES_SHOWN = 24
OUTPUT_LINES_SHOWN = 10
"""Lines of output to show of failed calls, the user's own commands and hosted calls."""

COMMAND_LINES_SHOWN = 5
"""Lines of output to show of other commands, both while they run and afterwards."""

CITATIONS_SHOWN = 10

UNCUT = sys.maxsize
"""A width or number of lines without a limit."""

HOOK_COLUMNS = 100
"""How much to show of a hook's text for the model."""

_GIT_NAME = re.compile(r'diff --git .* "?b/(.*?)"?$')
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
            return one_line(value)
    return ""


def call_state(call: ToolCall) -> str:
    """The state and duration of a call: `ok 1.2 s`, `exit 1 80 ms`, `denied`."""
    if call.state == "completed":
        word = f"exit {call.exit_status}" if call.exit_status else "ok"
    elif call.state == "error":
        word = call.error_kind or "failed"
        if call.exit_status:
            word = f"exit {call.exit_status}"
    else:
        word = call.state
    return word if call.duration_s is None else f"{word} {seconds(call.duration_s)}"


def call_lines(call: ToolCall, theme: Theme, width: int, *, whole: bool = False) -> str:
    """A call that has ended: a line with its state, and then its diff or its output.

    The output of a command is cut to its last lines; an edit is followed by the problems that it
    caused. Other output is for the model, so it is shown only if `whole`, but then with all lines.
    """
    failed = call.state == "error" or bool(call.exit_status)
    state = call_state(call)
    name = one_line(call.name)
    title = cut(call_title(call), width - cells(name) - cells(state) - 5)
    tint = theme.bad if failed else theme.good if call.state == "completed" else theme.dim
    head = f"{tint('●')} {theme.bold(name)} {title} {tint(state)}"
    below = [head.replace("  ", " ")]
    if call.rewritten_arguments:
        changed = f"    a hook changed the arguments to {one_line(call.rewritten_arguments)}"
        below.append(theme.dim(cut(changed, width - 1)))
    below.extend(theme.dim(f"    {label}") for label in attached((), call.images))
    columns = UNCUT if whole else width
    output = call.output
    if call.diff:
        lines_max = UNCUT if whole else DIFF_LINES_SHOWN
        hint = _for_all()
        below.append(diff_lines(call.diff, theme, columns, lines_max, hint, whole_lines=whole))
        # After the first blank line, the output lists problems that the edit caused.
        output = call.output.partition("\n\n")[2]
    lines_max = UNCUT if whole else lines_shown(call, failed=failed)
    if lines_max and output.strip():
        is_head = call.by_provider and not failed  # the best results come first
        rows = _output_rows(output, columns, lines_max, call.spill_path, is_head=is_head)
        below.append(theme.dim("\n".join(rows)))
    return "\n".join(below)


def lines_shown(call: ToolCall, *, failed: bool) -> int:
    """How many lines of a call's output to show to people."""
    if failed or call.diff or call.by_user or call.by_provider:
        return OUTPUT_LINES_SHOWN
    return 0 if call.exit_status is None else COMMAND_LINES_SHOWN


def citation_lines(citations: Iterable[Citation], theme: Theme, width: int) -> list[str]:
    """A line for each source that a message cites, without duplicates."""
    sources = dict.fromkeys((one.url, one.title) for one in citations)
    shown = [_source(url, title) for url, title in sources]
    more = [f"… {len(shown) - CITATIONS_SHOWN} more"] if len(shown) > CITATIONS_SHOWN else []
    lines = [*shown[:CITATIONS_SHOWN], *more]
    return [theme.dim(cut(f"    ↗ {line}", width - 1)) for line in lines]


def _source(url: str, title: str) -> str:
    return one_line(" · ".join(part for part in (title, url) if part))


def diff_lines(
    diff: str,
    theme: Theme,
    width: int,
    lines_max: int,
    for_all: str = "",
    *,
    whole_lines: bool = False,
) -> str:
    """The hunks of a unified diff in colours, with file names if there are several files.

    `for_all` is written after the number of omitted lines. Long lines are cut, or continue in
    further rows if `whole_lines`.
    """
    lines = _without_headers(sanitized(diff).rstrip("\n").split("\n"))
    shown = [
        theme.changed(line[:1], f"    {row}")
        for line in lines[:lines_max]
        for row in _diff_rows(line.expandtabs(4), width - 5, whole=whole_lines)
    ]
    if len(lines) > lines_max:
        shown.append(theme.dim(f"    … {more_lines(len(lines) - lines_max)}{for_all}"))
    return "\n".join(shown)


def item_block(
    item: Item, theme: Theme, width: int, columns: int = UNCUT, *, whole: bool = False
) -> str:
    """Render an item of history; a call's output is shown completely only if `whole`.

    Text is broken between words into lines of at most `columns`.
    """
    match item:
        case UserMessage():
            text = " ".join([sanitized(item.text), *attached(item.files, item.images)]).lstrip(" ")
            first, *rest = wrapped(text.rstrip("\n"), columns - 2).split("\n")
            head = f"{theme.bold('» ' + first)}{theme.dim(DELIVERY_NOTES[item.delivery])}"
            return "\n".join([head, *(theme.bold("  " + line) for line in rest)])
        case AssistantMessage():
            note = theme.dim(STATE_NOTES.get(item.state, ""))
            text = wrapped(sanitized(item.text).rstrip("\n"), columns) + note
            return "\n".join([text, *citation_lines(item.citations, theme, width)])
        case Reasoning():
            return theme.dim(wrapped("∴ " + sanitized(item.text).rstrip("\n"), columns))
        case ToolCall():
            return call_lines(item, theme, width, whole=whole)
        case Compaction():
            return theme.dim("≡ history up to here was summarised:\n") + theme.dim(
                indent(sanitized(item.summary), "    ")
            )
        case Notice():
            text = f"Told the model: {one_line(item.text)}" if whole else notice_line(item)
            return theme.dim(hanging(f"▪ {text}", columns))
        case Patch():
            return theme.dim(cut(f"± {patch_title(item)}", width - 1))
        case _:
            assert_never(item)


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


def change_line(change: FileChange, theme: Theme) -> str:
    """One line about a changed file."""
    mark = {"added": "A", "removed": "D", "modified": "M"}[change.kind]
    counts = ""
    if change.added_lines is not None and change.removed_lines is not None:
        counts = theme.dim(f"  +{change.added_lines} -{change.removed_lines}")
    return f"{mark} {quoted_path(change.path)}{counts}"


def patch_title(patch: Patch) -> str:
    """The files that a step changed, in one line."""
    if not patch.tree_after:
        return "it is unknown which files this step changed"
    more = f" and {patch.more} more" if patch.more else ""
    return ", ".join(map(quoted_path, patch.files)) + more


def input_line(queued: QueuedInput) -> str:
    """One line about a queued input."""
    labels = attached(queued.files, queued.images)
    return " ".join([one_line(queued.text), *labels]).strip()


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


def attached(files: Iterable[str], images: Iterable[Image]) -> list[str]:
    """A label for each attached file and image."""
    labels = [f"[{file}]" for file in files]
    labels += [f"[{image.media_type}, {count(len(image.data))}B]" for image in images]
    return [one_line(label) for label in labels]


def output_row(line: str, width: int) -> str:
    """A line of a call's output, cut to one row."""
    text = sanitized(line.removesuffix("\r")).expandtabs(4).rstrip()
    return f"    {cut(text, width - 5)}".rstrip()


def _output_rows(
    output: str, width: int, lines_max: int, spill_path: str, *, is_head: bool
) -> list[str]:
    """The first or last lines, with the number of omitted lines or the file that has them all."""
    lines = output.rstrip("\n").split("\n")
    shown = lines[:lines_max] if is_head else lines[-lines_max:]
    rows = [output_row(line, width) for line in shown]
    left_out = len(lines) - len(shown)
    if spill_path and (left_out or lines_max == UNCUT):
        more = [f"    … whole output: {one_line(spill_path)}"]
    else:
        more = [f"    … {more_lines(left_out)}{_for_all()}"] if left_out else []
    return [*rows, *more] if is_head else [*more, *rows]


def more_lines(count: int) -> str:
    """The text about omitted lines."""
    return counted(count, "more line")


def _without_headers(lines: list[str]) -> list[str]:
    """Put the file's name in place of its headers, but keep content that looks like a header."""
    starts = {
        at
        for at in range(len(lines) - 2)
        if lines[at].startswith("--- ")
        and lines[at + 1].startswith("+++ ")
        and lines[at + 2].startswith("@@")
    }
    firsts = [at for at, line in enumerate(lines) if line.startswith("diff --git ")]
    # If there is only one file, the line above the diff names it.
    has_names = max(len(starts), len(firsts)) > 1
    headers = starts | {at + 1 for at in starts}
    result: list[str] = []
    binary = False
    for at, line in enumerate(lines):
        if line.startswith("diff --git "):
            binary = False
            if has_names and (name := _GIT_NAME.match(line)):
                result.append(name[1])
        if line == "GIT binary patch" and not binary:
            binary = True
            result.append("(binary)")
        if binary:
            continue
        if at in headers:
            if has_names and not firsts and at in starts:
                result.append(lines[at + 1][4:].removeprefix("b/"))
        elif not line.startswith(("diff --git ", "index ")):
            result.append(line)
    return result


def _for_all() -> str:
    """The hint after the number of omitted lines."""
    return f": {program()} show --full"


def _diff_rows(line: str, width: int, *, whole: bool) -> list[str]:
    """A line of a diff; further rows begin below its text."""
    if not whole:
        return [cut(line, width)]
    first, *rest = rows(line, width)
    return [first, *(f" {row}" for part in rest for row in rows(part, width - 1))]
