"""Tool calls as clients show them: kind, files, diffs, output. Pure."""

import base64
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from tiller_client.acp.schema import ImageBlock, ResourceBlock, ResourceContents, TextBlock
from tiller_client.acp.updates import (
    CallContent,
    CallFields,
    CallLocation,
    FileDiff,
    Shown,
    TerminalView,
    ToolKind,
    ToolStatus,
)
from tiller_protocol.items import PDF, Image, Request, ToolCall

OUTPUT_CHARS_MAX = 20_000
"""Maximum number of characters of output in an update: the last ones. `rawOutput` has them all."""

DOCUMENT_URI = "attachment:document.pdf"
"""Address of a document in the conversation; the log has the content but no name."""

_KINDS: dict[str, ToolKind] = {
    "read": "read",
    "ls": "read",
    "diagnostics": "read",
    "write": "edit",
    "edit": "edit",
    "apply_patch": "edit",
    "glob": "search",
    "grep": "search",
    "sourcegraph": "search",
    "bash": "execute",
    "bash_input": "execute",
    "bash_output": "execute",
    "bash_kill": "execute",
    "fetch": "fetch",
    "web_search": "fetch",
    "plan": "think",
}
"""Kinds of the built-in tools; MCP servers' tools are `other`."""

_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.M)
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_TICKS = re.compile(r"`{3,}")


def fields_of(call: ToolCall, workspace: str, *, terminal: bool) -> CallFields:
    """All known fields of a call; with `terminal`, a command is shown as a terminal."""
    return CallFields(
        tool_call_id=call.id,
        title=title_of(call),
        kind=_KINDS.get(call.name, "other"),
        status=_status(call),
        content=content_of(call, workspace, terminal=terminal) or None,
        locations=locations_of(call, workspace) or None,
        raw_input=raw_input(call),
        raw_output=_raw_output(call),
    )


def fields_asked(request: Request, call: ToolCall, workspace: str) -> CallFields:
    """The fields of a call that needs approval, with the whole question, verbatim."""
    fields = fields_of(call, workspace, terminal=False)
    content = _asked(request, workspace) or None
    return structs.replace(fields, title=request.title, content=content, raw_output=None)


def title_of(call: ToolCall) -> str:
    """One line: the command, or the tool and its subject."""
    return call.title if is_command(call) and call.title else f"{call.name} {call.title}".strip()


def is_command(call: ToolCall) -> bool:
    """Whether the call is a command, whose output arrives while it runs."""
    return call.name == "bash"


def raw_input(call: ToolCall) -> Any:  # noqa: ANN401 - whatever the model wrote
    """The arguments that the call runs with; text if they are not JSON, `None` if absent."""
    text = call.rewritten_arguments or call.arguments
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return text


def locations_of(call: ToolCall, workspace: str) -> tuple[CallLocation, ...]:
    """The files that the call names or has changed, each with its first relevant line."""
    if call.diff:
        changes = diffs_of(call.diff, workspace)
        return tuple(
            {path: CallLocation(path, line) for path, line, _ in reversed(changes)}.values()
        )
    match raw_input(call):
        case {"path": str(path), "offset": int(line)}:
            return (CallLocation(_absolute(path, workspace), line),)
        case {"path": str(path)}:
            return (CallLocation(_absolute(path, workspace)),)
        case {"patch": str(patch)}:
            named = dict.fromkeys(one or other for one, other in _PATCHED.findall(patch))
            return tuple(CallLocation(_absolute(name, workspace)) for name in named)
        case _:
            return ()


def content_of(call: ToolCall, workspace: str, *, terminal: bool) -> tuple[CallContent, ...]:
    """The content that the call has produced so far."""
    if terminal and is_command(call):
        return (TerminalView(call.id),)
    shown: list[CallContent] = [diff for _, _, diff in diffs_of(call.diff, workspace)]
    # An edit's output first repeats its diff; after a blank line, it lists problems in the file.
    output = call.output.partition("\n\n")[2] if shown else call.output
    if output.strip():
        shown.append(Shown(TextBlock(fenced(output[-OUTPUT_CHARS_MAX:]))))
    shown += [Shown(picture_block(one)) for one in call.images]
    return tuple(shown)


