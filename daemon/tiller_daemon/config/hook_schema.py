"""The schema of hooks: commands that run at certain moments of a session."""

from typing import Literal

from msgspec import Struct

from tiller_daemon.config.constraints import FieldError
from tiller_daemon.config.model_schema import Command, Seconds

HookMoment = Literal[
    "session_start",
    "session_end",
    "turn_start",
    "turn_done",
    "turn_end",
    "tool_before",
    "tool_after",
    "request",
    "compaction_before",
    "compaction_after",
    "sub_agent_end",
]


class Hook(Struct, frozen=True, forbid_unknown_fields=True):
    """A command that runs at a certain moment of a session. At some moments a hook may deny."""

    on: HookMoment
    """The moment at which the hook runs."""
    command: str | Command
    """A text for the shell, or a program and its arguments; it runs in the workspace."""
    name: str = ""
    """The name for people; empty means the beginning of the command."""
    tool: str = "*"
    """A pattern for names of tools; only for `tool_before` and `tool_after`."""
    timeout_s: Seconds = 10.0
    """The time limit in seconds; a hook that exceeds it has failed. The default is short because a
    turn waits for most hooks."""
    on_failure: Literal["go_on", "deny"] = "go_on"
    """Whether a failed hook denies; only for `turn_start` and `tool_before`."""

    def __post_init__(self) -> None:
        if self.tool != "*" and self.on not in ("tool_before", "tool_after"):
            problem = "only a hook on `tool_before` or `tool_after` can have this key"
            raise FieldError(problem, "tool")
        if self.on_failure != "go_on" and self.on not in ("turn_start", "tool_before"):
            problem = "only a hook on `turn_start` or `tool_before` can have this key"
            raise FieldError(problem, "on_failure")
        # `join` accepts both forms of a command, a text and a list.
        if not "".join(self.command).strip():
            raise FieldError("expected a command", "command")


class ProjectHook(Hook, frozen=True, forbid_unknown_fields=True):
    """A trusted project's hook, which runs in the sandbox of the model's commands."""
