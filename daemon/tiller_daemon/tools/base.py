"""What a tool is: a name, a struct of arguments, the permissions that it needs, and a function.

`session.calls` validates the arguments, judges the permissions and runs the tool, which does only
its own work in the `ToolEnvironment` that it gets.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from tiller_daemon.sandbox.confinement import CommandSandbox
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.tools.editors import Editors
from tiller_daemon.tools.write_scope import WriteScope
from tiller_protocol.items import BackgroundCommand, DetailKind, Effect, Image, PlanEntry, SubAgent

SubjectKind = Literal["path", "command", "network", "plain"]


class Requirement(Struct, frozen=True):
    """A permission that a call needs before it may run."""

    permission: str
    """What kind of thing the call would do, such as `read` or `bash`."""

    subjects: tuple[str, ...]
    """To what, as rules name it: a path relative to the workspace (absolute if outside), a command
    line, an address."""

    always: tuple[str, ...] = ()
    """Patterns that the answer `always` would allow."""

    kind: SubjectKind = "plain"
    """How the subjects are judged."""

    title: str = ""
    """What the call would do, in one line for the user."""

    detail: str = ""
    """All of what the call would do, for the user."""

    loosest_unasked: Enclosure | None = None
    """For command lines, the loosest enclosure available for a call that the user was not asked
    about; None if there is none."""

    detail_kind: DetailKind = "text"
    """What kind of text `detail` is."""

    scope: WriteScope | None = None
    """For a task, what its sub-agent may change; None if its owner's limits are the only ones."""


class ToolPermission(Struct, frozen=True):
    """A permission that every call of a tool needs, whatever its arguments are."""

    name: str
    """As rules name it, such as `read`."""

    subject: str | None = None
    """To what; None if the arguments say it."""


class ToolResult(Struct, frozen=True):
    """What a call returns."""

    output: str
    """For the model, already truncated."""

    title: str = ""
    """For people, in one line."""

    failed: bool = False
    """Whether the tool itself calls this an error, such as a non-zero exit status. The model sees
    the output like any other."""

    diff: str = ""
    """Changes of files as a unified diff, for people."""

    images: tuple[Image, ...] = ()
    """Images for the model."""

    spill_path: str = ""
    """The file with the complete output; empty if nothing was cut."""

    exit_status: int | None = None
    """The exit status of a command; None for other calls and after a timeout."""

    sub_agent: SubAgent | None = None
    """The sub-agent that did the work."""

    rejected: bool = False
    """Whether the user said no while the call ran."""

    stopped_by: str = ""
    """The line of output that shows that the enclosure stopped the command."""


class UserAnswer(Struct, frozen=True):
    """The user's answer to a question; `text` is None if they gave none, perhaps for a `reason`."""

    text: str | None
    reason: str = ""


class BackgroundStart(Struct, frozen=True):
    """A background command that is to be started."""

    command: str
    """The command line, for people."""

    call_id: str
    """The call that starts it."""

    arguments: tuple[str, ...]
    """The program and its arguments."""

    directory: Path
    """Where it starts."""

    variables: Mapping[str, str]
    """Its whole environment."""

    spill_path: Path
    """The file for its complete output."""

    terminal: bool
    """Whether it gets a pseudo-terminal."""

    secrets: tuple[str, ...] = ()
    """Removed from its output."""

    confined: CommandSandbox | None = None
    """Its sandbox; None runs it without one."""


class BackgroundReport(Struct, frozen=True):
    """The state of a background command, and its output since the last report."""

    command: BackgroundCommand
    """The command as of now."""

    output: str
    """If there was too much, only the end."""

    dropped_bytes: int = 0
    """How much of the output came before `output` and is only in the spill file."""

    notes: tuple[str, ...] = ()
    """What its sandbox did, once it has ended."""

    stopped_by: str = ""
    """The line of output that shows that the enclosure stopped it."""


class Assignment(Struct, frozen=True):
    """What a sub-agent is to do."""

    prompt: str
    """All that it sees."""
    agent: str
    """Its name; empty to keep that of a resumed sub-agent."""
    resume: str = ""
    """The session of an earlier sub-agent that should continue; empty for a new one."""
    background: bool = False
    """Whether the call only starts it, and its report comes later."""
    scope: WriteScope | None = None
    """What it may change; None if that is what its owner may change."""


class BackgroundCommands(Protocol):
    """The background commands of a session; every method raises `ToolFailure`.

    `poll` and `kill` take the ids of background sub-agents as well.
    """

    async def start(self, start: BackgroundStart) -> BackgroundReport:
        """Start a command and watch it for a moment."""
        ...

    async def poll(self, command_id: str, wait_s: float) -> BackgroundReport:
        """Return new output; waits up to `wait_s` seconds if there is none yet."""
        ...

    async def kill(self, command_id: str) -> BackgroundReport:
        """Kill a command and all its processes."""
        ...

    async def send(self, command_id: str, text: str, wait_s: float) -> BackgroundReport:
        """Type text to a command, then return new output like `poll`."""
        ...


class FileCheck(Protocol):
    """A check of files that a call is about to change."""

    async def new_errors(self) -> str:
        """Return the errors that the change caused, as text to append to the result.

        Empty if there are none, or if no server can tell. Waits a few seconds at most.
        """
        ...


class Diagnostics(Protocol):
    """Language servers, which find errors in files. No method raises when a server is missing."""

    async def before_change(self, workspace: Path, files: Sequence[Path]) -> FileCheck | None:
        """Record the state of files that a call will change; None if no server handles them."""
        ...

    async def report(self, workspace: Path, path: Path | None) -> str:
        """Return the errors in a file, or in all files opened so far if `path` is None."""
        ...


