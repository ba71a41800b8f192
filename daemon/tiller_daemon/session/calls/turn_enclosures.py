"""Chooses the enclosures of one turn's commands, by the rules and the user's answers.

The policy makes the decisions, and the package `sandbox` the enclosures. This module connects them.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import trio
from msgspec import Struct

from tiller_daemon.files.paths import printable, text_of
from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import BUILT_IN, decide, evaluate
from tiller_daemon.policy.shell.enclosures import UNSANDBOXED, may_run_outside
from tiller_daemon.policy.shell.network import judge_network
from tiller_daemon.sandbox.confinement import CommandSandbox
from tiller_daemon.sandbox.confiner import Confiner
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.scan import (
    Scanner,
    ScanResult,
    WorkspaceTooLarge,
    disable,
)
from tiller_daemon.session.calls.command_paths import command_lines, network_requirement
from tiller_daemon.session.calls.write_limits import NO_SANDBOX, SANDBOX_TOO_WEAK, WriteLimits
from tiller_daemon.tools.base import Requirement, ToolFailure, ToolResult
from tiller_daemon.turn.context import TurnContext
from tiller_protocol.settings import Rule

REVEALING = ("read", "external_directory")
"""Permissions that let a command see files that its enclosure hides."""

NEW_REPOSITORY: Final = (
    "[The command created a git repository in the workspace, or a part of one: {names}. Git would "
    "run any programs in its configuration, so it was renamed to {disabled}. If it is needed, "
    "tell the user.]"
)


NEW_EXECUTED: Final = (
    "[The command created something that editors, shells or agents would execute: {names}. It was "
    "renamed to {disabled}. If it is needed, tell the user.]"
)


NAMED_MAX: Final = 20
"""How many files a note for the model names; a build may make any number of files."""


class CallEnclosure(NamedTuple):
    """The enclosure of a call."""

    confined: CommandSandbox | None
    """The sandbox; None for a call that runs outside it."""
    before: ScanResult = ScanResult()
    """The result of a scan of the workspace before the call."""


class TurnEnclosures(Struct, frozen=True):
    """The enclosures of one turn."""

    confiner: Confiner
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
    def loosest_unasked(self) -> Enclosure | None:
        """The loosest enclosure for calls that run unasked; None if no sandbox works here."""
        sandbox = self.context.permissions.sandbox
        return self.confiner.loosest_unasked(sandbox, Path(self.context.workspace))

    @property
    def problem_for_builds(self) -> str:
        """Why builds need approval in this workspace only, as a clause for the user; else empty."""
        sandbox = self.context.permissions.sandbox
        if sandbox.mode == "read_only":
            return ""
        return self.confiner.problem_for_builds(sandbox, Path(self.context.workspace))

    def is_guarded(self, path: Path) -> bool:
        """Whether a path is the daemon's own, or another program executes the file there."""
        sandbox, workspace = self.context.permissions.sandbox, Path(self.context.workspace)
        own = self.confiner.is_own(path)
        return own or self.confiner.is_executed(sandbox, workspace, path)

    @property
    def asks(self) -> bool:
        """Whether commands that do more than read need approval, whatever the rules allow."""
        return self.confiner.must_ask(self.context.permissions.sandbox)

    def session_allows_more(self, result: ToolResult) -> bool:
        """Whether the session's enclosure would allow the actions for which a build was stopped."""
        if self.context.permissions.sandbox.network:
            return True
        return ".git" in result.stopped_by and self.limits.scope is None

    def enclosure_of(self, requirements: Sequence[Requirement]) -> Enclosure:
        """Return the enclosure of a permitted call.

        Commands that rules let leave the sandbox run outside. Otherwise, a call that the rules
        allow runs in the verdict's enclosure, and a call that the user approved runs in the
        session's enclosure.
        """
        lines = command_lines(requirements)
        if not lines or all(may_run_outside(line, self.rules()) for line in lines):
            # The mode `read_only` is a promise that no rule can override.
            mode = self.context.permissions.sandbox.mode
            return Enclosure.SESSION if mode == "read_only" else Enclosure.OUTSIDE
        by_rules = [r for r in requirements if r.kind == "command" and r.permission != UNSANDBOXED]
        verdict = decide(by_rules, self.rules(), "ask")
        return verdict.enclosure if verdict.action == "allow" else Enclosure.SESSION

    def network_requirements(self, requirements: Sequence[Requirement]) -> Iterator[Requirement]:
        """Yield the permission to use the network, for lines that rules or the user may allow it.

        If the user is not asked (`approve`), only rules allow it; otherwise the line runs without a
        network.
        """
        permissions = self.context.permissions
        sandbox, rules = permissions.sandbox, self.rules()
        if sandbox.mode == "read_only" or permissions.read_only:
            return
        if self.confiner.search_result().sandbox is None:
            return
        closed = sandbox.mode == "workspace_write" and not sandbox.network
        asks = permissions.approve == "ask" and closed
        for line in command_lines(requirements):
            action = judge_network(line, rules).action
            opens = action == "allow" or (action == "ask" and asks)
            # The network is open outside, but a call with write limits does not run there.
            if opens and (self.limits.are_set or not may_run_outside(line, rules)):
                yield network_requirement(line)

    async def enclose(
        self,
        enclosure: Enclosure,
        requirements: Sequence[Requirement],
        *,
        network: bool,
        background: bool = False,
    ) -> CallEnclosure:
        """Make the enclosure of a call; raises `ToolFailure`.

        It has a `network` if that was permitted. With `background`, the enclosure outlives the
        call, for a background command.
        """
        if self.limits.are_set:
            enclosure = min(enclosure, Enclosure.SESSION)
            if why := self.not_enforced(enclosure):
                raise ToolFailure(why)
        policy = self.context.permissions.sandbox
        if not self.confiner.holds(enclosure, policy, limited=self.limits.are_set):
            return CallEnclosure(None)
        workspace = Path(self.context.workspace)
        findings = self._scanner(workspace).scan_if_unchanged()
        if findings is None:
            # The scan reads the whole workspace, so it must not block the event loop.
            findings = await trio.to_thread.run_sync(self._findings, workspace)
        is_build = enclosure is Enclosure.BUILD
        confined = self.confiner.confined(
            enclosure,
            policy,
            workspace,
            self.spill_directory,
            masked=tuple(self._masked(findings, enclosure)),
            revealed=tuple(self._revealed(requirements, findings)),
            # A build could plant a hook that git later runs outside, or a task for an editor.
            read_only=_executed(findings) if is_build else (),
            nested=_nested(findings) if is_build else (),
            background=background,
            scope=self.limits.scope and self.limits.scope.roots,
            taken=self.limits.taken,
            network=network,
        )
        return CallEnclosure(confined, findings)

    def not_enforced(self, enclosure: Enclosure) -> str:
        """Return why this enclosure can't hold a command to the turn's limits; empty if it can."""
        if not self.limits.are_set:
            return ""
        sandbox = self.confiner.search_result().sandbox
        if sandbox is None:
            return NO_SANDBOX.format(why=self.limits.reason)
        # Not every sandbox that can let a command into one place can also keep it out of another.
        if (
            self.limits.taken
            and enclosure > Enclosure.READ_ONLY
            and sandbox.loosest_unasked < Enclosure.BUILD
        ):
            return SANDBOX_TOO_WEAK.format(why=self.limits.reason, name=sandbox.name)
        return ""

    def _revealed(
        self, requirements: Sequence[Requirement], findings: ScanResult
    ) -> Iterator[Path]:
        """Yield the paths that the call may see although enclosures hide them."""
        workspace = Path(self.context.workspace).resolve()
        for requirement in requirements:
            for subject in requirement.subjects if requirement.permission in REVEALING else ():
                path = workspace / subject
                if requirement.permission != "read" or path in findings.protected:
                    yield path

    def _masked(self, findings: ScanResult, enclosure: Enclosure) -> Iterator[Path]:
        """Yield the protected files to hide; looser enclosures hide only files that rules deny."""
        rules = (*BUILT_IN, *self.rules())
        place = Path(self.context.workspace).resolve()
        for path in findings.protected:
            name = str(path.relative_to(place))
            if enclosure < Enclosure.SESSION or evaluate("read", name, rules) == "deny":
                yield path

    @asynccontextmanager
    async def nothing_new_to_execute(self, enclosed: CallEnclosure) -> AsyncGenerator[list[str]]:
        """Run a build inside; afterwards, disable new files that other programs would execute.

        They are disabled even if the build is interrupted. The yielded list gets notes for the
        model.
        """
        notes: list[str] = []
        try:
            yield notes
        finally:
            if enclosed.confined and enclosed.confined.enclosure is Enclosure.BUILD:
                # An interrupt must not leave behind what the build wanted to be executed.
                with trio.CancelScope(shield=True):
                    notes += await trio.to_thread.run_sync(self._disable_new, enclosed.before)

    def _disable_new(self, before: ScanResult) -> list[str]:
        """Disable new files that other programs would execute; return notes for the model."""
        workspace = Path(self.context.workspace)
        place, found = workspace.resolve(), self._findings(workspace)
        old = {*_executed(before)}
        notes: list[str] = []
        for text, paths in (
            (NEW_REPOSITORY, found.repositories),
            (NEW_EXECUTED, found.executed),
        ):
            new = [path for path in paths if path not in old and self._is_its_own(place, path)]
            # Without its `HEAD`, a new bare repository is none.
            bare = {path.parent for path in new if path.name == "HEAD"}
            marks = (".git", "head")
            new = [one for one in new if one.name.casefold() in marks or one.parent not in bare]
            names, disabled = _disabled(place, new)
            if disabled:
                notes.append(text.format(names=_listed(names), disabled=_listed(disabled)))
        return notes

    def _is_its_own(self, workspace: Path, path: Path) -> bool:
        """Whether this turn could have made the file at a path, and no sub-agent beside it."""
        if self.limits.scope is not None:
            return self.limits.scope.covers(text_of(workspace, path))
        return not any(path.is_relative_to(taken) for taken in self.limits.taken)

    def _scanner(self, workspace: Path) -> Scanner:
        rules = tuple(r for r in (*BUILT_IN, *self.rules()) if globs.matches(r.permission, "read"))
        return self.confiner.scanner(
            workspace.resolve(), rules, lambda path: evaluate("read", path, rules) != "allow"
        )

    def _findings(self, workspace: Path) -> ScanResult:
        try:
            return self._scanner(workspace).scan()
        except WorkspaceTooLarge as problem:
            raise ToolFailure(
                f"{problem}, too many to search for protected files. "
                "Start the session in a subdirectory."
            ) from None


def _executed(findings: ScanResult) -> tuple[Path, ...]:
    return (*findings.repositories, *findings.executed)


def _nested(findings: ScanResult) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(mark.parent for mark in findings.repositories))


def _disabled(place: Path, paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Disable `paths` by renaming them; return their old names and their new names."""
    names: list[str] = []
    disabled: list[str] = []
    # The deepest paths first, before their directories are renamed.
    for path in sorted(paths, key=lambda path: -len(path.parts)):
        # The command's last processes may have removed the file meanwhile.
        with contextlib.suppress(FileNotFoundError):
            disabled.append(printable(Path(disable(place, path))))
            names.append(printable(path.relative_to(place)))
    return names, disabled


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join((*names[:NAMED_MAX], *((f"{more} more",) if more > 0 else ())))
