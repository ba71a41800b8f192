"""Chooses and makes the sandboxes of one turn's commands, by the rules and the user's answers.

The policy makes the decisions, and the package `sandbox` makes the sandboxes. This module connects
them.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import trio
from msgspec import Struct, structs

from tiller_daemon.files.paths import printable
from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import BUILT_IN, decide, evaluate
from tiller_daemon.policy.shell.levels import (
    UNSANDBOXED,
    git_use,
    may_run_outside,
    needs_to_leave,
)
from tiller_daemon.policy.shell.network import judge_network
from tiller_daemon.sandbox.base import TEMPORARY, CommandSandbox, GitUse, named_paths
from tiller_daemon.sandbox.git_repository import find_git
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.sandboxes import TEMPORARY_NAME, Sandboxes
from tiller_daemon.sandbox.scan import Scanner, ScanResult, WorkspaceTooLarge
from tiller_daemon.session.calls.command_paths import (
    command_lines,
    network_requirement,
    unsandboxed_requirement,
)
from tiller_daemon.session.calls.write_limits import NO_SANDBOX, SANDBOX_TOO_WEAK, WriteLimits
from tiller_daemon.tools.base import Requirement, ToolFailure, ToolResult
from tiller_daemon.turn.context import TurnContext
from tiller_protocol.settings import Action, Rule

OUTSIDE = "external_directory"
"""The permission to look at a place outside the workspace."""

GIT_USES: Sequence[GitUse] = ("work_tree", "data", "")
"""From the most to the least."""

REVEALING = ("read", OUTSIDE)
"""Permissions that let a command see files that its sandbox hides."""


class TurnSandboxes(Struct, frozen=True):
    """The sandboxes of one turn."""

    sandboxes: Sandboxes
    """Computes the limits on a command."""
    context: TurnContext
    """The turn's frozen settings."""
    rules: Callable[[], tuple[Rule, ...]]
    """Returns the current rules."""
    spill_directory: Path
    """The directory of the session's output and its `/tmp`."""
    limits: WriteLimits
    """The limits on where the turn may write."""

    @property
    def loosest_unasked(self) -> SandboxLevel | None:
        """The loosest level for calls that run unasked; None if no sandbox works here."""
        sandbox = self.context.permissions.sandbox
        return self.sandboxes.loosest_unasked(sandbox, Path(self.context.workspace))

    @property
    def problem_for_builds(self) -> str:
        """Why builds need approval in this workspace only, as a clause for the user; else empty."""
        sandbox = self.context.permissions.sandbox
        if sandbox.mode == "read_only":
            return ""
        return self.sandboxes.problem_for_builds(Path(self.context.workspace))

    @property
    def shown(self) -> Path | None:
        """The directory that every command sees: the workspace, or the repository around it."""
        if self.sandboxes.search_result().sandbox is None:
            return None
        return self.sandboxes.shown_top(self._place)

    @property
    def temporary(self) -> Path | None:
        """The directory that every command sees as `/tmp`; None if that is the machine's own."""
        sandbox = self.sandboxes.search_result().sandbox
        is_own = sandbox is not None and sandbox.has_own_temporary
        return self.spill_directory / TEMPORARY_NAME if is_own else None

    def is_guarded(self, path: Path) -> bool:
        """Whether a path is the daemon's own, or another program executes the file there."""
        workspace = Path(self.context.workspace)
        own = self.sandboxes.is_own(path)
        return own or self.sandboxes.is_executed(workspace, path)

    @property
    def asks(self) -> bool:
        """Whether commands that do more than read need approval, whatever the rules allow."""
        return self.sandboxes.must_ask(self.context.permissions.sandbox)

    def is_out_of_reach(self, command: str, result: ToolResult) -> bool:
        """Whether a command was stopped only at paths that no sandbox of the session can write."""
        named = list(named_paths(result.stopped_by))
        if not named or git_use(command):
            return False  # For git, more than the workspace may become writable.
        writable = (*TEMPORARY, *self.context.permissions.sandbox.writable)
        places = (self._place, *map(Path, writable))
        return not any(path.is_relative_to(place) for path in named for place in places)

    def session_allows_more(self, command: str, result: ToolResult) -> bool:
        """Whether the session's sandbox would allow the actions for which a build was stopped."""
        if self.context.permissions.sandbox.network:
            return True
        stopped_by = result.stopped_by
        # git's own files stay read-only there, too.
        is_kept = "/.git" in stopped_by or self.is_out_of_reach(command, result)
        return self.limits.scope is None and not is_kept and "Read-only file" in stopped_by

    def level_of(self, requirements: Sequence[Requirement]) -> SandboxLevel:
        """Return the level of a permitted call.

        Commands that rules let leave the sandbox run outside. Otherwise, a call that the rules
        allow runs in the verdict's level, and a call that the user approved runs in the
        session's sandbox.
        """
        lines = command_lines(requirements)
        if not self.asks and any(r.permission == UNSANDBOXED for r in requirements):
            return SandboxLevel.OUTSIDE  # The user was asked about nothing else.
        if not lines or all(may_run_outside(line, self.rules()) for line in lines):
            # The mode `read_only` is a promise that no rule can override.
            mode = self.context.permissions.sandbox.mode
            return SandboxLevel.SESSION if mode == "read_only" else SandboxLevel.OUTSIDE
        by_rules = [r for r in requirements if r.kind == "command" and r.permission != UNSANDBOXED]
        verdict = decide(by_rules, self.rules(), "ask")
        return verdict.level if verdict.action == "allow" else SandboxLevel.SESSION

    def leaving_requirements(self, requirements: Sequence[Requirement]) -> Iterator[Requirement]:
        """Yield the permission to run outside, for lines that could only fail in a sandbox.

        So the user is asked once, and the line runs once.
        """
        permissions = self.context.permissions
        if permissions.approve != "ask" or permissions.read_only or self.asks:
            return
        if permissions.sandbox.mode != "workspace_write" or self.limits.are_set:
            return
        rules = self.rules()
        for line in filter(needs_to_leave, command_lines(requirements)):
            requirement = unsandboxed_requirement(line, "Run OUTSIDE the sandbox")
            if decide((requirement,), rules, "ask").action == "ask" or may_run_outside(line, rules):
                yield requirement

    def network_requirements(self, requirements: Sequence[Requirement]) -> Iterator[Requirement]:
        """Yield the permission to use the network, for lines that rules or the user may allow it.

        If the user is not asked (`approve`), only rules allow it; otherwise the line runs without a
        network.
        """
        permissions = self.context.permissions
        sandbox, rules = permissions.sandbox, self.rules()
        if sandbox.mode == "read_only" or permissions.read_only:
            return
        if self.sandboxes.search_result().sandbox is None:
            return
        closed = sandbox.mode == "workspace_write" and not sandbox.network
        asks = permissions.approve == "ask" and closed
        for line in command_lines(requirements):
            action = judge_network(line, rules).action
            opens = action == "allow" or (action == "ask" and asks)
            # The network is open outside, but a call with write limits does not run there.
            if opens and (self.limits.are_set or not may_run_outside(line, rules)):
                yield network_requirement(line)

    async def make(
        self,
        level: SandboxLevel,
        requirements: Sequence[Requirement],
        *,
        network: bool,
        background: bool = False,
        seen: Sequence[Path] = (),
    ) -> CommandSandbox | None:
        """Make the sandbox of a call; None if the call runs outside it. Raises `ToolFailure`.

        It has a `network` if that was permitted, and shows the paths `seen`. With `background`, it
        outlives the call, for a background command.
        """
        if self.limits.are_set:
            level = min(level, SandboxLevel.SESSION)
            if why := self.not_enforced(level):
                raise ToolFailure(why)
        policy = self.context.permissions.sandbox
        if not self.sandboxes.holds(level, policy, limited=self.limits.are_set):
            return None
        with changes_reported():
            workspace = Path(self.context.workspace)
            place = self._place
            scanner = self._scanner()
            findings = await trio.to_thread.run_sync(_scanned, scanner)
            if place in findings.closed:
                raise ToolFailure(
                    f"The workspace {place} can't be listed, so no command can run there"
                )
            lines = () if background else command_lines(requirements)
            uses = {git_use(line) for line in lines}
            return self.sandboxes.make(
                level,
                policy,
                workspace,
                self.spill_directory,
                found=findings,
                masked=tuple(self._masked(findings, level)),
                revealed=(*self._revealed(requirements, findings), *seen),
                git_use=next(use for use in GIT_USES if use in {"", *uses}),
                scope=self.limits.scope and self.limits.scope.roots,
                taken=self.limits.taken,
                network=network,
                find_nested=lambda: scanner.scan_again(findings),
            )

    async def make_for_reader(self) -> CommandSandbox | None:
        """Make the sandbox of a program that reads the workspace for turns of several sessions.

        None if there is no sandbox, or if the workspace is too large to be searched for what the
        program may not see.
        """
        with suppress(ToolFailure):
            sandbox = await self.make(SandboxLevel.READ_ONLY, (), network=False)
            if sandbox:
                may = sandbox.profile
                shown = tuple(path for path in may.shown if path != self.spill_directory.resolve())
                may = structs.replace(may, shown=shown, temporary=None, network=False)
                return sandbox._replace(profile=may)
        return None

    def not_enforced(self, level: SandboxLevel) -> str:
        """Return why this level can't hold a command to the turn's limits; empty if it can."""
        if not self.limits.are_set:
            return ""
        sandbox = self.sandboxes.search_result().sandbox
        if sandbox is None:
            return NO_SANDBOX.format(why=self.limits.reason)
        # Not every sandbox that can let a command into one place can also keep it out of another.
        if (
            self.limits.taken
            and level > SandboxLevel.READ_ONLY
            and sandbox.loosest_unasked < SandboxLevel.BUILD
        ):
            return SANDBOX_TOO_WEAK.format(why=self.limits.reason, name=sandbox.name)
        return ""

    def _revealed(
        self, requirements: Sequence[Requirement], findings: ScanResult
    ) -> Iterator[Path]:
        """Yield the paths that the call may see although sandboxes hide them.

        These are the paths that it names with the user's permission, and the places outside the
        workspace that rules allow for every call.
        """
        workspace = self._place
        for requirement in requirements:
            for subject in requirement.subjects if requirement.permission in REVEALING else ():
                path = Path(os.path.normpath(workspace / subject))
                if requirement.permission != "read" or path in findings.protected:
                    yield path
        rules = self.rules()
        for rule in rules:
            if rule.permission == OUTSIDE and rule.action == "allow":
                text = rule.pattern.removesuffix("/*")
                if text.startswith("/") and evaluate(OUTSIDE, text, rules) == "allow":
                    yield Path(text)

    def _masked(self, findings: ScanResult, level: SandboxLevel) -> Iterator[Path]:
        """Yield the protected files to hide; looser sandboxes hide only files that rules deny."""
        yield from findings.closed
        rules = (*BUILT_IN, *self.rules())
        place = self._place
        top = self.sandboxes.shown_top(place)
        for path in findings.protected:
            if level < SandboxLevel.SESSION or "deny" in _actions(place, top, path, rules):
                yield path

    @property
    def _place(self) -> Path:
        return Path(self.context.workspace).resolve()

    def _scanner(self) -> Scanner:
        place = self._place
        top = self.sandboxes.shown_top(place)
        rules = tuple(r for r in (*BUILT_IN, *self.rules()) if globs.matches(r.permission, "read"))
        return self.sandboxes.scanner(
            top,
            (place, rules),
            lambda name: _actions(place, top, top / name, rules) != {"allow"},
        )


@contextmanager
def changes_reported() -> Generator[None]:
    """Turn an `OSError` into a `ToolFailure`: a path changed while the daemon resolved it."""
    try:
        yield
    except OSError as error:
        shown = printable(str(error.filename or "A path of the workspace"))
        raise ToolFailure(f"{shown} changed while it was being resolved. Try again.") from error


def _actions(workspace: Path, top: Path, path: Path, rules: Sequence[Rule]) -> set[Action]:
    """Return what rules say about reading a file, by each name that the file has for the user.

    A file beside the workspace, in its repository, also has the name that it has in a session at
    the `top` of the repository.
    """
    names = [os.path.relpath(path, workspace)]
    if names[0].startswith("../"):
        names += [str(path), path.name, os.path.relpath(path, top)]
    return {evaluate("read", name, rules) for name in names}


def _scanned(scanner: Scanner) -> ScanResult:
    """Scan a workspace; ask git about the repositories there already, as this takes time."""
    try:
        found = scanner.scan()
        for repository in found.repositories:
            find_git(repository.parent)
        return found
    except WorkspaceTooLarge as problem:
        raise ToolFailure(
            f"{problem}, too many to search for protected files. "
            "Start the session in a subdirectory."
        ) from None