class Readable(Protocol):
    """Which files may be read without a question, by the rules of the turn."""

    @property
    def path_fragments(self) -> tuple[str, ...]:
        """Texts without a slash; the path of every protected file contains one of them."""
        ...

    def __call__(self, subject: str) -> bool:
        """Whether this file may be read; `subject` is its path as a `Requirement` names it."""
        ...


class ToolFailure(Exception):
    """A call that could not do its work; the message tells the model what to do."""


class FileVersions(Struct, frozen=True):
    """What the model knows of the files of a workspace."""

    fingerprints: dict[Path, str] = field(default_factory=dict[Path, str])
    """The SHA-256 of the bytes that the model saw last, by absolute resolved path."""

    instructions_sent: dict[str, str] = field(default_factory=dict[str, str])
    """The SHA-256 of instruction files that are in the history, by path; cleared when the history
    gets shorter, so that they are sent again."""

    def remember(self) -> Callable[[], None]:
        """Return a function that restores the current state, for calls that are dropped."""
        fingerprints, instructions_sent = dict(self.fingerprints), dict(self.instructions_sent)

        def restore() -> None:
            self.fingerprints.clear()
            self.fingerprints.update(fingerprints)
            self.instructions_sent.clear()
            self.instructions_sent.update(instructions_sent)

        return restore


class FileAccess(Struct, frozen=True):
    """What a running call needs to work with files."""

    versions: FileVersions
    """What the model last saw of each file."""
    readable: Readable
    """Which files may be shown beyond those that the call was permitted to read."""
    diagnostics: Diagnostics
    """What language servers say about a file."""
    spill_directory: Path
    """For output that is too long for the model."""
    journals: Path
    """Journals of changes in progress."""
    editors: Editors
    """Where files may be open with changes that are not saved."""


class CommandAccess(Struct, frozen=True):
    """What a running call needs to start processes."""

    variables: Callable[[], Mapping[str, str]]
    """Returns the whole environment of a child process: no secrets, and the marks by which the
    daemon finds what a call left behind. A call that starts none need not wait for it."""
    background: BackgroundCommands
    confined: CommandSandbox | None = None
    """The sandbox of the command; None runs it without one."""


class UserAccess(Struct, frozen=True):
    """How a running call reaches the user."""

    output: Callable[[str], Awaitable[None]]
    """Sends a piece of live output to the frontends."""
    show_plan: Callable[[tuple[PlanEntry, ...]], Awaitable[None]]
    """Replaces the plan of the session."""
    ask: Callable[[str, tuple[str, ...]], Awaitable[UserAnswer]]
    """Asks a question with choices and waits for the answer; `ToolFailure` if nobody is asked."""
    withdraw: Callable[[], None]
    """Withdraws the questions of this call that are still open."""


class WebAccess(Struct, frozen=True):
    """How a running call reaches the web."""

    private_addresses: bool = False
    """Whether it may reach machines that are not on the public internet."""
    proxies: Mapping[str, str] = field(default_factory=dict[str, str])
    """Proxy variables with their passwords; no child process gets them."""


class ToolEnvironment(Struct, frozen=True):
    """What a running call may use."""

    workspace: Path
    """Absolute."""
    session_id: str
    """The session whose turn makes the call."""
    call_id: str
    """The item of the call."""
    files: FileAccess
    """For work with files."""
    commands: CommandAccess
    """For starting processes."""
    user: UserAccess
    """For live output, plans and questions."""
    delegate: Callable[[Assignment], Awaitable[ToolResult]]
    """Gives an assignment to a sub-agent; returns its report."""
    web: WebAccess = WebAccess()
    """For requests to the web."""
    requirements: tuple[Requirement, ...] = ()
    """The permissions that were granted to this call."""
    secrets: tuple[str, ...] = ()
    """The keys in use: the call removes them from what it outputs."""


def always(arguments: Struct) -> bool:  # noqa: ARG001
    """Return True for all arguments."""
    return True


def never(arguments: Struct) -> bool:  # noqa: ARG001
    """Return False for all arguments."""
    return False


def nothing_required(arguments: Struct, workspace: Path) -> tuple[Requirement, ...]:  # noqa: ARG001
    """Return no requirement: every call may run."""
    return ()


class Tool(Struct, frozen=True, eq=False):
    """One entry of the tool table. `requirements`, `check` and `run` raise `ToolFailure`."""

    name: str
    """What the model calls it."""

    description: str
    """What it does, for the model."""

    arguments: type[Struct] | dict[str, Any]
    """The struct that arguments are decoded to; for a tool of a server, the JSON schema of the
    object that it takes."""

    effect: Effect | Literal["command", "agent"]
    """`read` may run beside other calls, and `write` runs alone. The effect of `command` depends on
    the judgement of its command line, and that of `agent` on the agent."""

    timeout_s: float
    """Seconds after which a call is cancelled; infinite for a tool that waits for a person."""

    requirements: Callable[[Any, Path], tuple[Requirement, ...]]
    """Returns the permissions that a call in a workspace needs. It follows links and reads what a
    preview shows, but changes nothing."""

    run: Callable[[Any, ToolEnvironment], Awaitable[ToolResult]]
    """Does the work. On cancellation it leaves no process behind."""

    repeatable: Callable[[Any], bool] = never
    """Whether only the model notices a call with these arguments. Such a call may begin before the
    response has ended, be dropped if the response fails, and be made again."""

    permission: ToolPermission | None = None
    """What every call needs; None if that depends on the arguments, or nothing is needed."""

    polls: bool = False
    """Whether the same call again and again is normal, and no sign of a loop."""

    server: str = ""
    """The MCP server that offers it; empty for a tool of tiller."""

    check: Callable[[Any, Path, FileVersions], None] | None = None
    """Raises if the call would fail on the files as they are, so that the user is not asked in
    vain. It may block on the disk."""
