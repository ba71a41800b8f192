"""The confinement of each command, by its enclosure and the configuration."""

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.confinement import (
    TEMPORARY,
    CommandSandbox,
    Confinement,
    SandboxSearchResult,
)
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.git_directories import GitPaths, git_paths
from tiller_daemon.sandbox.known_paths import (
    PROTECTED_FOLDERS,
    PROTECTED_IF_THERE,
    SYSTEM,
    closed_system_files,
    enclosing_root,
    existing_paths,
    hidden_paths,
    tool_directories,
)
from tiller_daemon.sandbox.scan import Scanner

SCANNERS_MAX: Final = 64
"""Workspaces whose directories are remembered."""


class Confiner:
    """Makes confinements, and knows the sandbox that works here, once `find` has looked for it.

    `private` is what belongs to the daemon and nobody else, `protected` what only the user may write.
    """

    def __init__(
        self,
        find: Callable[[], SandboxSearchResult],
        home: Path,
        environ: Mapping[str, str],
        private: Sequence[Path] = (),
        protected: Sequence[Path] = (),
        current_private: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        self._find: Final = find
        self._home: Final = home
        self._environ: Final = environ
        self._private: Final = tuple(private)
        self._current_private: Final = current_private
        self._keys: tuple[Path, ...] = ()
        self._secret_paths: Final = tuple(hidden_paths(home, environ))
        self._protected: Final = tuple(protected)
        self._found: SandboxSearchResult | None = None
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

    def search_result(self) -> SandboxSearchResult:
        """The sandbox that works here; blocks for some 10 to 100 ms the first time."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def most_unasked(self, policy: SandboxPolicy, workspace: Path) -> Enclosure | None:
        """The loosest enclosure for a command that nobody was asked about; None if none works."""
        sandbox = self.search_result().sandbox
        if sandbox is None:
            return None
        # No mount can keep a link from being replaced by a repository of the command's own.
        is_link = (workspace / ".git").is_symlink()
        if policy.mode == "read_only" or is_link:
            return Enclosure.READ_ONLY
        return sandbox.most_unasked

    def is_missing(self, policy: SandboxPolicy) -> bool:
        """Whether nothing enforces any of the session's mode, although it has one."""
        return policy.mode != "full_access" and self.search_result().sandbox is None

    def must_ask(self, policy: SandboxPolicy) -> bool:
        """Whether a command that does more than read asks, even where a rule allows it.

        That is so where nothing enforces all of the session's mode.
        """
        if policy.mode == "full_access":
            return False
        sandbox = self.search_result().sandbox
        return sandbox is None or (
            policy.mode == "workspace_write" and sandbox.most_unasked < Enclosure.BUILD
        )

    def describe(self, policy: SandboxPolicy) -> str:
        """What a command may do, for the model; empty if nothing enforces it."""
        sandbox = self.search_result().sandbox
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
        background: bool = False,
    ) -> CommandSandbox | None:
        """The enclosure for a command; None for one that runs outside.

        It may read what the daemon keeps in `spill`, where its `/tmp` is too; not `masked`, but
        `revealed`. It can't write what is `read_only`. One that is `background` goes on in the
        background, and writes nothing of git's.
        """
        sandbox = self.search_result().sandbox
        if sandbox is None or enclosure is Enclosure.OUTSIDE:
            return None
        if enclosure is Enclosure.SESSION and policy.mode == "full_access":
            return None
        if policy.mode == "read_only":
            enclosure = Enclosure.READ_ONLY
        confinement = self.confinement(enclosure, policy, workspace, spill, masked, revealed)
        if background and confinement.git:
            confinement = structs.replace(
                confinement, git=(), read_only=(*confinement.read_only, *confinement.git)
            )
        if confinement.writes:
            confinement = structs.replace(
                confinement, read_only=(*confinement.read_only, *read_only)
            )
        return CommandSandbox(sandbox, confinement, enclosure, [])

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
        root = workspace.resolve()
        git = git_paths(root)
        readable = tuple(existing_paths(map(Path, policy.readable)))
        named = (path for path in existing_paths(self._secret_paths) if path not in readable)
        hidden = (*existing_paths((*self._private, *self._current_private(), *self._keys)), *named)
        # Secrets and what is the daemon's own stay hidden, whatever was allowed.
        seen = tuple(
            path for path in existing_paths(revealed) if not {path, *path.parents} & {*hidden}
        )
        hidden += tuple(path for path in masked if path not in seen)
        readable += seen
        shown = (*existing_paths((spill,)), *readable)
        temporary = spill / "tmp"
        network = policy.network and enclosure is Enclosure.SESSION
        if enclosure is Enclosure.READ_ONLY:
            return Confinement(
                root,
                visible=self._visible(git, readable),
                hidden=(*hidden, *self._closed_system_files()),
                shown=shown,
                temporary=temporary,
                network=policy.network and policy.mode == "read_only",
            )
        private = git.directories if enclosure is Enclosure.SESSION else ()
        return Confinement(
            root,
            writable=self._writable(policy, root),
            read_only=self._read_only(root, git, private),
            absent=tuple(_absent(root, git)),
            # An empty `.git`, or none, in a directory that is a bare repository itself.
            absent_files=() if git.directories or git.is_link else (root / "HEAD",),
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

    def _writable(self, policy: SandboxPolicy, root: Path) -> tuple[Path, ...]:
        # What lies in a writable place is writable; it may have become a link to anywhere.
        named = [path for path in map(Path, policy.writable) if not enclosing_root(path, (root,))]
        return tuple(path for path in existing_paths((root, *named)) if path != Path("/"))

    def _read_only(self, root: Path, git: GitPaths, private: Sequence[Path]) -> tuple[Path, ...]:
        folders = (root / name for name in (*PROTECTED_FOLDERS, *PROTECTED_IF_THERE))
        found = (git.mark, *git.directories, *git.named, *folders, *self._protected)
        protected = dict.fromkeys(path for path in found if path not in private)
        return tuple(path for path in protected if os.path.lexists(path))


def _absent(root: Path, git: GitPaths) -> Sequence[Path]:
    """Directories that are not there, and that would make programs run something."""
    hooks = (path for path in git.named if not os.path.lexists(path))
    folders = (root / name for name in (".git", *PROTECTED_FOLDERS))
    return [path for path in (*folders, *hooks) if not os.path.lexists(path)]
