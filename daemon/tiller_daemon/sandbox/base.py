"""Profiles, and the interface of the sandboxes that enforce them.

A `SandboxProfile` describes what one command may do; a `Sandbox` is a mechanism that enforces it.
The module `detect` finds the mechanism that works on this machine. A profile holds whatever the
command does, so nothing here examines the command itself.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from tiller_daemon.private import make_directory
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_protocol.settings import SandboxMode

TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108
"""Directories that every program expects to be writable. Commands see the session's own directory
there."""

GitUse = Literal["", "data", "work_tree"]
"""What a command may do as git does: nothing, write data to git directories, or also change all
files of the work tree."""

ORDER: Final[Sequence[SandboxMode]] = ("read_only", "workspace_write", "full_access")
"""From the strictest to the loosest."""

ROOT_CAPABILITIES: Final[Mapping[str, int]] = {
    "CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_SETGID": 6, "CAP_SETUID": 7,
}  # fmt: skip
"""The capabilities that root needs to use other users' files and to install packages, with the
kernel's numbers. Root loses those that could undo a sandbox: mounting, tracing, devices, file
handles."""

DENIALS: Final = re.compile(
    r"Read-only file system|Network is unreachable|Could not resolve host|Operation not permitted"
    r"|Temporary failure in name resolution|Name or service not known|getaddrinfo|EROFS|EAI_AGAIN"
    r"|ENETUNREACH|Errno 30\b|Errno 101\b|Value too large for defined data type"
    r"|Device or resource busy|EBUSY|Errno 16\b|Invalid cross-device link|EXDEV|Errno 18\b"
    r"|unable to create temporary object directory"
    r"|ENOENT: no such file or directory, mkdir '(?P<made>/[^'\n]+)'",
    re.IGNORECASE,
)
"""Messages that programs print when namespaces stop them, and sometimes for other reasons.

Node calls a directory missing if it can't be `made` with its parents on a read-only file system."""

DENIED_WRITE: Final = re.compile(r"Read-only file system|EROFS|Errno 30\b", re.IGNORECASE)
"""Messages that programs print when a write fails. Some programs continue and succeed."""

NO_NETWORK: Final = re.compile(
    r"Network is unreachable|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known|getaddrinfo|EAI_AGAIN|ENETUNREACH|Errno 101\b",
    re.IGNORECASE,
)
"""Messages about the network. A sandbox with network does not cause them: the command would also
fail outside."""

HIDDEN_LOGIN: Final = re.compile(
    r"Host key verification failed|Permission denied \(publickey|could not read (?:User|Pass)"
    r"|ENEEDAUTH|Cannot connect to the Docker daemon",
    re.IGNORECASE,
)
"""Messages of ssh, git, npm and docker when they lack the keys, logins and sockets for a server,
because the sandbox hides them."""


PATHS_MAX: Final = 1000
"""How many paths in the output of a failed command are examined."""

LOGS: Final = re.compile(r"/\.npm/_logs(?:/|\Z)")
"""Directories in which programs write about a failure that has another cause, and that they name
in their last words."""

_PATH: Final = re.compile(r"(?<![\w.~/-])~?/[\w.@+-][\w.@+/-]*(?<![.])")


class SandboxError(Exception):
    """The sandbox can't enforce a profile, so the command was not run."""


class SandboxProfile(Struct, frozen=True):
    """What one command may do. All paths are absolute."""

    workspace: Path
    """The directory that the command starts in, without links."""
    visible: tuple[Path, ...] = (Path("/"),)
    """The paths that the command can see besides the workspace."""
    writable: tuple[Path, ...] = ()
    """Directories that the command can write to."""
    read_only: tuple[Path, ...] = ()
    """Paths that the command can't write, move or remove, even in a writable directory."""
    watched: tuple[Path, ...] = ()
    """Paths that the command can create or replace, but that are put aside afterwards."""
    git: tuple[Path, ...] = ()
    """The git directories in which the command may change data, but not the `read_only` parts."""
    hidden: tuple[Path, ...] = ()
    """Paths that the command can't read, even in visible directories."""
    shown: tuple[Path, ...] = ()
    """Paths that the command can read, even in hidden directories."""
    home: Path | None = None
    """The directory that the command can write to as its home; it is empty, and is not kept."""
    caches: tuple[tuple[Path, Path], ...] = ()
    """Writable directories: where the command sees each one, and where it is."""
    temporary: Path | None = None
    """The directory that the command sees as `/tmp`; None for a new, empty one."""
    network: bool = False
    """Whether the command can use the machine's network."""

    @property
    def writes(self) -> bool:
        """Whether the command can write anywhere but to `/tmp`."""
        return bool(self.writable)


class WrappedCommand(NamedTuple):
    """The program to run instead of a command, so that the command is confined."""

    arguments: Sequence[str]
    """The program to run, and its arguments."""
    descriptors: tuple[int, ...] = ()
    """Descriptors that the program must inherit."""
    without_reaper: tuple[int, ...] = ()
    """Descriptors that the program must inherit, too, if no reaper ends it after this process."""
    has_started: Callable[[], bool] = lambda: True
    """After a failure: whether the command itself was started."""
    helpers: int = 0
    """How many processes the sandbox runs in addition to those of the command."""
    ends_slowly: bool = False
    """Whether leaving the context takes time, because it looks for what the command made."""


