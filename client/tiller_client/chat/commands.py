"""The commands that a line may begin with: their names, and their texts in the help."""

from typing import NamedTuple


class Command(NamedTuple):
    """One command."""

    name: str
    help: str
    argument: str = ""
    """The argument after the name, for the help; empty if there is none."""


COMMANDS = (
    Command("help", "the keys and commands"),
    Command("new", "start a new session here"),
    Command("sessions", "open a recent session, or one that contains WORDS", "[WORDS]"),
    Command("rename", "give the session a title", "TITLE"),
    Command("fork", "continue in a new session that shares this history"),
    Command("archive", "archive the session and leave"),
    Command("model", "choose the model", "[NAME]"),
    Command("variant", "choose the model's variant, such as high", "[NAME]"),
    Command("agent", "choose the agent", "[NAME]"),
    Command("approve", "what to do with calls that need your approval", "[ask|always|never]"),
    Command(
        "sandbox", "what the model's commands may do", "[read_only|workspace_write|full_access]"
    ),
    Command("continue", "continue without a new message"),
    Command("queue", "change what is queued"),
    Command("back", "revert to an earlier point, or fork from it"),
    Command("unrevert", "undo the last revert"),
    Command("diff", "the session's changes to files"),
    Command("compact", "summarise the history now"),
    Command("transcript", "the whole session in a pager"),
    Command("editor", "write in $EDITOR"),
    Command("quit", "leave; a running turn goes on"),
)

NAMES = frozenset(command.name for command in COMMANDS)


def runs_at_once(completed: str) -> bool:
    """Whether a completed text is a command that needs no argument."""
    name = completed.strip().removeprefix("/")
    return any(one.name == name and one.argument[:1] in ("", "[") for one in COMMANDS)
