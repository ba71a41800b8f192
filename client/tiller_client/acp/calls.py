"""Tool calls as clients show them: kind, files, diffs, output. Pure."""

import base64
import re
from pathlib import Path
from typing import Any

import msgspec

from tiller_client.acp.diffs import hunks_of
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
from tiller_client.rendering.text import one_line
from tiller_protocol.items import PDF, Image, ToolCall

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
_TICKS = re.compile(r"`{3,}")


def fields_of(call: ToolCall, workspace: str, *, terminal: bool) -> CallFields:
    """All known fields of a call; with `terminal`, a command is shown as a terminal."""
    return CallFields(
        tool_call_id=call.id,
        title=title_of(call),
        name=call.name,
        kind=_KINDS.get(call.name, "other"),
        status=_status(call),
        content=content_of(call, workspace, terminal=terminal) or None,
        locations=locations_of(call, workspace) or None,
        raw_input=raw_input(call),
        raw_output=_raw_output(call),
    )


def title_of(call: ToolCall) -> str:
    """One line: the command, or the tool and its subject, which names an MCP server's tool."""
    named = call.title and (is_command(call) or call.name.startswith("mcp__"))
    return one_line(call.title if named else f"{call.name} {call.title}")


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
    if hunks := hunks_of(call.diff, workspace):
        firsts = {hunk.path: CallLocation(hunk.path, hunk.line or None) for hunk in reversed(hunks)}
        return tuple(firsts.values())
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
    shown: list[CallContent] = [
        FileDiff(hunk.path, "".join(hunk.after), None if hunk.is_new else "".join(hunk.before))
        for hunk in hunks_of(call.diff, workspace)
    ]
    if call.diff and not shown:  # a part of a cut diff would look like a whole change
        shown.append(Shown(TextBlock(fenced(call.diff))))
    # An edit's output first repeats its diff; after a blank line, it lists problems in the file.
    output = call.output.partition("\n\n")[2] if shown else call.output
    if output.strip():
        shown.append(Shown(TextBlock(fenced(output[-OUTPUT_CHARS_MAX:]))))
    shown += [Shown(picture_block(one)) for one in call.images]
    return tuple(shown)


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


def _absolute(path: str, workspace: str) -> str:
    return str(Path(workspace) / path)
