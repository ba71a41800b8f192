"""`set`: changes one setting of a session, its title or its workspace."""

from argparse import Namespace
from typing import Any, get_args

import msgspec

from tiller_client.command_line import choose
from tiller_client.command_line.choices import read_budget, read_tools
from tiller_client.command_line.prompt import read_workspace
from tiller_client.connecting.connection import connect
from tiller_client.errors import UsageError
from tiller_client.following.snapshots import read_snapshot
from tiller_client.rendering.text import one_line
from tiller_client.verbs.submitting import submit
from tiller_protocol.ops import SessionConfigure
from tiller_protocol.settings import MAX_STEPS_LIMIT, Approve, FollowUps, SandboxMode, Settings

FIELDS = {"budget": "turn_budget"}
"""Settings whose field name differs from the command line's by more than `_` for `-`."""


WANTED = {
    "approve": " or ".join(get_args(Approve)),
    "sandbox": " or ".join(get_args(SandboxMode)),
    "follow-ups": " or ".join(get_args(FollowUps)),
    "max-steps": f"a whole number from 1 to {MAX_STEPS_LIMIT:,}",
}
"""The values that a setting accepts, unless it accepts any text."""


def run(arguments: Namespace) -> int:
    """Change the setting, from the next turn on; an empty value resets it."""
    name, value = arguments.name, arguments.value
    changes = _changes(name, value)
    value = changes.get("workspace", value)
    with connect("tiller set") as connection:
        session_id = choose.session_id(connection, arguments.session, changes=True)
        session = choose.session_name(read_snapshot(connection.ask, session_id))
        result = f"now {one_line(value)}" if value else "back to its default"
        done = f"{name} of {session} is {result}"
        op = SessionConfigure(session_id, **changes)
        submit(connection, op, json=arguments.json, done=done)
    return 0


def _changes(name: str, value: str) -> dict[str, Any]:
    """Return the fields of the op; raises `UsageError` if the value is invalid."""
    if name == "title":
        return {"title": value}
    if name == "workspace":
        if not value:
            raise UsageError("a session needs a workspace; name a directory")
        return {"workspace": read_workspace(value, "name the workspace's new place")}
    field = FIELDS.get(name, name.replace("-", "_"))
    if not value:
        return {"clear": (field,)}
    try:
        return {"settings": msgspec.convert({field: _read(name, value)}, Settings)}
    except msgspec.ValidationError as error:
        wanted = f"; give {WANTED[name]}" if name in WANTED else f": {error}"
        raise UsageError(f"{value!r} is not a valid value for {name}{wanted}") from None


def _read(name: str, value: str) -> object:
    match name:
        case "budget" | "session-budget":
            return msgspec.to_builtins(read_budget(value))
        case "tools":
            return read_tools(value)
        case "max-steps":
            return int(value) if value.isdecimal() else value
        case _:
            return value
