"""The enclosures of commands: what each one allows, and who enforces it.

A `Confinement` says what one command may do, a `Sandbox` is a mechanism that enforces it; which
mechanism works here is found out in `detect`. An enclosure keeps its promise whatever the
command turns out to do, so nothing here looks at what the command says.
"""

import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, structs

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.git_directories import GitPaths, git_paths
from tiller_daemon.sandbox.known_paths import (
    PROTECTED_FOLDERS,
    PROTECTED_IF_THERE,
    SYSTEM,
    closed_system_files,
    hidden_paths,
    there,
    tool_directories,
    within,
)
from tiller_daemon.sandbox.scan import Scanner
from tiller_protocol.settings import SandboxMode

TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108
"""Where every program expects to be able to write: a directory of the session's own."""

ORDER: Final[Sequence[SandboxMode]] = ("read_only", "workspace_write", "full_access")
"""From the strictest to the loosest."""

ROOT_KEEPS: Final[Mapping[str, int]] = {
    "CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_FSETID": 4, "CAP_SETGID": 6,
    "CAP_SETUID": 7,
}  # fmt: skip
"""What root needs to work with the files of others and to install packages, with its numbers. Root
loses what would undo the sandbox: mounting, tracing, devices, file handles."""

DENIED: Final = re.compile(
    r"Read-only file system|Network is unreachable|Could not resolve host|Operation not permitted"
    r"|Temporary failure in name resolution|Name or service not known|getaddrinfo|EROFS|EAI_AGAIN"
    r"|ENETUNREACH|Errno 30\b|Errno 101\b|Value too large for defined data type",
    re.IGNORECASE,
)
"""What programs print when namespaces stop them; some print it for reasons of their own."""

DENIED_WRITE: Final = re.compile(r"Read-only file system|EROFS|Errno 30\b", re.IGNORECASE)
"""What they print when they can't write; some of them go on, and succeed."""


SCANNERS_MAX: Final = 64
"""Workspaces whose directories are remembered."""


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


class Enclosed(NamedTuple):
    """What to run instead of a command, and the descriptors that it has to inherit."""

    arguments: Sequence[str]
    descriptors: tuple[int, ...] = ()
    began: Callable[[], bool] = _began
    """When it has failed: whether the command itself was started at all."""
    takes_over: bool = False
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

    def around(
        self, arguments: Sequence[str], confinement: Confinement, told: Callable[[str], None]
    ) -> AbstractContextManager[Enclosed]:
        """What to run instead of `arguments`; to be left when the command has ended.

        `told` hears what was not taken over. Raises `NotConfined`.
        """
        ...


class Found(NamedTuple):
    """The sandbox that works here, or why there is none; `instead` says why it is no better one."""

    sandbox: Sandbox | None
    problem: str = ""
    instead: str = ""


class Confined(NamedTuple):
    """The enclosure of one command: what a tool is handed."""

    sandbox: Sandbox
    confinement: Confinement
    enclosure: Enclosure
    told: list[str]

    def around(self, arguments: Sequence[str]) -> AbstractContextManager[Enclosed]:
        """What to run instead of `arguments`; to be left when the command has ended.

        What was not taken over then is in `told`. Raises `NotConfined`.
        """
        return self.sandbox.around(arguments, self.confinement, self.told.append)

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


