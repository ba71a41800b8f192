"""What a command may do to the machine, and who holds it to that.

A `Confinement` says what it may, a `Sandbox` holds it; which one works here is found out in
`sandbox_search`. The policy judges before: what it allows, and what the user approves, runs in the
sandbox all the same.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.workspace.sandbox_paths import (
    PROTECTED_FOLDERS,
    PROTECTED_IF_THERE,
    hidden_paths,
    there,
    within,
)
from tiller_daemon.workspace.sandbox_repository import kept_of_repository
from tiller_protocol.settings import SandboxMode

TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108
"""Where every program expects to be able to write."""

ORDER: Final[Sequence[SandboxMode]] = ("read_only", "workspace_write", "full_access")
"""From the strictest to the loosest."""

ROOT_KEEPS: Final[Mapping[str, int]] = {
    "CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_SETGID": 6,
    "CAP_SETUID": 7,
}  # fmt: skip
"""What root needs to work with the files of others and to install packages, and the numbers of it.
It loses what would undo the sandbox: mounting, tracing, devices, file handles."""

DENIED: Final = re.compile(
    r"Read-only file system|Network is unreachable|Could not resolve host|Operation not permitted"
    r"|Temporary failure in name resolution|Name or service not known|getaddrinfo|EROFS|EAI_AGAIN"
    r"|ENETUNREACH|Errno 30\b|Errno 101\b",
    re.IGNORECASE,
)
"""What programs say when namespaces are in their way; some say so for reasons of their own."""


class NotConfined(Exception):
    """A command that the sandbox can't hold, and that is not run; the message is a sentence."""


class Confinement(Struct, frozen=True):
    """What one command may do. Every path is absolute.

    It writes in `writable` alone, and not to what is `folders` and `files` in there, be they there
    yet or not; `never_made` is taken away if it makes it. What is `hidden` it can't even read, but
    for what is `shown`. Without `network` it reaches nobody. `repository` is the git directory that
    is the workspace's own and lies elsewhere.
    """

    workspace: Path
    repository: Path | None = None
    writable: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    never_made: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    network: bool = False


class Enclosed(NamedTuple):
    """What to run instead of a command, and the descriptors that it has to inherit."""

    arguments: Sequence[str]
    descriptors: tuple[int, ...] = ()


class Sandbox(Protocol):
    """A mechanism that holds commands to a confinement."""

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
        """What programs say when it is in their way."""
        ...

    @property
    def limits(self) -> str:
        """What it does not hold, or breaks; empty when it holds all of a confinement.

        With such limits no command runs in it that may write and goes on in the background.
        """
        ...

    def around(
        self, arguments: Sequence[str], confinement: Confinement, told: Callable[[str], None]
    ) -> AbstractContextManager[Enclosed]:
        """What to run instead of `arguments`; to be left when the command has ended.

        `told` hears what was put back after it. Raises `NotConfined`.
        """
        ...


class Found(NamedTuple):
    """The sandbox that works here, or why there is none; `instead` says why it is no better one."""

    sandbox: Sandbox | None
    problem: str = ""
    instead: str = ""


class Confined(NamedTuple):
    """The sandbox of one command: what a tool is handed."""

    sandbox: Sandbox
    confinement: Confinement
    mode: SandboxMode
    told: list[str]

    def around(self, arguments: Sequence[str]) -> AbstractContextManager[Enclosed]:
        """What to run instead of `arguments`; to be left when the command has ended.

        What was put back then is in `told`. Raises `NotConfined`.
        """
        return self.sandbox.around(arguments, self.confinement, self.told.append)

    def explain(self, output: str) -> str:
        """What may have stopped a command that failed with this output; empty if it can't tell."""
        if not self.sandbox.denials.search(output):
            return ""
        writes = "writes only in the workspace and in /tmp, not to `.git/config`, hooks and agents'"
        writes += " configuration" if self.mode == "workspace_write" else ""
        may = "writes nothing" if self.mode == "read_only" else writes
        network = "" if self.confinement.network else " and has no network"
        return (
            f"It ran in the sandbox ({self.mode}), where a command {may}{network}: that may be why "
            "it failed. Find a way that needs neither, or tell the user what has to be run outside."
        )


