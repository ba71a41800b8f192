"""Makes the confinement of a command from its enclosure and the configuration.

This requires checks of about a hundred paths. So a confinement is reused for later commands until
the stamp of one of these paths has changed. Every path that is checked must be recorded (see
`stamps`).
"""

import functools
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.confinement import (
    TEMPORARY,
    CommandSandbox,
    Confinement,
    Sandbox,
    SandboxSearchResult,
)
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.git_directories import (
    GIT_EXECUTED,
    GitPaths,
    git_paths,
    git_paths_around,
    nested_git_paths,
    with_nested,
)
from tiller_daemon.sandbox.known_paths import (
    PROTECTED_FOLDERS,
    PROTECTED_IF_THERE,
    SYSTEM,
    closed_system_files,
    existing,
    first_missing,
    hidden_paths,
    in_place,
    is_there,
    root_of,
    tool_directories,
)
from tiller_daemon.sandbox.protected_links import LinkedPaths, linked_paths
from tiller_daemon.sandbox.scan import Scanner
from tiller_daemon.stamps import StampedCache, look_along

SCANNERS_MAX: Final = 64
"""The most workspaces whose scanners are cached."""


class Confiner:
    """Makes confinements for this machine's sandbox, which is searched for on first use."""

    def __init__(
        self,
        find: Callable[[], SandboxSearchResult],
        home: Path,
        environ: Mapping[str, str],
        private: Sequence[Path] = (),
        protected: Callable[[], Sequence[Path]] = tuple,
        current_private: Callable[[], Sequence[Path]] = tuple,
        find_quick: Callable[[], Sandbox | None] = lambda: None,
    ) -> None:
        """Use the sandbox that `find` returns; in `full_access` try `find_quick`'s sandbox first.

        Commands can't read `private` and `current_private()`, which belong to daemons, and can't
        write `protected()`. Both functions must record the paths that they check (see `stamps`).
        `home` and `environ` lead to credentials and to the user's programs.
        """
        self._find: Final = functools.cache(find)
        self._home: Final = home
        self.private: Final = tuple(private)
        """This daemon's own paths, which no command can read."""
        self._current_private: Final = current_private
        self._keys: tuple[Path, ...] = ()
        self._secret_paths: Final = tuple(hidden_paths(home, environ))
        self._protected: Final = protected
        self._searching: Final = threading.Lock()
        self._find_quick: Final = functools.cache(find_quick)
        self._tools: Final = functools.cache(lambda: tuple(tool_directories(home, environ)))
        self._closed: Final = functools.cache(lambda: tuple(closed_system_files()))
        self._confinements: Final = StampedCache()
        self._links: Final = StampedCache()
        self._scanners: dict[tuple[Path, Hashable], Scanner] = {}

    def scanner(
        self, workspace: Path, key: Hashable, is_protected: Callable[[str], bool]
    ) -> Scanner:
        """Return a workspace's scanner; `key` must differ if `is_protected` behaves differently."""
        known = (workspace, key)
        if known not in self._scanners:
            if len(self._scanners) >= SCANNERS_MAX:
                del self._scanners[next(iter(self._scanners))]
            self._scanners[known] = Scanner(workspace, is_protected)
        return self._scanners[known]

    def is_own(self, path: Path) -> bool:
        """Whether a path (without links) is inside this daemon's configuration or own paths."""
        return any(path.is_relative_to(place) for place in (*self._protected(), *self.private))

    def hide(self, files: Sequence[Path]) -> None:
        """Hide these files from all later commands, in addition to the private paths."""
        self._keys = tuple(files)

    def prepare(self) -> None:
        """Do the work that the first turn and command would otherwise do; call this in a thread."""
        self.search_result()
        self._find_quick()
        self._closed()

    def search_result(self) -> SandboxSearchResult:
        """Return the sandbox of this machine; blocks for 10 to 100 ms the first time."""
        with self._searching:
            return self._find()

    def loosest_unasked(self, policy: SandboxPolicy, workspace: Path) -> Enclosure | None:
        """Return the loosest enclosure for commands without approval; None without a sandbox."""
        sandbox = self.search_result().sandbox
        if sandbox is None:
            return None
        if policy.mode == "read_only" or self.problem_for_builds(policy, workspace):
            return Enclosure.READ_ONLY
        return sandbox.loosest_unasked

    def problem_for_builds(self, policy: SandboxPolicy, workspace: Path) -> str:
        """Return why builds need approval in this workspace only, as a clause for the user."""
        sandbox, root = self.search_result().sandbox, workspace.resolve()
        if sandbox is None or sandbox.loosest_unasked < Enclosure.BUILD:
            return ""
        # A shell, a desktop or one of the user's programs may execute any file there.
        if self._home.is_relative_to(root):
            return "the workspace contains your home directory"
        # A mount can't keep a command from replacing such a link, for example `.git`.
        git = git_paths(root)
        if not git.problem and self._linked(policy, root, git).is_replaceable:
            return "the workspace has links that could lead git or editors to other files"
        return git.problem

    def is_executed(self, policy: SandboxPolicy, workspace: Path, path: Path) -> bool:
        """Whether git, an editor or an agent may execute the file at `path` (without links).

        Its own path does not show that: a link or git's configuration leads there.
        """
        root = workspace.resolve()
        found = [*git_paths_around(root, path)]
        executed = [*self._linked(policy, root, found[0]).targets]
        executed += (one for git in found for one in git.named)
        uses_all = any(git.problem or git.is_bare for git in found)
        return uses_all or any(map(path.is_relative_to, executed))

    def is_missing(self, policy: SandboxPolicy) -> bool:
        """Whether nothing enforces the session's mode."""
        return policy.mode != "full_access" and self.search_result().sandbox is None

    def must_ask(self, policy: SandboxPolicy) -> bool:
        """Whether any command that does more than read must be approved, even if a rule allows it.

        This is so if the session's mode can't be enforced completely.
        """
        if policy.mode == "full_access":
            return False
        sandbox = self.search_result().sandbox
        return sandbox is None or (
            policy.mode == "workspace_write" and sandbox.loosest_unasked < Enclosure.BUILD
        )

    def describe(
        self, policy: SandboxPolicy, scope: Sequence[str] | None = None, *, asks: bool = False
    ) -> str:
        """Return a description for the model of what commands may do; empty without a sandbox.

        With a `scope`, commands can write only there. `asks` tells whether the user is asked to
        allow a command to use the network.
        """
        sandbox = self.search_result().sandbox
        if sandbox is None:
            return ""
        reads = (
            "commands that only read can see nothing but workspace and system files, "
            "and can't write"
        )
        if policy.mode == "full_access" and scope is None:
            return f"{policy.mode}: {reads}"
        writes = "nothing can be written"
        if scope is not None and policy.mode != "read_only":
            writes = f"only {' and '.join((*scope, *TEMPORARY[:1]))} can be written, but not .git"
        elif policy.mode == "workspace_write":
            places = " and ".join(("the workspace", *TEMPORARY[:1], *policy.writable))
            writes = f"only {places} can be written, but not hooks and configuration in .git"
        network = "network" if policy.network or policy.mode == "full_access" else "no network"
        if asks and policy.mode == "workspace_write" and not policy.network:
            network += ", but the user is asked to allow it for commands such as npm install"
        sockets = "; no unix sockets" if sandbox.limits else ""
        return f"{policy.mode}: {writes}; {network}{sockets}; {reads}"

    def holds(self, enclosure: Enclosure, policy: SandboxPolicy, *, limited: bool = False) -> bool:
        """Whether a command in an enclosure is sandboxed; `limited`: only some paths are writable.

        A limited command is sandboxed in `full_access` too.
        """
        if enclosure is Enclosure.OUTSIDE or self.search_result().sandbox is None:
            return False
        return limited or enclosure is not Enclosure.SESSION or policy.mode != "full_access"

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
        nested: Sequence[Path] = (),
        scope: Sequence[Path] | None = None,
        taken: Sequence[Path] = (),
        network: bool = False,
    ) -> CommandSandbox | None:
        """Return the sandbox of a command; None if the command runs outside any sandbox.

        The command can read `spill`, which contains its `/tmp`, and the `revealed` paths, but not
        the `masked` ones. It can't write the `read_only` paths, nor what git's configuration in the
        `nested` repositories names. It can write only in `scope`, if there is one, and not in the
        `taken` paths; both limits hold in the mode `full_access` too. A command in the `background`
        can't write the git directories. With `network` the command can use the network, unless it
        can't write anywhere.
        """
        sandbox, limited = self.search_result().sandbox, scope is not None or bool(taken)
        if sandbox is None or not self.holds(enclosure, policy, limited=limited):
            return None
        if policy.mode == "full_access" and limited:
            policy = structs.replace(policy, mode="workspace_write", network=True)
        if policy.mode == "read_only":
            enclosure = Enclosure.READ_ONLY
        places = None if scope is None else tuple(scope)
        lists = (tuple(masked), tuple(revealed), places, tuple(nested))
        arguments = (enclosure, policy, workspace, spill, *lists)
        confinement = self._confinements.get(
            (arguments, self._keys), lambda: self.confinement(*arguments)
        )
        if background and confinement.git:
            confinement = structs.replace(
                confinement, git=(), read_only=(*confinement.read_only, *confinement.git)
            )
        if confinement.writes and read_only:
            confinement = structs.replace(
                confinement, read_only=(*confinement.read_only, *read_only)
            )
        if confinement.writes and taken:
            confinement = _without(confinement, taken)
        if confinement.writes and network:
            confinement = structs.replace(confinement, network=True)
        confined = CommandSandbox(sandbox, confinement, enclosure, [])
        # In this mode other commands run outside any sandbox. This command gets one only to prove
        # that it changed nothing.
        if policy.mode == "full_access" and enclosure is Enclosure.READ_ONLY and not background:
            quick = self._find_quick()
            first = quick and CommandSandbox(quick, confinement, enclosure, [])
            return confined._replace(first=first)
        return confined

    def confinement(
        self,
        enclosure: Enclosure,
        policy: SandboxPolicy,
        workspace: Path,
        spill: Path,
        masked: Sequence[Path] = (),
        revealed: Sequence[Path] = (),
        scope: Sequence[Path] | None = None,
        nested: Sequence[Path] = (),
    ) -> Confinement:
        """Return what a command may do in an enclosure; see `confined`."""
        look_along(workspace)
        root = workspace.resolve()
        # What the user's configuration names may be files that an approved command should change.
        git = git_paths(root, with_user=enclosure is Enclosure.BUILD)
        readable = tuple(existing(map(Path, policy.readable)))
        named = (path for path in existing(self._secret_paths) if path not in readable)
        hidden = (*existing((*self.private, *self._current_private(), *self._keys)), *named)
        # Secrets and private files stay hidden, even if they were revealed.
        allowed = tuple(
            path for path in existing(revealed) if not {path, *path.parents} & {*hidden}
        )
        hidden += tuple(path for path in masked if path not in allowed)
        readable += allowed
        shown = (*existing((spill,)), *readable)
        if enclosure is not Enclosure.SESSION:
            hidden += self._closed()
        if enclosure is Enclosure.READ_ONLY:
            return Confinement(
                root,
                visible=self._visible(git, readable),
                hidden=hidden,
                shown=shown,
                temporary=spill / "tmp",
                network=policy.network and policy.mode == "read_only",
            )
        # Sub-agents that share a workspace do not share its repository.
        private = git.directories if enclosure is Enclosure.SESSION and scope is None else ()
        writable = self._writable(policy, root) if scope is None else tuple(in_place(scope))
        others = nested_git_paths(nested)
        linked = self._linked(policy, root, git, others).targets
        git = with_nested(git, root, others)
        return Confinement(
            root,
            writable=writable,
            read_only=(
                *self._read_only(root, git, private, writable),
                *filter(is_there, linked),
                *(() if root in writable else (root,)),
            ),
            absent=tuple(_inside(_absent(root, git, linked), writable)),
            absent_files=tuple(_inside(_absent_files(root, git), writable)),
            git=private,
            worktree_state=git.own,
            hidden=hidden,
            shown=shown,
            temporary=spill / "tmp",
            network=policy.network and enclosure is Enclosure.SESSION,
        )

    def _visible(self, git: GitPaths, readable: Sequence[Path]) -> tuple[Path, ...]:
        root = (git.root,) if git.root else ()
        visible = (*map(Path, SYSTEM), *self._tools(), *root, *git.directories, *readable)
        return tuple(filter(is_there, dict.fromkeys(visible)))

    def _writable(self, policy: SandboxPolicy, root: Path) -> tuple[Path, ...]:
        # Paths inside a writable directory are writable already, and a command may have replaced
        # them with links to anywhere.
        named = [path for path in map(Path, policy.writable) if not root_of(path, (root,))]
        return tuple(path for path in existing((root, *named)) if path != Path("/"))

    def _linked(
        self, policy: SandboxPolicy, root: Path, git: GitPaths, nested: Sequence[GitPaths] = ()
    ) -> LinkedPaths:
        """Return what the links lead to that are among the paths that a workspace protects."""
        repositories = (git, *nested)

        def read() -> LinkedPaths:
            directories = (one for paths in repositories for one in paths.directories)
            parts = (one / name for one in directories for name in GIT_EXECUTED)
            mark = (git.mark,) if git.is_link else ()
            named = (one for paths in repositories for one in paths.named)
            tops = (*mark, *named, *_executed(root), *parts)
            writable = self._writable(policy, root)
            return linked_paths(tops, self._read_only(root, git, (), writable), writable)

        return self._links.get((policy.writable, root, repositories), read)

    def _read_only(
        self, root: Path, git: GitPaths, private: Sequence[Path], writable: Sequence[Path]
    ) -> tuple[Path, ...]:
        named = in_place(_inside(git.named, writable))
        paths = (git.mark, *git.directories, *named, *_executed(root), *self._protected())
        protected = dict.fromkeys(path for path in paths if path not in private)
        return tuple(filter(is_there, protected))


