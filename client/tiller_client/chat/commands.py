"""The commands that a line may begin with, and the keys, with their texts in the help."""

from typing import NamedTuple


class Command(NamedTuple):
    """One command."""

    name: str
    help: str
    argument: str = ""
    """The argument after the name, for the help; empty if the command takes none."""
    yields: bool = False
    """Whether a custom command of the same name takes its place, as the user may have one."""


COMMANDS = (
    Command("help", "the keys and commands"),
    Command("new", "start a new session here, perhaps with a first message", "[TEXT]"),
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
    Command("queue", "queue TEXT, or change what is queued", "[TEXT]"),
    Command("ps", "list or end what runs in the background", yields=True),
    Command("land", "bring the worktree's commits onto the branch that it came from", yields=True),
    Command("go", "let the agent that builds carry out the plan (Alt-G)", yields=True),
    Command("back", "revert to an earlier point, or fork from it"),
    Command("unrevert", "undo the last revert"),
    Command("diff", "the session's changes to files, or to PATH", "[PATH]"),
    Command("compact", "summarise the history now; TEXT says what to keep", "[TEXT]"),
    Command("transcript", "the whole session in a pager"),
    Command("editor", "write in $EDITOR"),
    Command("quit", "leave; a running turn goes on"),
    Command("status", "the session's settings, context and cost", yields=True),
    Command("copy", "copy the last answer to the clipboard", yields=True),
    Command("permissions", "the permission rules that apply here", yields=True),
    Command("mcp", "the MCP servers", yields=True),
    Command("init", "let the model write an AGENTS.md for this project", yields=True),
    Command("review", "let the model review what is not committed, or WHAT", "[WHAT]", yields=True),
    Command(
        "theme",
        "the colours: for the terminal's background, or always these",
        "[auto|dark|light]",
        yields=True,
    ),
)

KEYS_SHOWN = (
    ("Enter", "send, or steer the running turn"),
    ("Tab", "complete a /command or an @file; else queue: the turn takes the text at its end"),
    ("Alt-Enter, Ctrl-J", "a new line; also Shift-Enter, or \\ and Enter"),
    ("Esc", "close what is open; if nothing is open, interrupt the turn"),
    ("Esc Esc", "revert to an earlier point, or fork from it"),
    ("Ctrl-C", "interrupt the turn, or clear the text; press again to leave"),
    ("Ctrl-D", "leave"),
    ("Up, Down", "the row above or below, and what you wrote before"),
    ("Ctrl-V", "attach the image in the clipboard"),
    ("Shift-Tab", "the agent that plans, or back to the agent before it"),
    ("Alt-G", "after a plan: let the agent before it carry out the plan"),
    ("Alt-M, Alt-V", "choose the model, or its variant"),
    ("Alt-Q", "change what is queued"),
    ("Ctrl-O", "show thoughts and outputs whole, those on the screen once more; or fold them"),
    ("Ctrl-T", "the whole transcript, in a pager"),
    ("Ctrl-G", "write in $EDITOR"),
    ("Ctrl-R", "search what you wrote before"),
    ("!COMMAND", "run your own shell command"),
)

ALIASES = {
    "clear": "new",
    "context": "status",
    "cost": "status",
    "exit": "quit",
    "resume": "sessions",
    "revert": "back",
    "rewind": "back",
    "tasks": "ps",
    "undo": "back",
    "usage": "status",
}
"""Names that other programs have for a command; a custom command takes its place, too."""

INIT = (
    "Write an AGENTS.md at the top of this project, or improve the present one: what the project "
    "is, how to build, test and check it, how it is laid out, and its conventions. Look at the "
    "code, and try the commands before you name them. Be short: leave out what is plain to see."
)
CARRY_OUT = "Carry out the plan."
REVIEW = (
    "Review {what}. Report only problems, the most serious first, each with its place and the "
    "reason: faults, missing tests, unclear code. Change nothing."
)
UNCOMMITTED = "the changes in this repository that are not committed"

NAMES = frozenset(command.name for command in COMMANDS if not command.yields) | {"exit"}
"""Commands that no custom command replaces, so that they work without the daemon."""


def named(name: str) -> Command | None:
    """The command that has this name, or that another program calls so."""
    name = ALIASES.get(name, name)
    return next((one for one in COMMANDS if one.name == name), None)


def runs_at_once(completed: str) -> bool:
    """Whether a completed text is a command that needs no argument."""
    command = named(completed.strip().removeprefix("/"))
    return command is not None and command.argument[:1] in ("", "[")
