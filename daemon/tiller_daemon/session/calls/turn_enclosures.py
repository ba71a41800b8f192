"""Gives the commands of one turn their enclosures: by the rules, and by what people said.

The verdict is the policy's, the enclosure is made in `sandbox`. Here one becomes the other.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import trio

from tiller_daemon.files.paths import printable
from tiller_daemon.policy import globs
from tiller_daemon.policy.rules import BUILT_IN, decide, evaluate
from tiller_daemon.policy.shell.enclosures import UNSANDBOXED, may_leave
from tiller_daemon.sandbox.confinement import Confined, Confiner
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.sandbox.scan import Findings, TooLarge, disable
from tiller_daemon.tools.base import Requirement, ToolFailure, ToolResult
from tiller_daemon.turn.context import TurnContext
from tiller_protocol.settings import Rule

REVEALING = ("read", "external_directory")
"""Permissions that let a command see what enclosures hide."""

NEW_REPOSITORY = (
    "[It made a git repository in the workspace: {names}. Git would execute what its configuration "
    "names, so its mark is called {disabled} now. Tell the user if it is needed.]"
)


class CallEnclosure(NamedTuple):
    """The enclosure of a call, None for one that runs outside; and what was there before."""

    confined: Confined | None
    repositories: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TurnEnclosures:
    """The enclosures of one turn. `rules` returns the rules as they are now."""

    confiner: Confiner
    context: TurnContext
    rules: Callable[[], tuple[Rule, ...]]
    spill_directory: Path

    @property
    def most_unasked(self) -> Enclosure | None:
        """The loosest enclosure for what nobody was asked about; None if none works here."""
        sandbox = self.context.permissions.sandbox
        return self.confiner.most_unasked(sandbox, Path(self.context.workspace))

    @property
    def asks(self) -> bool:
        """Whether commands that do more than read are asked about, whatever rules allow."""
        return self.confiner.asks(self.context.permissions.sandbox)

    @property
    def is_read_only_agent(self) -> bool:
        """Whether the agent of the turn only reads."""
        return self.context.permissions.read_only

    def session_allows_more(self, result: ToolResult) -> bool:
        """Whether the session's enclosure has what a build was stopped for."""
        return self.context.permissions.sandbox.network or ".git" in result.stopped_by

    def enclosure_of(self, requirements: Sequence[Requirement]) -> Enclosure:
        """Where a permitted call runs: where nobody had to be asked, else as the session has it."""
        commands = [requirement for requirement in requirements if requirement.kind == "command"]
        lines = [line for requirement in commands for line in requirement.subjects]
        if not lines or all(may_leave(line, self.rules()) for line in lines):
            mode = self.context.permissions.sandbox.mode
            return Enclosure.SESSION if mode == "read_only" else Enclosure.OUTSIDE
        by_rules = [
            requirement for requirement in commands if requirement.permission != UNSANDBOXED
        ]
        verdict = decide(by_rules, self.rules(), "ask")
        return verdict.enclosure if verdict.action == "allow" else Enclosure.SESSION

    async def enclose(
        self, enclosure: Enclosure, requirements: Sequence[Requirement], *, lasting: bool = False
    ) -> CallEnclosure:
        """Make the enclosure of a call. Raises `ToolFailure`."""
        if enclosure is Enclosure.OUTSIDE or self.confiner.found().sandbox is None:
            return CallEnclosure(None)
        workspace = Path(self.context.workspace)
        findings = await trio.to_thread.run_sync(self._findings, workspace)
        confined = self.confiner.confined(
            enclosure,
            self.context.permissions.sandbox,
            workspace,
            self.spill_directory,
            masked=tuple(self._masked(findings, enclosure)),
            revealed=tuple(self._revealed(requirements, findings)),
            read_only=findings.repositories if enclosure is Enclosure.BUILD else (),
            lasting=lasting,
        )
        return CallEnclosure(confined, findings.repositories)

    def _revealed(self, requirements: Sequence[Requirement], findings: Findings) -> Iterator[Path]:
        """What the call was allowed to see although its enclosure hides it."""
        workspace = Path(self.context.workspace).resolve()
        for requirement in requirements:
            for subject in requirement.subjects if requirement.permission in REVEALING else ():
                path = workspace / subject
                if requirement.permission != "read" or path in findings.protected:
                    yield path

    def _masked(self, findings: Findings, enclosure: Enclosure) -> Iterator[Path]:
        """The protected files; one that a person allowed is kept from those that rules deny."""
        rules = (*BUILT_IN, *self.rules())
        place = Path(self.context.workspace).resolve()
        for path in findings.protected:
            name = str(path.relative_to(place))
            if enclosure < Enclosure.SESSION or evaluate("read", name, rules) == "deny":
                yield path

    async def disable_new_repositories(self, enclosed: CallEnclosure) -> str:
        """What a build made and git would execute, disabled; as text for the model."""
        confined = enclosed.confined
        if confined is None or confined.enclosure is not Enclosure.BUILD:
            return ""
        return await trio.to_thread.run_sync(self._disable_new, set(enclosed.repositories))

    def _disable_new(self, before: set[Path]) -> str:
        workspace = Path(self.context.workspace)
        place = workspace.resolve()
        new = [path for path in self._findings(workspace).repositories if path not in before]
        disabled: list[str] = []
        for path in new:
            with contextlib.suppress(FileNotFoundError):
                disabled.append(disable(place, path))
        if not disabled:
            return ""
        names = ", ".join(printable(path.relative_to(place)) for path in new)
        return NEW_REPOSITORY.format(names=names, disabled=", ".join(disabled))

    def _findings(self, workspace: Path) -> Findings:
        rules = tuple(r for r in (*BUILT_IN, *self.rules()) if globs.matches(r.permission, "read"))
        scanner = self.confiner.scanner(
            workspace.resolve(), rules, lambda path: evaluate("read", path, rules) != "allow"
        )
        try:
            return scanner.look()
        except TooLarge as problem:
            raise ToolFailure(
                f"{problem}, too many to protect files in it. Start the session in a directory "
                "below it."
            ) from None