def _inside(paths: Iterable[Path], roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the paths inside the roots; the others can't be created anyway."""
    return (path for path in paths if root_of(path, roots))


def _without(confinement: Confinement, taken: Sequence[Path]) -> Confinement:
    """Return a confinement in which the `taken` paths can't be written, nor created if missing."""
    there = [path for path in taken if os.path.lexists(path)]
    missing = [first_missing(path) for path in taken if path not in there]
    return structs.replace(
        confinement,
        read_only=(*confinement.read_only, *there),
        absent=tuple(dict.fromkeys((*confinement.absent, *missing))),
    )


def _executed(root: Path) -> Iterator[Path]:
    """Yield the paths in a workspace that editors and agents execute, whether they exist or not."""
    return (root / name for name in (*PROTECTED_FOLDERS, *PROTECTED_IF_THERE))


def _absent(root: Path, git: GitPaths, linked: Sequence[Path]) -> Iterator[Path]:
    """Yield the missing directories that would make programs execute something."""
    folders = (root / name for name in (".git", *PROTECTED_FOLDERS))
    named = (*folders, *in_place(git.named), *linked)
    missing = dict.fromkeys(first_missing(path) for path in named if not is_there(path))
    yield from (path for path in missing if path not in git.included)


def _absent_files(root: Path, git: GitPaths) -> Iterator[Path]:
    """Yield the files that would make git execute something, if they are missing."""
    yield from git.included
    if not (git.directories or git.is_link or git.is_bare):
        # Together with a few directories, it would make the workspace itself a bare repository.
        yield root / "HEAD"
