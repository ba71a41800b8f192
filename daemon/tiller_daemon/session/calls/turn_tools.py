"""The settings and services that a turn's calls share, and the checks of a call's permissions."""

from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from tiller_daemon.policy.shell.levels import seems_to_read
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.session.calls.arguments import BadArguments, decode_arguments
from tiller_daemon.session.calls.command_paths import (
    command_lines,
    further_requirements,
    requirements_without_sandbox,
)
from tiller_daemon.session.calls.environments import Environments
from tiller_daemon.session.calls.escalation import Escalation
from tiller_daemon.session.calls.permission import Permission
from tiller_daemon.session.calls.turn_sandboxes import TurnSandboxes, changes_reported
from tiller_daemon.session.hooks import TurnHooks
from tiller_daemon.tools.base import Requirement, Tool, ToolFailure
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.tools.task import PROTECTED, RESUMED
from tiller_daemon.turn.context import TurnContext
from tiller_protocol.items import Effect


class TurnTools(Struct, frozen=True):
    """The settings and services that all calls of one turn use."""

    context: TurnContext
    """The turn's frozen settings."""
    permission: Permission
    """Decides whether calls may run."""
    sandboxes: TurnSandboxes
    """Chooses the sandboxes for commands."""
    escalation: Escalation
    """Offers a looser sandbox for commands that were stopped."""
    environments: Environments
    """Makes the environments for tools."""
    hooks: TurnHooks
    """Runs hooks before and after calls."""

    @property
    def workspace(self) -> Path:
        """The turn's workspace."""
        return Path(self.context.workspace)

    def examine(self, tool: Tool, text: str) -> tuple[Any, tuple[Requirement, ...]]:
        """Return the decoded arguments of a call and the permissions that it needs.

        Raises `BadArguments` or `ToolFailure`.
        """
        arguments = decode_arguments(tool, text)
        requirements = self.requirements_of(tool, arguments)
        if tool.effect == "agent" and (unknown := self._unknown_agent(requirements)):
            raise BadArguments(unknown)
        self._check_scope(requirements)
        return arguments, requirements

    def requirements_of(self, tool: Tool, arguments: Any) -> tuple[Requirement, ...]:  # noqa: ANN401
        """Return the permissions that a call needs with the present files; raises `ToolFailure`."""
        with changes_reported():
            return self._requirements_of(tool, arguments)

    def _requirements_of(self, tool: Tool, arguments: Any) -> tuple[Requirement, ...]:  # noqa: ANN401
        requirements = tool.requirements(arguments, self.workspace)
        boxes = self.sandboxes
        further = further_requirements(
            requirements, self.workspace, boxes.is_guarded, boxes.shown, boxes.temporary
        )
        requirements = (*requirements, *further)
        if not command_lines(requirements):
            return requirements
        # These come first, as a question about the network also covers the command.
        first = tuple(boxes.leaving_requirements(requirements))
        first = first or tuple(boxes.network_requirements(requirements))
        requirements = (*first, *requirements)
        most = self.sandboxes.loosest_unasked
        if self.sandboxes.asks:
            requirements = (
                *requirements,
                *requirements_without_sandbox(requirements, reads_are_sandboxed=most is not None),
            )
        problem = self.sandboxes.problem_for_builds
        if most is not None and runs_in_background(tool, arguments):
            # A build's new files are disabled at its end, which no call awaits for this command.
            most, problem = SandboxLevel.READ_ONLY, ""
        return tuple(
            structs.replace(r, loosest_unasked=most, problem=problem) if r.kind == "command" else r
            for r in requirements
        )

    def effect_of(self, tool: Tool, requirements: tuple[Requirement, ...]) -> Effect:
        """Return `read` for a call that only reads, else `write`."""
        match tool.effect:
            case "read" | "write":
                return tool.effect
            case "command":
                commands = command_lines(requirements)
                # Without a sandbox, a command that seems to read could still write.
                enforced = self.sandboxes.loosest_unasked is not None
                reads = bool(commands) and enforced and all(map(seems_to_read, commands))
            case "agent":
                read_only = {
                    agent.name for agent in self.context.prompt.sub_agents if agent.read_only
                }
                agents = {
                    subject for requirement in requirements for subject in requirement.subjects
                }
                apart = any(requirement.apart for requirement in requirements)
                reads = self.context.permissions.read_only or apart or agents <= read_only
        return "read" if reads else "write"

    def beyond_limits(self, tool: Tool, requirements: tuple[Requirement, ...]) -> str:
        """Return why a call that writes exceeds the turn's limits; empty if it does not."""
        if command_lines(requirements):
            return self.sandboxes.not_enforced(SandboxLevel.SESSION)
        return self.sandboxes.limits.refusal(tool, requirements)

    def _check_scope(self, requirements: tuple[Requirement, ...]) -> None:
        """Raise `ToolFailure` if a task would give away the daemon's own files."""
        for scope in (requirement.scope for requirement in requirements):
            for name, root in zip(scope.names, scope.roots, strict=True) if scope else ():
                if self.sandboxes.sandboxes.is_own(root):
                    raise ToolFailure(PROTECTED.format(path=name))

    def _unknown_agent(self, requirements: tuple[Requirement, ...]) -> str:
        """Return the error message if the call names an unknown agent, else an empty string."""
        agents = {agent.name for agent in self.context.prompt.sub_agents}
        named = [subject for requirement in requirements for subject in requirement.subjects]
        unknown = next((name for name in named if name not in {*agents, RESUMED}), None)
        if unknown is None:
            return ""
        near = did_you_mean(unknown, agents)
        return f"There is no agent {unknown!r}.{near} Agents: {', '.join(sorted(agents))}."


def runs_in_background(tool: Tool, arguments: Any) -> bool:  # noqa: ANN401
    """Whether a call leaves a command running in the background."""
    return tool.effect == "command" and not tool.repeatable(arguments)
