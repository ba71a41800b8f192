"""Makes the profile of a command from its level and the configuration."""

import functools
import os
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from tiller_daemon.config import SandboxPolicy
from tiller_daemon.sandbox.base import (
    TEMPORARY,
    CommandSandbox,
    GitUse,
    SandboxProfile,
    SandboxSearchResult,
)
from tiller_daemon.sandbox.git_repository import find_git
from tiller_daemon.sandbox.known_paths import (
    HIDDEN_IN_HOME,
    SYSTEM,
    closed_system_files,
    compiler_caches,
    existing,
    package_caches,
    root_of,
    tool_paths,
)
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.protected import (
    UserHome,
    executed_in,
    git_data,
    kept_entries,
    kept_of_git,
    problem_of_git,
    problem_of_links,
)
from tiller_daemon.sandbox.quarantine import Watch, quarantine
from tiller_daemon.sandbox.scan import NOTHING_FOUND, Scanner, ScanResult
from tiller_daemon.sandbox.writable_places import (
    Worktrees,
    in_place,
    make_owned,
    writable_places,
)

TEMPORARY_NAME: Final = "tmp"
"""The name of the `/tmp` of a session's commands, in the session's directory for output."""

SCANNERS_MAX: Final = 64
"""The most workspaces whose scanners are cached."""


