"""Defines a tool: its name, its struct of arguments, the permissions it needs, and its function.

`session.calls` validates the arguments, judges the permissions and runs the tool. The tool does
only its own work, in the `ToolEnvironment` that it gets.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.tools.editors import Editors
from tiller_daemon.tools.write_scope import WriteScope
from tiller_protocol.items import BackgroundCommand, DetailKind, Effect, Image, PlanEntry, SubAgent

SubjectKind = Literal["path", "command", "network", "plain"]


class Requirement(Struct, frozen=True):
    """A permission that a call needs before it may run."""

    permission: str
    """The kind of action, such as `read` or `bash`."""
    subjects: tuple[str, ...]
    """The objects of the action, as rules name them: paths relative to the workspace (absolute if
    outside), command lines, or addresses."""
    always: tuple[str, ...] = ()
    """Patterns that the answer `always` would allow."""
    kind: SubjectKind = "plain"
    """The kind of the subjects, which decides how they are judged."""
    title: str = ""
    """What the call would do, in one line for the user."""
    warning: str = ""
    """The fixed words about what the permission allows, which come before the title."""
    detail: str = ""
    """A complete description of what the call would do, for the user."""
    loosest_unasked: SandboxLevel | None = None
    """For command lines, the loosest level available for a call that the user was not asked
    about; None if no level is available."""
    problem: str = ""
    """For command lines, why builds in the workspace need approval; empty if they do not."""
    detail_kind: DetailKind = "text"
    """The kind of text in `detail`."""
    scope: WriteScope | None = None
    """For a task, the places that its sub-agent may change; None for its owner's limits."""
    apart: bool = False
    """For a task, whether its sub-agent works in a worktree of its own."""


class ToolPermission(Struct, frozen=True):
    """A permission that every call of a tool needs, whatever its arguments are."""

    name: str
    """The name that rules use, such as `read`."""

    subject: str | None = None
    """The subject of every call; None if the arguments name it."""


class ToolResult(Struct, frozen=True):
    """What a call returns."""

    output: str
    """The text for the model, already truncated."""

    title: str = ""
    """One line for people."""

    failed: bool = False
    """Whether the tool reports an error. The model gets the output all the same."""

    diff: str = ""
    """Changes to files as a unified diff, for people."""

    images: tuple[Image, ...] = ()
    """Images for the model."""

    spill_path: str = ""
    """The file with the complete output; empty if nothing was cut."""

    exit_status: int | None = None
    """The exit status of a command; None for other calls and after a timeout."""

    sub_agent: SubAgent | None = None
    """The sub-agent that did the work."""

    rejected: bool = False
    """Whether the user rejected a request of the running call."""
    stopped_by: str = ""
    """The line of output that shows that the level stopped the command."""
    missed: str = ""
    """An existing path that the output names and that the level hid from the command."""


class UserAnswer(Struct, frozen=True):
    """The user's answer to a question; `text` is None without one, perhaps for a `reason`."""

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
    """The working directory."""

    variables: Mapping[str, str]
    """The whole environment of the command."""

    spill_path: Path
    """The file for its complete output."""

    terminal: bool
    """Whether the command gets a pseudo-terminal."""

    secrets: tuple[str, ...] = ()
    """Secrets that are removed from the output."""

    sandbox: CommandSandbox | None = None
    """The sandbox of the command; None for no sandbox."""


class BackgroundReport(Struct, frozen=True):
    """The state of a background command, and its output since the last report."""

    command: BackgroundCommand
    """The command in its current state."""

    output: str
    """The new output; only its end if there was too much."""

    dropped_bytes: int = 0
    """Size of the new output before `output`, which is only in the spill file."""

    notes: tuple[str, ...] = ()
    """Notes on what the sandbox did, once the command has ended."""

    stopped_by: str = ""
    """The line of output that shows that the level stopped the command."""


class Assignment(Struct, frozen=True):
    """Work for a sub-agent."""

    prompt: str
    """The task; the sub-agent sees nothing else."""
    agent: str
    """The name of the agent; empty to keep the agent of a resumed session."""
    resume: str = ""
    """The session of an earlier sub-agent that should continue; empty for a new sub-agent."""
    background: bool = False
    """Whether the call only starts the sub-agent, whose report comes later."""
    scope: WriteScope | None = None
    """The places that the sub-agent may change; None for all that its owner may change."""
    apart: bool = False
    """Whether the sub-agent works in a worktree of its own."""


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
    """The files that the turn's rules allow to be read without asking the user."""

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
    """The versions of a workspace's files that the model has seen."""

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
    """The version of each file that the model saw last."""
    readable: Readable
    """Files that may be shown besides those that the call was permitted to read."""
    diagnostics: Diagnostics
    """The language servers, which find errors in files."""
    spill_directory: Path
    """The directory for output that is too long for the model."""
    journals: Path
    """The directory for journals of changes in progress."""
    editors: Editors
    """The editors, which may have files open with unsaved changes."""


