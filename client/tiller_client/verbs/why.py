"""`show --why`: why a tool call was, or was not, allowed to run."""

from argparse import Namespace
from collections.abc import Sequence

from tiller_client.command_line import choose
from tiller_client.connecting.connection import DaemonConnection
from tiller_client.console import print_json, say, stdout_theme
from tiller_client.errors import UsageError
from tiller_client.following.snapshots import read_events, read_snapshot
from tiller_client.program_name import program
from tiller_client.rendering.calls import call_line
from tiller_client.rendering.facts import Facts
from tiller_client.rendering.labels import call_label
from tiller_client.rendering.style import Theme
from tiller_client.rendering.text import UNCUT, one_line, sanitized
from tiller_protocol.events import RequestOpened, RequestResolved
from tiller_protocol.items import Allowed, ToolCall

BY = {
    "rule": "by a rule",
    "grant": "by a rule of this session",
    "lasting": "by a lasting rule of this directory",
    "reading": "because it only reads",
    "sandbox": "by the sandbox",
    "approve": "by the setting `approve`",
    "user": "by you",
}


def explain(connection: DaemonConnection, session_id: str, arguments: Namespace) -> None:
    """Print why a call was allowed, with the requests about it and their answers."""
    items = read_snapshot(connection.ask, session_id).items
    calls = [item for item in items if isinstance(item, ToolCall)]
    call = find_call(calls, arguments.why)
    asked = _asked(connection, session_id, call.id)
    if arguments.json:
        for one in (call, *(body for pair in asked for body in pair if body)):
            print_json(one)
        return
    for line in explanation(call, asked, stdout_theme()):
        say(line)


def find_call(calls: Sequence[ToolCall], reference: str) -> ToolCall:
    """Return the call with this id or end of an id, else the last whose line contains the text."""
    if not calls:
        raise UsageError("this session has no tool call yet")
    if reference == choose.LAST:
        return calls[-1]
    wanted = reference.upper()
    for call in reversed(calls):
        whole = wanted in (call.id, call.call_id.upper())
        if whole or (len(wanted) >= choose.PIECE_CHARS_MIN and call.id.endswith(wanted)):
            return call
    for call in reversed(calls):
        if reference.strip() and reference in call_label(call):
            return call
    raise UsageError(
        f"no tool call in this session matches {one_line(reference)!r}; "
        f"`{program()} show` lists the calls, and `{program()} log --json` has their ids"
    )


def explanation(
    call: ToolCall,
    asked: Sequence[tuple[RequestOpened, RequestResolved | None]],
    theme: Theme,
) -> list[str]:
    """Return the lines about a call: its label, why it ran, and the requests about it."""
    lines = [call_line(call, Facts(), UNCUT, theme)]
    several = len(call.allowed) > 1
    lines += [f"  {_because(one, named=several)}" for one in call.allowed]
    if call.by_user:
        lines.append("  it is your own command, which needs no permission")
    elif call.error_kind is not None and call.output and call.started_at is None:
        lines.append(theme.bad(f"  it did not run: {one_line(sanitized(call.output))}"))
    elif not call.allowed:
        ran = "it did not run" if call.started_at is None else "it needs no permission"
        lines.append("  it has not begun" if call.state == "pending" else f"  {ran}")
    for opened, resolved in asked:
        question = one_line(opened.request.title or opened.request.permission)
        lines.append(f"  asked: {question} {_answer(resolved)}")
    return lines


def _because(allowed: Allowed, *, named: bool) -> str:
    """Return a reason; `named` adds the permission, as one answer may allow several."""
    name = f"{one_line(allowed.permission)} " if named else ""
    return f"{name}allowed {BY.get(allowed.by, allowed.by)}: {one_line(allowed.reason)}"


def _answer(resolved: RequestResolved | None) -> str:
    if resolved is None:
        return "(open)"
    by = f" by {one_line(resolved.by)}" if resolved.by else ""
    text = f": {one_line(resolved.text)}" if resolved.text else ""
    return f"→ {resolved.resolution}{by}{text}"


def _asked(
    connection: DaemonConnection, session_id: str, item_id: str
) -> list[tuple[RequestOpened, RequestResolved | None]]:
    """Return the requests about a call, each with its resolution."""
    opened: dict[str, RequestOpened] = {}
    resolved: dict[str, RequestResolved] = {}
    for event in read_events(connection.ask, session_id):
        match event.body:
            case RequestOpened() as body if body.request.item_id == item_id:
                opened[body.request.id] = body
            case RequestResolved() as body:
                resolved[body.request_id] = body
            case _:
                pass
    return [(body, resolved.get(request_id)) for request_id, body in opened.items()]
