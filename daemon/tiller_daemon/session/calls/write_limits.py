"""Limits where the calls of one turn may write. No rule, answer or `approve` lifts these limits.

A sub-agent may change only files that its task declares, and nobody else may change files that a
background sub-agent has claimed. `turn_sandboxes` holds commands to the same limits.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tiller_daemon.session.background.claims import Claims
from tiller_daemon.tools.base import Requirement, Tool
from tiller_daemon.tools.write_scope import WriteScope

NOT_DECLARED = (
    "denied: your task lets you change only {scope}, but this call would change {path}. Leave that "
    "to whoever gave you the task: say in your report what should change there."
)
NOT_WITHIN = (
    "denied: your task lets you change only {scope}, so the `paths` of your sub-agents must be "
    "within that. This call declares {paths}."
)
CLAIMED = (
    "denied: the background sub-agent {owner} owns {path} until it ends. Wait for its report, or "
    "end it with bash_kill."
)
OFF_LIMITS = (
    "denied: this session works in a worktree and may not change {path}, which belongs to another "
    "checkout of the repository. Make the change at the same place in the worktree."
)
OF_SERVER = "denied: it is not known what the MCP tool {tool} changes. {why}"
NO_SANDBOX = "denied: without a sandbox, nothing limits where a command writes. {why}"
SANDBOX_TOO_WEAK = (
    "denied: the sandbox of this machine ({name}) can't keep commands out of a part of the "
    "workspace. {why}"
)


class WriteLimits(Struct, frozen=True):
    """The limits on where one turn may write."""

    scope: WriteScope | None
    """The scope that the turn's task declared; None for a turn without such a limit."""
    claims: Claims
    """The claims of background sub-agents."""
    off_limits: tuple[Path, ...] = ()
    """For a session in a worktree: the other checkouts of its repository. Sandboxes keep commands
    from them anyway."""

    @property
    def are_set(self) -> bool:
        """Whether any limit applies now."""
        return self.scope is not None or bool(self.claims.current)

    @property
    def taken(self) -> tuple[Path, ...]:
        """The places that other sub-agents have claimed; a scope never overlaps with them."""
        if self.scope is not None:
            return ()
        return tuple(root for claim in self.claims.current for root in claim.scope.roots)

    @property
    def reason(self) -> str:
        """Sentences that say why there is a limit, and what the model can do instead of a call."""
        if self.scope is not None:
            return (
                f"Your task lets you change only {self.scope}. Use the tools for files instead, or "
                "say in your report what should be done."
            )
        owned = [
            f"The background sub-agent {claim.owner} owns {claim.scope} until it ends."
            for claim in self.claims.current
        ]
        reports = "its report" if len(owned) == 1 else "their reports"
        return " ".join([*owned, f"Use the tools for files instead, or wait for {reports}."])

    def refusal(self, tool: Tool, requirements: Sequence[Requirement]) -> str:
        """Return why a call that writes may not run, for the model; empty if the call may run."""
        for requirement in requirements if self.off_limits else ():
            if requirement.permission == "write" and requirement.kind == "path":
                for path in requirement.subjects:
                    if any(map(Path(path).is_relative_to, self.off_limits)):
                        return OFF_LIMITS.format(path=path)
        if not self.are_set:
            return ""
        if tool.server:
            return OF_SERVER.format(tool=tool.name, why=self.reason)
        for requirement in requirements:
            if requirement.scope and (why := self._refusal_of_task(requirement.scope)):
                return why
            if requirement.permission == "write" and requirement.kind == "path":
                for path in requirement.subjects:
                    if why := self._refusal_of_path(path):
                        return why
        return ""

    def _refusal_of_task(self, declared: WriteScope) -> str:
        if self.scope is not None and not self.scope.covers_all(declared):
            return NOT_WITHIN.format(scope=self.scope, paths=declared)
        for claim in self.claims.current:
            if claim.scope.overlaps(declared):
                return CLAIMED.format(path=declared, owner=claim.owner)
        return ""

    def _refusal_of_path(self, path: str) -> str:
        if self.scope is not None and not self.scope.covers(path):
            return NOT_DECLARED.format(scope=self.scope, path=path)
        for claim in self.claims.current:
            if claim.scope.overlaps(WriteScope((path,), ())):
                return CLAIMED.format(path=path, owner=claim.owner)
        return ""