class Confiner:
    """Makes confinements, and knows the sandbox that works here, once `find` has looked for it.

    `own` is what belongs to the daemon and nobody else, `kept` what only the user may write.
    """

    def __init__(
        self,
        find: Callable[[], Found],
        home: Path,
        environ: Mapping[str, str],
        own: Sequence[Path] = (),
        kept: Sequence[Path] = (),
        own_now: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        self._find: Final = find
        self._home: Final = home
        self._environ: Final = environ
        self._own: Final = tuple(own)
        self._own_now: Final = own_now
        self._keys: tuple[Path, ...] = ()
        self._named: Final = tuple(hidden_paths(home, environ))
        self._kept: Final = tuple(kept)
        self._found: Found | None = None
        self._tools: tuple[Path, ...] | None = None
        self._closed: tuple[Path, ...] | None = None
        self._scanners: dict[tuple[Path, Hashable], Scanner] = {}

    def scanner(
        self, workspace: Path, key: Hashable, is_protected: Callable[[str], bool]
    ) -> Scanner:
        """What looks through a workspace; the same one for the same `key` of `is_protected`."""
        known = (workspace, key)
        if known not in self._scanners:
            if len(self._scanners) >= SCANNERS_MAX:
                del self._scanners[next(iter(self._scanners))]
            self._scanners[known] = Scanner(workspace, is_protected)
        return self._scanners[known]

    def hide(self, files: Sequence[Path]) -> None:
        """From the next command on, let none read these files, beside what is the daemon's own."""
        self._keys = tuple(files)

    def found(self) -> Found:
        """The sandbox that works here; blocks for some 10 to 100 ms the first time."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def most_unasked(self, policy: SandboxPolicy, workspace: Path) -> Enclosure | None:
        """The loosest enclosure for a command that nobody was asked about; None if none works."""
        sandbox = self.found().sandbox
        if sandbox is None:
            return None
        # No mount can keep a link from being replaced by a repository of the command's own.
        is_link = (workspace / ".git").is_symlink()
        if policy.mode == "read_only" or is_link:
            return Enclosure.READ_ONLY
        return sandbox.most_unasked

    def is_missing(self, policy: SandboxPolicy) -> bool:
        """Whether nothing enforces any of the session's mode, although it has one."""
        return policy.mode != "full_access" and self.found().sandbox is None

    def asks(self, policy: SandboxPolicy) -> bool:
        """Whether a command that does more than read asks, even where a rule allows it.

        That is so where nothing enforces all of the session's mode.
        """
        if policy.mode == "full_access":
            return False
        sandbox = self.found().sandbox
        return sandbox is None or (
            policy.mode == "workspace_write" and sandbox.most_unasked < Enclosure.BUILD
        )

    def said(self, policy: SandboxPolicy) -> str:
        """What a command may do, for the model; empty if nothing enforces it."""
        sandbox = self.found().sandbox
        if sandbox is None:
            return ""
        reads = "what only reads runs where nothing can be written and only the workspace is seen"
        if policy.mode == "full_access":
            return f"{policy.mode}: {reads}"
        writes = "nothing can be written"
        if policy.mode == "workspace_write":
            places = ", ".join(("the workspace", *TEMPORARY[:1], *policy.writable))
            writes = f"only {places} can be written, and of .git no hooks and configuration"
        sockets = ", no unix sockets" if sandbox.limits else ""
        return (
            f"{policy.mode}: {writes}, {'' if policy.network else 'no '}network{sockets}; {reads}"
        )

    def confined(
        self,
        enclosure: Enclosure,
        policy: SandboxPolicy,
        workspace: Path,
        spill: Path,
        *,
        masked: Sequence[Path] = (),
        revealed: Sequence[Path] = (),
        read_only: Sequence[Path] = (),
        lasting: bool = False,
    ) -> Confined | None:
        """The enclosure for a command; None for one that runs outside.

        It may read what the daemon keeps in `spill`, where its `/tmp` is too; not `masked`, but
        `revealed`. It can't write what is `read_only`. One that is `lasting` goes on in the
        background, and writes nothing of git's.
        """
        sandbox = self.found().sandbox
        if sandbox is None or enclosure is Enclosure.OUTSIDE:
            return None
        if enclosure is Enclosure.SESSION and policy.mode == "full_access":
            return None
        if policy.mode == "read_only":
            enclosure = Enclosure.READ_ONLY
        held = self.confinement(enclosure, policy, workspace, spill, masked, revealed)
        if lasting and held.git:
            held = structs.replace(held, git=(), read_only=(*held.read_only, *held.git))
        if held.writes:
            held = structs.replace(held, read_only=(*held.read_only, *read_only))
        return Confined(sandbox, held, enclosure, [])

    def confinement(
        self,
        enclosure: Enclosure,
        policy: SandboxPolicy,
        workspace: Path,
        spill: Path,
        masked: Sequence[Path] = (),
        revealed: Sequence[Path] = (),
    ) -> Confinement:
        """What a command may do in an enclosure."""
        place = workspace.resolve()
        git = git_paths(place)
        readable = tuple(there(map(Path, policy.readable)))
        named = (path for path in there(self._named) if path not in readable)
        hidden = (*there((*self._own, *self._own_now(), *self._keys)), *named)
        # Secrets and what is the daemon's own stay hidden, whatever was allowed.
        seen = tuple(path for path in there(revealed) if not {path, *path.parents} & {*hidden})
        hidden += tuple(path for path in masked if path not in seen)
        readable += seen
        shown = (*there((spill,)), *readable)
        temporary = spill / "tmp"
        network = policy.network and enclosure is Enclosure.SESSION
        if enclosure is Enclosure.READ_ONLY:
            return Confinement(
                place,
                visible=self._visible(git, readable),
                hidden=(*hidden, *self._closed_system_files()),
                shown=shown,
                temporary=temporary,
                network=policy.network and policy.mode == "read_only",
            )
        private = git.directories if enclosure is Enclosure.SESSION else ()
        return Confinement(
            place,
            writable=self._writable(policy, place),
            read_only=self._read_only(place, git, private),
            absent=tuple(_absent(place, git)),
            # An empty `.git`, or none, in a directory that is a bare repository itself.
            absent_files=() if git.directories or git.is_link else (place / "HEAD",),
            git=private,
            git_own=git.own,
            hidden=(
                *hidden,
                *(self._closed_system_files() if enclosure is Enclosure.BUILD else ()),
            ),
            shown=shown,
            temporary=temporary,
            network=network,
        )

    def _visible(self, git: GitPaths, readable: Sequence[Path]) -> tuple[Path, ...]:
        if self._tools is None:
            self._tools = tuple(tool_directories(self._home, self._environ))
        root = (git.root,) if git.root else ()
        seen = (*map(Path, SYSTEM), *self._tools, *root, *git.directories, *readable)
        return tuple(path for path in dict.fromkeys(seen) if os.path.lexists(path))

    def _closed_system_files(self) -> tuple[Path, ...]:
        if self._closed is None:
            self._closed = tuple(closed_system_files()) if os.geteuid() == 0 else ()
        return self._closed

    def _writable(self, policy: SandboxPolicy, place: Path) -> tuple[Path, ...]:
        # What lies in a writable place is writable; it may have become a link to anywhere.
        named = [path for path in map(Path, policy.writable) if not within(path, (place,))]
        return tuple(path for path in there((place, *named)) if path != Path("/"))

    def _read_only(self, place: Path, git: GitPaths, private: Sequence[Path]) -> tuple[Path, ...]:
        folders = (place / name for name in (*PROTECTED_FOLDERS, *PROTECTED_IF_THERE))
        found = (git.mark, *git.directories, *git.named, *folders, *self._kept)
        kept = dict.fromkeys(path for path in found if path not in private)
        return tuple(path for path in kept if os.path.lexists(path))


def _absent(place: Path, git: GitPaths) -> Sequence[Path]:
    """Directories that are not there, and that would make programs run something."""
    hooks = (path for path in git.named if not os.path.lexists(path))
    folders = (place / name for name in (".git", *PROTECTED_FOLDERS))
    return [path for path in (*folders, *hooks) if not os.path.lexists(path)]


def strictest(*modes: SandboxMode) -> SandboxMode:
    """The one that allows least."""
    return min(modes, key=ORDER.index)