class Confiner:
    """Makes confinements, and knows the sandbox that works here, once `find` has looked for it.

    `own` is what belongs to the daemon and nobody else, `kept` what only the user may write. In
    `temporary` directories every command may write that may write at all.
    """

    def __init__(
        self,
        find: Callable[[], Found],
        home: Path,
        environ: Mapping[str, str],
        own: Sequence[Path] = (),
        kept: Sequence[Path] = (),
        temporary: Sequence[str] = TEMPORARY,
    ) -> None:
        self._find: Final = find
        self._temporary: Final = (*temporary, environ.get("TMPDIR", ""))
        self._own: Final = tuple(own)
        self._always_hidden = self._own
        self._named: Final = tuple(hidden_paths(home, environ, os.getuid()))
        self._kept: Final = tuple(kept)
        self._found: Found | None = None

    def hide(self, files: Sequence[Path]) -> None:
        """From the next command on, let none read these files, beside what is the daemon's own."""
        self._always_hidden = (*self._own, *files)

    def found(self) -> Found:
        """The sandbox that works here; blocks for some 10 to 100 ms the first time."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def asks(self, policy: SandboxPolicy, *, lasting: bool = False) -> bool:
        """Whether a command has to be asked about, because nothing holds it to the policy.

        One that is `lasting` goes on in the background.
        """
        return policy.mode != "full_access" and self._sandbox(policy, lasting=lasting) is None

    def _sandbox(self, policy: SandboxPolicy, *, lasting: bool) -> Sandbox | None:
        """What holds such a command to the policy."""
        sandbox = self.found().sandbox
        if sandbox and sandbox.limits and lasting and policy.mode == "workspace_write":
            # What is put back when it ends would be another's for as long as it likes.
            return None
        return sandbox

    def holds(self, policy: SandboxPolicy) -> bool:
        """Whether a command can write in the workspace, and nothing keeps it less than wholly."""
        sandbox = self.found().sandbox if policy.mode == "workspace_write" else None
        return sandbox is not None and not sandbox.limits and not policy.network

    def said(self, policy: SandboxPolicy) -> str:
        """What a command may do, for the model; empty if nothing holds it to that."""
        sandbox = self._sandbox(policy, lasting=False)
        if policy.mode == "full_access" or sandbox is None:
            return ""
        writes = "nothing can be written"
        if policy.mode == "workspace_write":
            places = ", ".join(("the workspace", *TEMPORARY[:1], *policy.writable))
            writes = f"only {places} can be written, but not .git/config and .git/hooks"
        sockets = ", no unix sockets" if sandbox.limits else ""
        return f"{policy.mode}: {writes}, {'' if policy.network else 'no '}network{sockets}"

    def confined(
        self, policy: SandboxPolicy, workspace: Path, shown: Path, *, lasting: bool = False
    ) -> Confined | None:
        """The sandbox for a command, which may read what the daemon keeps in `shown`."""
        if policy.mode == "full_access" or not (sandbox := self._sandbox(policy, lasting=lasting)):
            return None
        return Confined(sandbox, self.confinement(policy, workspace, shown), policy.mode, [])

    def confinement(self, policy: SandboxPolicy, workspace: Path, shown: Path) -> Confinement:
        """What a command may do under `policy`."""
        place = workspace.resolve()
        readable = tuple(there(map(Path, policy.readable)))
        named = (path for path in there(self._named) if path not in readable)
        hidden = tuple(there((*self._always_hidden, *named)))
        shown_too = tuple(there((shown, *readable)))
        if policy.mode == "read_only":
            return Confinement(place, hidden=hidden, shown=shown_too, network=policy.network)
        repository = kept_of_repository(place)
        extra = [Path(path) for path in self._temporary if path.startswith("/")]
        # What lies in a writable place is writable; it may have become a link to anywhere.
        named = [path for path in map(Path, policy.writable) if not within(path, (place, *extra))]
        writable = there((place, *extra, *named, *repository.writable))
        if_there = (*repository.if_there, *(place / name for name in PROTECTED_IF_THERE))
        kept = [path for path in (*if_there, *self._kept) if os.path.lexists(path)]
        folders = (place / name for name in PROTECTED_FOLDERS)
        return Confinement(
            place,
            repository=repository.own,
            writable=tuple(path for path in writable if path != Path("/")),
            folders=(*repository.folders, *folders, *kept),
            files=repository.files,
            never_made=repository.never_made,
            hidden=hidden,
            shown=shown_too,
            network=policy.network,
        )


def strictest(*modes: SandboxMode) -> SandboxMode:
    """The one that allows least."""
    return min(modes, key=ORDER.index)