class Sandboxes:
    """Makes the sandboxes of commands. This machine's mechanism is searched for on first use."""

    def __init__(
        self,
        find: Callable[[], SandboxSearchResult],
        home: Path,
        environ: Mapping[str, str],
        private: Sequence[Path] = (),
        protected: Callable[[], Sequence[Path]] = tuple,
        records: Path | None = None,
        worktrees: Worktrees | None = None,
    ) -> None:
        """Use the sandbox that `find` returns.

        Commands can't read `private`, which belongs to the daemon, and can't write `protected()`.
        `home` and `environ` lead to the user's programs and credentials. The quarantine keeps its
        records in the directory `records`. `worktrees` tells what belongs to a worktree.
        """
        self._worktrees: Final = worktrees
        self._find: Final = functools.cache(find)
        self._home: Final = home
        self.private: Final = tuple(private)
        """This daemon's own paths, which no command can read."""
        self._keys: tuple[Path, ...] = ()
        self._secret_paths: Final = tuple(home / name for name in HIDDEN_IN_HOME)
        self._protected: Final = protected
        self._searching: Final = threading.Lock()
        self._tools: Final = functools.cache(lambda: tuple(tool_paths(home, environ)))
        self._user_home: Final = UserHome(home, environ)
        self._records: Final = records
        self._closed: Final = functools.cache(lambda: tuple(closed_system_files()))
        self._scanners: dict[tuple[Path, Hashable], Scanner] = {}
        self._planted: set[Path] = set()

    def is_planted(self, path: Path) -> bool:
        """Whether a command made what was at a path (without links), and it was put aside."""
        return any(one in self._planted for one in (path, *path.parents))

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

    def shown_top(self, root: Path) -> Path:
        """Return the directory that commands in a workspace see: it, or its repository above."""
        top = find_git(root).top
        return root if top is None or self._home.is_relative_to(top) else top

    def is_own(self, path: Path) -> bool:
        """Whether a path (without links) is inside this daemon's configuration or own paths."""
        return any(path.is_relative_to(place) for place in (*self._protected(), *self.private))

    def off_limits(self, root: Path) -> tuple[Path, ...]:
        """Return where nothing in a workspace may write, whatever the user allows."""
        return self._worktrees.off_limits(root) if self._worktrees else ()

    def hide(self, files: Sequence[Path]) -> None:
        """Hide these files from all later commands, in addition to the private paths."""
        self._keys = tuple(files)

    def prepare(self) -> None:
        """Do the work that the first turn and command would otherwise do; call this in a thread."""
        self.search_result()
        self._closed()

    def search_result(self) -> SandboxSearchResult:
        """Return the sandbox of this machine; blocks for 10 to 100 ms the first time."""
        with self._searching:
            return self._find()

    def loosest_unasked(self, policy: SandboxPolicy, workspace: Path) -> SandboxLevel | None:
        """Return the loosest level for commands without approval; None without a sandbox."""
        sandbox = self.search_result().sandbox
        if sandbox is None:
            return None
        if policy.mode == "read_only" or self.problem_for_builds(workspace):
            return SandboxLevel.READ_ONLY
        return sandbox.loosest_unasked

    def problem_for_builds(self, workspace: Path) -> str:
        """Return why builds need approval in this workspace only, as a clause for the user."""
        sandbox, root = self.search_result().sandbox, workspace.resolve()
        if sandbox is None or sandbox.loosest_unasked < SandboxLevel.BUILD:
            return ""
        problem = self._user_home.problem_of(root) or problem_of_git(find_git(root), root)
        return problem or problem_of_links(root)

    def is_executed(self, workspace: Path, path: Path) -> bool:
        """Whether another program may execute the file at `path` (without links) by itself.

        Its path in the workspace does not show that.
        """
        root = workspace.resolve()
        is_inside = path.is_relative_to(root)
        if self._user_home.executes(path) or (is_inside and self._user_home.problem_of(root)):
            return True
        git = find_git(root)
        return bool(git.problem) or any(map(path.is_relative_to, executed_in(root, git)))

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
            policy.mode == "workspace_write" and sandbox.loosest_unasked < SandboxLevel.BUILD
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
            writes = (
                f"only {places} can be written, but not what other programs execute by themselves, "
                "such as .vscode; only git commands can write to .git, but not hooks and config"
            )
        network = "network" if policy.network or policy.mode == "full_access" else "no network"
        if asks and policy.mode == "workspace_write" and not policy.network:
            network += ", but the user is asked to allow it for commands such as npm install"
        sockets = "; no unix sockets" if sandbox.limits else ""
        return f"{policy.mode}: {writes}; {network}{sockets}; {reads}"

    def holds(self, level: SandboxLevel, policy: SandboxPolicy, *, limited: bool = False) -> bool:
        """Whether a command in a sandbox is sandboxed; `limited`: only some paths are writable.

        A limited command is sandboxed in `full_access` too.
        """
        if level is SandboxLevel.OUTSIDE or self.search_result().sandbox is None:
            return False
        return limited or level is not SandboxLevel.SESSION or policy.mode != "full_access"

    def make(
        self,
        level: SandboxLevel,
        policy: SandboxPolicy,
        workspace: Path,
        spill: Path,
        *,
        found: ScanResult = NOTHING_FOUND,
        masked: Sequence[Path] = (),
        revealed: Sequence[Path] = (),
        git_use: GitUse = "",
        scope: Sequence[Path] | None = None,
        taken: Sequence[Path] = (),
        network: bool = False,
        find_nested: Callable[[], Sequence[Path]] = tuple,
    ) -> CommandSandbox | None:
        """Return the sandbox of a command; None if the command runs outside any sandbox.

        `found` is a scan of the workspace, and `find_nested` finds its repositories again. The
        command can read `spill`, which contains its `/tmp`, and the `revealed` paths, but not the
        `masked` ones. `git_use` is what an approved command may do as git. It can write only in
        `scope`, if there is one, and not in the `taken` paths; both limits hold in the mode
        `full_access` too. With `network` the command can use the network, unless it can't write
        anywhere.
        """
        sandbox, limited = self.search_result().sandbox, scope is not None or bool(taken)
        if sandbox is None or not self.holds(level, policy, limited=limited):
            return None
        if policy.mode == "full_access" and limited:
            policy = structs.replace(policy, mode="workspace_write", network=True)
        if policy.mode == "read_only":
            level = SandboxLevel.READ_ONLY
        places = None if scope is None else tuple(scope)
        make_owned((*(places or ()), *taken))
        if level is not SandboxLevel.SESSION or scope is not None:
            git_use = ""
        given = (level, policy, workspace, spill, masked, revealed, places, found.repositories)
        profile = self.profile(*given, git_use)
        if not profile.writes:
            return CommandSandbox(sandbox, profile, level, [])
        if taken:
            profile = _without(profile, taken)
        if network or profile.network:
            profile = self._with_network(profile, spill)
        watch = Watch(
            profile.workspace,
            level is SandboxLevel.BUILD,
            profile.git,
            profile.writable,
            (*map(Path, policy.writable), *taken),
            profile.watched,
            git_use,
            tuple(mark.parent for mark in found.repositories if git_use and mark.is_file()),
        )
        nested = found.repositories if watch.is_searched else ()
        again = find_nested if watch.is_searched else tuple
        guard = functools.partial(quarantine, watch, self._records, nested, again, self._planted)
        return CommandSandbox(sandbox, profile, level, [], guard)

    def _with_network(self, profile: SandboxProfile, spill: Path) -> SandboxProfile:
        is_inside = self._home.is_relative_to(profile.workspace)
        downloads = () if is_inside else package_caches(self._home, spill)
        caches = (*profile.caches, *downloads)
        return structs.replace(profile, network=True, caches=caches)

    def profile(
        self,
        level: SandboxLevel,
        policy: SandboxPolicy,
        workspace: Path,
        spill: Path,
        masked: Sequence[Path] = (),
        revealed: Sequence[Path] = (),
        scope: Sequence[Path] | None = None,
        nested: Sequence[Path] = (),
        git_use: GitUse = "",
    ) -> SandboxProfile:
        """Return what a command may do in a sandbox; see `make`."""
        root = workspace.resolve()
        git = find_git(root)
        readable = tuple(existing(map(Path, policy.readable)))
        named = (path for path in existing(self._secret_paths) if path not in readable)
        hidden = (*existing((*self.private, *self._keys)), *named)
        # Secrets and private files stay hidden, even if they were revealed.
        allowed = tuple(
            path for path in existing(revealed) if not {path, *path.parents} & {*hidden}
        )
        hidden += tuple(path for path in _hideable(masked) if path not in allowed)
        readable += allowed
        # The parts of the workspace itself have limits of their own.
        named = (*map(Path, SYSTEM), *self._tools(), self.shown_top(root), *git.directories)
        tools = (one for one in named if not one.is_relative_to(root) and os.path.lexists(one))
        visible = dict.fromkeys((*tools, *readable, *self._borrowed(root)))
        if level is not SandboxLevel.SESSION:
            hidden += self._closed()
        reading = SandboxProfile(
            root,
            visible=tuple(path for path in visible if not root_of(path, visible)),
            hidden=hidden,
            shown=(*existing((spill,)), *readable),
            temporary=spill / TEMPORARY_NAME,
            network=policy.network and level is not SandboxLevel.BUILD,
        )
        if level is SandboxLevel.READ_ONLY:
            return structs.replace(reading, network=policy.network and policy.mode == "read_only")
        inside = self._writable(policy, root) if scope is None else tuple(in_place(scope))
        # Otherwise git would stop halfway, at the first file beside the workspace.
        whole = (self.shown_top(root),) if git_use == "work_tree" else ()
        inside, data = (*inside, *whole), git_data(git, nested) if git_use else ()
        is_build = level is SandboxLevel.BUILD
        has_home = self._home.is_relative_to(root)  # Its caches may be written anyway.
        named = [*kept_entries(root, is_build=is_build, git_use=git_use), *self._protected()]
        named += kept_of_git(git, nested, git_use)
        # Only real places are mounted, as a path may lead anywhere through links.
        real = [Path(os.path.realpath(path)) for path in named]
        kept = {*filter(os.path.lexists, _inside(real, inside, data))}.difference(inside, data)
        return structs.replace(
            reading,
            writable=(*inside, *(one for one in data if _needs_mount(one, inside, kept))),
            read_only=(*sorted(kept), *(() if root in inside else (root,))),
            watched=tuple(_inside(_watched((*named, *real), kept, inside), inside, data)),
            git=data,
            home=self._home if is_build and not has_home else None,
            caches=() if has_home else tuple(compiler_caches(self._home, spill)),
        )

    def _writable(self, policy: SandboxPolicy, root: Path) -> tuple[Path, ...]:
        return writable_places(policy.writable, root, self.off_limits(root))

    def _borrowed(self, root: Path) -> Iterator[Path]:
        return existing(self._worktrees.borrowed(root) if self._worktrees else ())