class CommandAccess(Struct, frozen=True):
    """What a running call needs to start processes."""

    variables: Callable[[], Mapping[str, str]]
    """Returns the whole environment of a child process, without secrets, but with the marks by
    which the daemon finds processes that a call left behind. A call that starts no process need
    not wait for the environment."""
    background: BackgroundCommands
    sandbox: CommandSandbox | None = None
    """The sandbox of the command; None for no sandbox."""


class UserAccess(Struct, frozen=True):
    """How a running call reaches the user."""

    output: Callable[[str], Awaitable[None]]
    """Sends a piece of live output to the frontends."""
    show_plan: Callable[[tuple[PlanEntry, ...]], Awaitable[None]]
    """Replaces the plan of the session."""
    ask: Callable[[str, tuple[str, ...]], Awaitable[UserAnswer]]
    """Asks a question with choices and waits for the answer; raises `ToolFailure` if the user can't
    be asked."""
    withdraw: Callable[[], None]
    """Withdraws the questions of this call that are still open."""


class WebAccess(Struct, frozen=True):
    """How a running call reaches the web."""

    private_addresses: bool = False
    """Whether the call may reach machines that are not on the public internet."""
    proxies: Mapping[str, str] = field(default_factory=dict[str, str])
    """Proxy variables with their passwords; no child process gets them."""


class ToolEnvironment(Struct, frozen=True):
    """What a running call may use."""

    workspace: Path
    """The absolute path of the workspace."""
    session_id: str
    """The session whose turn makes the call."""
    call_id: str
    """The id of the call's item."""
    files: FileAccess
    """Access to files."""
    commands: CommandAccess
    """Access to processes."""
    user: UserAccess
    """Access to the user: live output, plans and questions."""
    delegate: Callable[[Assignment], Awaitable[ToolResult]]
    """Gives an assignment to a sub-agent; returns its report."""
    web: WebAccess = WebAccess()
    """Access to the web."""
    requirements: tuple[Requirement, ...] = ()
    """The permissions that were granted to this call."""
    secrets: tuple[str, ...] = ()
    """The keys in use, which the call removes from its output."""


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
    """One entry of the tool table. `requirements`, `check` and `run` raise `ToolFailure`.

    `check` and `run` may also raise `PathProblem` and `CommandProblem`.
    """

    name: str
    """The name by which the model calls the tool."""

    description: str
    """A description of the tool for the model."""

    arguments: type[Struct] | dict[str, Any]
    """The struct that arguments are decoded to; for an MCP server's tool, the JSON Schema of its
    arguments."""

    effect: Effect | Literal["command", "agent"]
    """A `read` call may run beside other calls; a `write` call runs alone. For `command`, the
    effect depends on the judgement of the command line; for `agent`, it depends on the agent."""

    timeout_s: float
    """Seconds after which a call is cancelled; infinite for a tool that waits for a person."""

    requirements: Callable[[Any, Path], tuple[Requirement, ...]]
    """Returns the permissions that a call in a workspace needs. It follows links, and reads files
    for a preview, but changes nothing."""

    run: Callable[[Any, ToolEnvironment], Awaitable[ToolResult]]
    """Does the work. On cancellation it leaves no process behind."""

    repeatable: Callable[[Any], bool] = never
    """Whether a call with these arguments has no effect besides its result. Such a call may begin
    before the response has ended, be dropped if the response fails, and be made again."""

    permission: ToolPermission | None = None
    """The permission that every call needs; None if that depends on the arguments, or no call
    needs one."""

    polls: bool = False
    """Whether repeating the same call is normal, rather than a sign of a loop."""

    server: str = ""
    """The MCP server that offers the tool; empty for tiller's own tools."""

    check: Callable[[Any, Path, FileVersions], None] | None = None
    """Raises `ToolFailure` if the call would fail on the files as they are, so that the user is not
    asked in vain. It may block on the disk."""