def diffs_of(diff: str, workspace: str) -> list[tuple[str, int | None, FileDiff]]:
    """The hunks of a unified diff: path, line, and the texts before and after."""
    found: list[tuple[str, int | None, FileDiff]] = []
    source = path = ""
    hunk: _Hunk | None = None
    for line in f"{diff}\n".split("\n"):  # the empty line ends the last hunk
        if hunk and hunk.take(line):
            continue
        if hunk:
            found.append(hunk.shown(path, new=source == "/dev/null"))
            hunk = None
        if line.startswith("--- "):
            source = line[4:]
        elif line.startswith("+++ "):
            # A deleted file keeps its old name.
            target = source if line == "+++ /dev/null" else line[4:]
            path = _absolute(target[2:], workspace)
        elif match := _HUNK.match(line):
            hunk = _Hunk(int(match[2]), int(match[1] or 1), int(match[3] or 1))
    return found


def fenced(text: str) -> str:
    """A text as a Markdown code block, with a fence that the text can't close."""
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}\n{text}{end}{fence}"


def picture_block(image: Image) -> ImageBlock | ResourceBlock:
    """Convert an image or a document for clients."""
    data = base64.b64encode(image.data).decode()
    if image.media_type == PDF:
        return ResourceBlock(ResourceContents(DOCUMENT_URI, blob=data, mime_type=PDF))
    return ImageBlock(data, image.media_type)


class _Hunk:
    """One hunk of a unified diff, while its lines are read.

    Its end is known from the line counts in its header, as lines of a file may look like headers.
    """

    def __init__(self, line: int, before: int, after: int) -> None:
        self._line = line
        self._size = before, after
        self._before: list[str] = []
        self._after: list[str] = []
        self._last: tuple[list[str], ...] = ()

    def take(self, line: str) -> bool:
        """Add a line; return false if it is not part of the hunk."""
        sides = {" ": (self._before, self._after), "-": (self._before,), "+": (self._after,)}
        if line.startswith("\\"):
            for side in self._last:
                side[-1] = side[-1].removesuffix("\n")
            return True
        mark = line[:1]
        if mark not in sides or not self._has_left(mark):
            return False
        self._last = sides[mark]
        for side in self._last:
            side.append(f"{line[1:]}\n")
        return True

    def _has_left(self, mark: str) -> bool:
        """Whether the hunk has another line of this kind."""
        old, new = self._size[0] - len(self._before), self._size[1] - len(self._after)
        return {" ": min(old, new), "-": old, "+": new}[mark] > 0

    def shown(self, path: str, *, new: bool) -> tuple[str, int | None, FileDiff]:
        before = None if new else "".join(self._before)
        return path, self._line or None, FileDiff(path, "".join(self._after), before)


def _status(call: ToolCall) -> ToolStatus:
    match call.state:
        case "pending":
            return "pending"
        case "running":
            return "in_progress"
        case "completed":
            return "completed"
        case "error":
            return "failed"


def _raw_output(call: ToolCall) -> dict[str, Any] | None:
    if call.state not in ("completed", "error"):
        return None
    known = {
        "output": call.output,
        "exitStatus": call.exit_status,
        "errorKind": call.error_kind,
        "file": call.spill_path or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _asked(request: Request, workspace: str) -> tuple[CallContent, ...]:
    """The whole text that the user has to see before answering."""
    if request.detail_kind == "diff" and (changes := diffs_of(request.detail, workspace)):
        return tuple(diff for _, _, diff in changes)
    text = request.detail or "\n".join(request.subjects)
    return (Shown(TextBlock(fenced(text))),) if text else ()


def _absolute(path: str, workspace: str) -> str:
    return str(Path(workspace) / path)