class Sandbox(ABC):
    """A mechanism that enforces profiles."""

    name: str
    """The name that users see."""
    denials: re.Pattern[str] = DENIALS
    """Messages that programs print when the sandbox stops them."""
    limits: str = ""
    """What the sandbox fails to enforce, and what it breaks; empty if nothing."""
    has_own_temporary: bool = False
    """Whether commands see a directory of their session as `/tmp`, instead of the machine's."""
    loosest_unasked: SandboxLevel = SandboxLevel.BUILD
    """The loosest level that the sandbox can enforce for commands without approval."""

    @abstractmethod
    def wrap(
        self, arguments: Sequence[str], profile: SandboxProfile
    ) -> AbstractContextManager[WrappedCommand]:
        """Yield the command to run instead of `arguments`; leave the context when it has ended.

        `profile.temporary` must exist. Raises `SandboxError`.
        """


class SandboxSearchResult(NamedTuple):
    """The sandbox that works on this machine, if there is one."""

    sandbox: Sandbox | None
    problem: str = ""
    """Why there is no sandbox, in whole sentences."""
    instead: str = ""
    """Why a better sandbox is not used, in whole sentences."""


class CommandSandbox(NamedTuple):
    """The sandbox of one command, as a tool gets it."""

    sandbox: Sandbox
    """The mechanism."""
    profile: SandboxProfile
    """What the command may do."""
    level: SandboxLevel
    """The level from which the profile was made."""
    notices: list[str]
    """Sentences about what the command made and may not stay, once the command has ended."""
    guard: Callable[[Callable[[str], None]], AbstractContextManager[None]] | None = None
    """Puts aside what the command made; see `quarantine`."""

    @contextmanager
    def wrap(self, arguments: Sequence[str]) -> Generator[WrappedCommand]:
        """Yield the command to run instead of `arguments`; leave the context when it has ended.

        Raises `SandboxError`.
        """
        for directory in (self.profile.temporary, *(one for _, one in self.profile.caches)):
            if directory:
                make_directory(directory)
        with ExitStack() as stack:
            if self.guard:
                stack.enter_context(self.guard(self.notices.append))
            wrapped = stack.enter_context(self.sandbox.wrap(arguments, self.profile))
            yield wrapped._replace(ends_slowly=self.guard is not None)

    def was_denied(self, status: int, output: str) -> str:
        """Return the line of `output` that shows a denial by the sandbox; empty if none does."""
        pattern = self.sandbox.denials if status else DENIED_WRITE
        if not status and self.level is not SandboxLevel.READ_ONLY:
            return ""
        match = next(filter(self._denies, pattern.finditer(output)), None)
        if match is None and status and self.profile.network:
            match = HIDDEN_LOGIN.search(output)
        if match is None:
            return ""
        start = output.rfind("\n", 0, match.start()) + 1
        return output[start:].partition("\n")[0].strip()

    def _denies(self, match: re.Match[str]) -> bool:
        if made := match.groupdict().get("made"):
            return not any(map(Path(made).is_relative_to, self.profile.writable))
        return not (self.profile.network and NO_NETWORK.fullmatch(match[0]))

    def missed(self, output: str) -> Path | None:
        """Return a path that `output` names and that the command could not see."""
        may = self.profile
        known = (may.workspace, *may.visible, *may.shown, *may.writable, *may.hidden)
        places = (*known, *map(Path, (*TEMPORARY, "/dev", "/proc")))
        for path in named_paths(output):
            is_above = any(place.is_relative_to(path) for place in known)
            is_known = is_above or any(map(path.is_relative_to, places)) or LOGS.search(str(path))
            if not is_known and path.exists():
                return path
        return None

    def explain(self) -> str:
        """Return sentences that tell the model what the sandbox allowed a failed command to do."""
        if not self.profile.writes:
            access = "can read the workspace and system files, and write only to /tmp"
        else:
            git = "hooks and configuration in `.git`" if self.profile.git else "`.git`"
            access = f"can write only to {self._places()} (but not to {git}) and to /tmp"
        network = "" if self.profile.network else " There is no network."
        return (
            f"It ran in a sandbox, where it {access}.{network} That may be why it failed. "
            "Find another way, or tell the user what has to run outside of the sandbox."
        )

    def _places(self) -> str:
        workspace, writable = self.profile.workspace, self.profile.writable
        if workspace in writable:
            return "the workspace"
        return ", ".join(str(path.relative_to(workspace)) for path in writable)


def named_paths(text: str) -> Iterator[Path]:
    """Yield the absolute paths in a text, such as a command's output; at most `PATHS_MAX`."""
    for name in dict.fromkeys(_PATH.findall(text)[:PATHS_MAX]):
        yield Path(os.path.normpath(os.path.expanduser(name)))  # noqa: PTH111 - "~x" is no path


def strictest(*modes: SandboxMode) -> SandboxMode:
    """Return the mode that allows the least."""
    return min(modes, key=ORDER.index)
