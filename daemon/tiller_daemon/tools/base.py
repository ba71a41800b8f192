"""What a tool is: a struct with a name, an argument struct, what it needs, and one function.

The runtime (in `session`) validates arguments, asks the policy, holds the lock and cuts output;
a tool only does its work in the `ToolEnvironment` that it is handed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from tiller_daemon.sandbox.confinement import Confined
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_protocol.items import BackgroundCommand, DetailKind, Effect, Image, PlanEntry, SubAgent

SubjectKind = Literal["path", "command", "plain"]


class Requirement(Struct, frozen=True):
    """A permission that a call needs before it may run.

    `subjects` are matched against the rules: a path relative to the workspace (or absolute, when
    outside), or a command line. `always` are the patterns to allow when the user answers `always`.
    For command lines `most_unasked` is the loosest enclosure to be had here for what nobody was
    asked about; None if there is none.
    `detail` shows the user all of what the call would do, and `detail_kind` says what kind of text
    that is.
    """

    permission: str
    subjects: tuple[str, ...]
    always: tuple[str, ...] = ()
    kind: SubjectKind = "plain"
    title: str = ""
    detail: str = ""
    most_unasked: Enclosure | None = None
    detail_kind: DetailKind = "text"


class ToolResult(Struct, frozen=True):
    """What a call gives back. `output` is for the model, already cut; `title` for people.

    `failed` marks a result that the tool itself calls an error, such as a non-zero exit; the model
    sees it like any other; with `rejected` the user said no while it ran. `spill_path` is the file
    with the whole of a cut output. `stopped_by` is the line of the
    output that says that its enclosure stopped it.
    """

    output: str
    title: str = ""
    failed: bool = False
    diff: str = ""
    images: tuple[Image, ...] = ()
    spill_path: str = ""
    exit_status: int | None = None
    sub_agent: SubAgent | None = None
    rejected: bool = False
    stopped_by: str = ""


class UserAnswer(Struct, frozen=True):
    """What the user said to a question: `text`, or `None` and perhaps the `reason` why not."""

    text: str | None
    reason: str = ""


class BackgroundStart(Struct, frozen=True):
    """A command for the background, as it is to be started."""

    command: str
    call_id: str
    arguments: tuple[str, ...]
    directory: Path
    variables: Mapping[str, str]
    spill_path: Path
    terminal: bool
    secrets: tuple[str, ...] = ()
    confined: Confined | None = None


class BackgroundReport(Struct, frozen=True):
    """What a background command has said since the last look.

    Of too much only the end is there: `dropped_bytes` were before it. `notes` say what its sandbox
    did, once it has ended; `stopped_by` is the line that says that it was stopped by it.
    """

    command: BackgroundCommand
    output: str
    dropped_bytes: int = 0
    notes: tuple[str, ...] = ()
    stopped_by: str = ""


class BackgroundCommands(Protocol):
    """The background commands of a session; every method raises `ToolFailure`."""

    async def start(self, start: BackgroundStart) -> BackgroundReport:
        """Start a command and watch it for a moment."""
        ...

    async def look(self, command_id: str, wait_s: float) -> BackgroundReport:
        """What it has said since the last look; waits so long for something."""
        ...

    async def kill(self, command_id: str) -> BackgroundReport:
        """End it and all its processes."""
        ...

    async def send(self, command_id: str, text: str, wait_s: float) -> BackgroundReport:
        """Type text to it, and look."""
        ...


class FileCheck(Protocol):
    """Files that are about to change."""

    async def new_errors(self) -> str:
        """What is wrong in them now and was not before, as text that goes behind a result.

        Empty when that is nothing, or nobody can say. Waits for seconds at the most.
        """
        ...


class Diagnostics(Protocol):
    """Language servers, which find what is wrong in files. No method raises for want of one."""

    async def before_change(self, workspace: Path, files: Sequence[Path]) -> FileCheck | None:
        """Note how files are that a call will change; `None` when no server is for them."""
        ...

    async def all_of(self, workspace: Path, path: Path | None) -> str:
        """What is wrong in a file, or in all that were looked at, as text."""
        ...


class Readable(Protocol):
    """Which files may be read without a question, by the rules of the turn."""

    @property
    def path_fragments(self) -> tuple[str, ...]:
        """Texts without a slash, one of which is in the path of every file that may not."""
        ...

    def __call__(self, subject: str) -> bool:
        """Whether this one may; `subject` is its path as needs name it."""
        ...


class ToolFailure(Exception):
    """A call that could not do its work; the message goes to the model and says what to do."""


@dataclass(frozen=True)
class FileVersions:
    """What the model last saw of each file: absolute resolved path to SHA-256 of its bytes.

    `instructions_sent` is what it was told by instruction files below the workspace, by path: once,
    until history gets shorter.
    """

    fingerprints: dict[Path, str] = field(default_factory=dict[Path, str])
    instructions_sent: dict[str, str] = field(default_factory=dict[str, str])

    def remember(self) -> Callable[[], None]:
        """Return what forgets all that is noted from now on: for calls that are dropped."""
        fingerprints, instructions_sent = dict(self.fingerprints), dict(self.instructions_sent)

        def forget() -> None:
            self.fingerprints.clear()
            self.fingerprints.update(fingerprints)
            self.instructions_sent.clear()
            self.instructions_sent.update(instructions_sent)

        return forget


def _nothing() -> None:
    """Take back nothing: nothing was asked."""


@dataclass(frozen=True)
class ToolEnvironment:
    """What a running call may use. `output` sends a piece of live output to the frontends.

    `variables` is the whole environment for child processes: clean of secrets, with the marker
    variables by which the daemon finds what a call left behind. `show_plan` replaces the plan of
    the session. `ask` puts a question with choices to the user and waits as long as it takes; it
    raises `ToolFailure` when nobody is there. `delegate` gives a prompt to a sub-agent, by the name
    of an agent or by the id of an earlier sub-agent, and returns what came of it. `secrets` are
    taken out of what a child process prints. `requirements` is what was judged before the call ran,
    `journals` the directory of what is being changed. With `private_addresses` machines that
    are not on the public internet may be asked for pages, by what `proxies` name, passwords and
    all: no child process gets them. `withdraw` takes back what is still asked of the user.
    `confined` is the sandbox for commands, if they run in one. `readable` says whose content may be
    shown beyond what was judged.
    """

    workspace: Path
    spill_directory: Path
    session_id: str
    call_id: str
    files: FileVersions
    variables: Mapping[str, str]
    output: Callable[[str], Awaitable[None]]
    show_plan: Callable[[tuple[PlanEntry, ...]], Awaitable[None]]
    ask: Callable[[str, tuple[str, ...]], Awaitable[UserAnswer]]
    delegate: Callable[[str, str, str], Awaitable[ToolResult]]
    background: BackgroundCommands
    diagnostics: Diagnostics
    readable: Readable
    requirements: tuple[Requirement, ...] = ()
    journals: Path = Path("/nonexistent")
    private_addresses: bool = False
    secrets: tuple[str, ...] = ()
    withdraw: Callable[[], None] = _nothing
    confined: Confined | None = None
    proxies: Mapping[str, str] = field(default_factory=dict[str, str])


def always(arguments: Struct) -> bool:  # noqa: ARG001
    """Say yes to all arguments."""
    return True


def never(arguments: Struct) -> bool:  # noqa: ARG001
    """Say no to all arguments."""
    return False


@dataclass(frozen=True, eq=False)
class Tool:
    """One entry of the tool table.

    `effect` is `read` for what may run beside other calls, `write` for what must run alone,
    `command` when the policy judges the command line, and `agent` when it is that of an agent.
    `timeout_s` may be infinite for a tool that waits for a person. `requirements` changes nothing:
    it follows links, and reads what a preview shows. `check` says what keeps the call from doing
    its work as files are, before a user is asked, and may block for as long as the disk takes.
    These and `run` raise `ToolFailure`. On cancellation `run` leaves no process behind.
    `repeatable` says of arguments that nobody but the model notices such a call: it may begin
    before the response has ended, be dropped when that fails, and be made again. Calls of a tool
    that `polls` may well be the same again and again. With a `schema` the arguments are a JSON
    object that it describes, and `arguments` is `dict`; `server` names the MCP server that the tool
    is of.
    """

    name: str
    description: str
    arguments: type[Struct] | type[dict[str, Any]]
    effect: Effect | Literal["command", "agent"]
    timeout_s: float
    requirements: Callable[[Any, Path], tuple[Requirement, ...]]
    run: Callable[[Any, ToolEnvironment], Awaitable[ToolResult]]
    repeatable: Callable[[Any], bool] = never
    polls: bool = False
    schema: dict[str, Any] | None = None
    server: str = ""
    check: Callable[[Any, Path, FileVersions], None] | None = None
