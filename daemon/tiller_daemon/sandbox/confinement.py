"""The enclosures of commands: what each one allows, and who enforces it.

A `Confinement` says what one command may do, a `Sandbox` is a mechanism that enforces it; which
mechanism works here is found out in `detect`. An enclosure keeps its promise whatever the
command turns out to do, so nothing here looks at what the command says.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_protocol.settings import SandboxMode

TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108
"""Where every program expects to be able to write: a directory of the session's own."""

ORDER: Final[Sequence[SandboxMode]] = ("read_only", "workspace_write", "full_access")
"""From the strictest to the loosest."""

ROOT_CAPABILITIES: Final[Mapping[str, int]] = {
    "CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_SETGID": 6,
    "CAP_SETUID": 7,
}  # fmt: skip
"""What root needs to work with the files of others and to install packages, with its numbers. Root
loses what would undo the sandbox: mounting, tracing, devices, file handles."""

DENIALS: Final = re.compile(
    r"Read-only file system|Network is unreachable|Could not resolve host|Operation not permitted"
    r"|Temporary failure in name resolution|Name or service not known|getaddrinfo|EROFS|EAI_AGAIN"
    r"|ENETUNREACH|Errno 30\b|Errno 101\b|Value too large for defined data type",
    re.IGNORECASE,
)
"""What programs print when namespaces stop them; some print it for reasons of their own."""

DENIED_WRITE: Final = re.compile(r"Read-only file system|EROFS|Errno 30\b", re.IGNORECASE)
"""What they print when they can't write; some of them go on, and succeed."""


class NotConfined(Exception):
    """A command that the sandbox can't enforce its confinement on, and that is not run."""


class Confinement(Struct, frozen=True):
    """What one command may do. Every path is absolute."""

    workspace: Path
    visible: tuple[Path, ...] | None = None
    """All that can be seen, beside the workspace; None for the whole file system."""
    writable: tuple[Path, ...] = ()
    """Directories that can be written to."""
    read_only: tuple[Path, ...] = ()
    """What can't be written, moved or removed although it lies in a writable directory."""
    absent: tuple[Path, ...] = ()
    """Directories that can't be made in a writable one."""
    absent_files: tuple[Path, ...] = ()
    """Files that can't be made in a writable directory."""
    git: tuple[Path, ...] = ()
    """Git directories to which writes go by way of a private copy, and only data is taken over."""
    git_own: str = ""
    """Where in them the state of this work tree is, if it is not the first one: ends in a slash."""
    hidden: tuple[Path, ...] = ()
    """What can't be read although it lies in what is visible."""
    shown: tuple[Path, ...] = ()
    """What can be read although it lies in what is hidden."""
    temporary: Path | None = None
    """The directory that is `/tmp` for the command; None for a new and empty one."""
    network: bool = False

    @property
    def writes(self) -> bool:
        """Whether anything but `/tmp` can be written."""
        return bool(self.writable)


def _began() -> bool:
    return True


class WrappedCommand(NamedTuple):
    """What to run instead of a command, and the descriptors that it has to inherit."""

    arguments: Sequence[str]
    descriptors: tuple[int, ...] = ()
    has_started: Callable[[], bool] = _began
    """When it has failed: whether the command itself was started at all."""
    merges_back: bool = False
    """Whether it takes time to leave, as something is taken over."""


class Sandbox(Protocol):
    """A mechanism that enforces confinements."""

    @property
    def name(self) -> str:
        """What people know it as."""
        ...

    @property
    def helpers(self) -> int:
        """How many processes of its own it has beside a command's."""
        ...

    @property
    def denials(self) -> re.Pattern[str]:
        """What programs print when it stops them."""
        ...

    @property
    def limits(self) -> str:
        """What it does not enforce, or breaks; empty when it enforces all of a confinement."""
        ...

    @property
    def most_unasked(self) -> Enclosure:
        """The loosest enclosure that it keeps the promise of when nobody was asked."""
        ...

    def wrap(
        self, arguments: Sequence[str], confinement: Confinement, report: Callable[[str], None]
    ) -> AbstractContextManager[WrappedCommand]:
        """What to run instead of `arguments`; to be left when the command has ended.

        `notices` hears what was not taken over. Raises `NotConfined`.
        """
        ...


class SandboxSearchResult(NamedTuple):
    """The sandbox that works here, or why there is none; `instead` says why it is no better one."""

    sandbox: Sandbox | None
    problem: str = ""
    instead: str = ""


class CommandSandbox(NamedTuple):
    """The enclosure of one command: what a tool is handed."""

    sandbox: Sandbox
    confinement: Confinement
    enclosure: Enclosure
    notices: list[str]

    def wrap(self, arguments: Sequence[str]) -> AbstractContextManager[WrappedCommand]:
        """What to run instead of `arguments`; to be left when the command has ended.

        What was not taken over then is in `notices`. Raises `NotConfined`.
        """
        return self.sandbox.wrap(arguments, self.confinement, self.notices.append)

    def was_denied(self, status: int, output: str) -> str:
        """The line of `output` that says that the enclosure stopped the command; empty if none."""
        pattern = self.sandbox.denials if status else DENIED_WRITE
        if not status and self.enclosure is not Enclosure.READ_ONLY:
            return ""
        found = pattern.search(output)
        if found is None:
            return ""
        start = output.rfind("\n", 0, found.start()) + 1
        return output[start:].partition("\n")[0].strip()

    def explain(self) -> str:
        """What the enclosure allows, for a model whose command it may have stopped."""
        network = "" if self.confinement.network else " and has no network"
        if not self.confinement.writes:
            may = "sees the workspace and the system, writes nothing but /tmp"
        else:
            git = "the data of `.git`" if self.confinement.git else "not to `.git`"
            may = f"writes to the workspace ({git}) and /tmp only"
        return (
            f"It ran in a sandbox, where a command {may}{network}. That may be why it failed. Find "
            "a way that needs neither, or tell the user what has to be run outside."
        )


def strictest(*modes: SandboxMode) -> SandboxMode:
    """The one that allows least."""
    return min(modes, key=ORDER.index)