def _needs_mount(path: Path, inside: Collection[Path], kept: Collection[Path]) -> bool:
    """Whether a git directory is not writable already, as part of a writable directory."""
    return not root_of(path, inside) or root_of(path, kept) is not None


def _watched(
    named: Iterable[Path], kept: Collection[Path], roots: Collection[Path]
) -> Iterator[Path]:
    """Yield those of the `named` paths that a command could replace although some are `kept`.

    Nobody can replace a mount, but a directory above it, or a link on the way to it.
    """
    for path in dict.fromkeys(Path(os.path.normpath(path)) for path in named):
        is_fixed = path in kept and path.parent in roots
        if not is_fixed and not any(parent in kept for parent in path.parents):
            yield path


def _inside(paths: Iterable[Path], *roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the paths inside the roots; nothing else can be written anyway."""
    return (path for path in paths if any(root_of(path, one) for one in roots))


def _hideable(masked: Iterable[Path]) -> Iterator[Path]:
    """Yield the places of files and directories to hide.

    A link that leads nowhere has nothing to hide, and what is in a linked directory is found there.
    """
    # Path would raise an error if a path is too long.
    return existing(one for one in masked if not (os.path.islink(one) and os.path.isdir(one)))  # noqa: PTH112, PTH114


def _without(profile: SandboxProfile, taken: Sequence[Path]) -> SandboxProfile:
    """Return a profile in which the `taken` paths can't be written.

    A missing file can't be created if its directory is not one that the command may write to.
    """
    there = {next(one for one in (path, *path.parents) if os.path.lexists(one)) for path in taken}
    read_only = (*profile.read_only, *sorted(there.difference(profile.writable)))
    return structs.replace(profile, read_only=read_only)
