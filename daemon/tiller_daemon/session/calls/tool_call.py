"""One tool call, from its prepared arguments through permission and execution to its result."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio
from msgspec import Struct, structs

from tiller_daemon.policy.rules import Verdict
from tiller_daemon.policy.shell.enclosures import UNSANDBOXED, seems_to_read
from tiller_daemon.sandbox.confinement import CommandSandbox
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.session.calls.arguments import BadArguments, decode_arguments
from tiller_daemon.session.calls.command_paths import (
    further_requirements,
    requirements_without_sandbox,
)
from tiller_daemon.session.calls.environments import Environments
from tiller_daemon.session.calls.escalation import RAN_AGAIN, RAN_OUTSIDE, Escalation
from tiller_daemon.session.calls.permission import Permission, one_line
from tiller_daemon.session.calls.turn_enclosures import CallEnclosure, TurnEnclosures
from tiller_daemon.session.hooks import TurnHooks
from tiller_daemon.tools.base import (
    FileCheck,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolResult,
)
from tiller_daemon.tools.nested_instructions import new_instructions
from tiller_daemon.tools.path_access import to_be_written
from tiller_daemon.tools.suggestions import did_you_mean
from tiller_daemon.tools.task import RESUMED
from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.ports import Output, Refusal
from tiller_protocol.items import Allowed, Effect, ToolCall

log = structlog.get_logger()

READ_ONLY = (
    "denied: the agent {agent} is read-only. It can run commands that only read. Leave out what "
    "writes, or end with a description of what should be changed."
)

REWRITTEN = "A hook of the user had changed the arguments of this call to {arguments}"


class TurnTools(Struct, frozen=True):
    """What the calls of one turn share."""

    context: TurnContext
    """The turn's frozen settings."""
    permission: Permission
    """Decides about calls."""
    enclosures: TurnEnclosures
    """Chooses where commands run."""
    escalation: Escalation
    """Offers a looser enclosure for commands that were stopped."""
    environments: Environments
    """Makes what tools run with."""
    hooks: TurnHooks
    """Run before and after calls."""

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
        return arguments, requirements

    def requirements_of(self, tool: Tool, arguments: Any) -> tuple[Requirement, ...]:  # noqa: ANN401
        """Return the permissions that a call needs, as files are now; raises `ToolFailure`."""
        requirements = tool.requirements(arguments, self.workspace)
        is_own = self.enclosures.confiner.is_own
        further = further_requirements(requirements, self.workspace, is_own)
        requirements = (*requirements, *further)
        if not _commands(requirements):
            return requirements
        most = self.enclosures.most_unasked
        if self.enclosures.asks:
            requirements = (
                *requirements,
                *requirements_without_sandbox(requirements, reads_are_confined=most is not None),
            )
        if most and _runs_in_background(tool, arguments):
            # New repositories are disabled when a build has ended, which is unknown for this one.
            most = Enclosure.READ_ONLY
        return tuple(
            structs.replace(r, most_unasked=most) if r.kind == "command" else r
            for r in requirements
        )

    def effect_of(self, tool: Tool, requirements: tuple[Requirement, ...]) -> Effect:
        """Return `read` for a call that only reads, else `write`."""
        match tool.effect:
            case "read" | "write":
                return tool.effect
            case "command":
                commands = _commands(requirements)
                # Without a sandbox a command that seems to read could still write.
                enforced = self.enclosures.most_unasked is not None
                reads = bool(commands) and enforced and all(map(seems_to_read, commands))
            case "agent":
                read_only = {
                    agent.name for agent in self.context.prompt.sub_agents if agent.read_only
                }
                agents = {
                    subject for requirement in requirements for subject in requirement.subjects
                }
                reads = self.context.permissions.read_only or agents <= read_only
        return "read" if reads else "write"

    def _unknown_agent(self, requirements: tuple[Requirement, ...]) -> str:
        """Return the error message if the call names an unknown agent, else an empty string."""
        agents = {agent.name for agent in self.context.prompt.sub_agents}
        named = [subject for requirement in requirements for subject in requirement.subjects]
        unknown = next((name for name in named if name not in {*agents, RESUMED}), None)
        if unknown is None:
            return ""
        near = did_you_mean(unknown, agents)
        return f"There is no agent {unknown!r}.{near} Agents: {', '.join(sorted(agents))}."


class PreparedToolCall:
    """A call whose tool exists and whose arguments are valid. See `turn.ports.PreparedCall`."""

    def __init__(
        self,
        turn: TurnTools,
        tool: Tool,
        arguments: Any,  # noqa: ANN401
        requirements: tuple[Requirement, ...],
        call: ToolCall,
    ) -> None:
        self._turn = turn
        self._tool = tool
        self._stopped: ToolResult | None = None
        self._set(call, arguments, requirements)

    def _set(self, call: ToolCall, arguments: Any, requirements: tuple[Requirement, ...]) -> None:  # noqa: ANN401
        self._arguments = arguments
        self._requirements = requirements
        self.effect: Effect = self._turn.effect_of(self._tool, requirements)
        self.call = structs.replace(
            call, name=self._tool.name, effect=self.effect, title=_title(self._tool, requirements)
        )

    def permit_early(self) -> bool:
        """Permit it if it only reads, may be repeated, and needs no approval."""
        # If the response is retried the call runs again, which a hook would notice.
        if self._turn.hooks.observes(self._tool.name):
            return False
        if self.effect != "read" or not self._tool.repeatable(self._arguments):
            return False
        allowed = self._turn.permission.unasked(self._requirements)
        self._note(*(allowed or ()))
        return allowed is not None

    @property
    def was_stopped(self) -> bool:
        """Whether it seemed only to read, tried to write, and was stopped by its enclosure."""
        return self._stopped is not None

    async def permit(self) -> Refusal | None:
        """Ask the policy, then the hooks, then the user if the policy wants that.

        What a hook makes of the arguments is judged like what the model wrote.
        """
        if self.call.by_user:
            # The sub-agent's own calls are judged like those of any other.
            return None
        refusal = await self._check()
        if refusal is None and self._verdict().action != "deny":
            answers = await self._turn.hooks.before(self.call)
            if answers.denied:
                return Refusal("denied", self._without_secrets(answers.denied))
            if answers.arguments is not None:
                refusal = self._rewrite(answers.arguments) or await self._check()
        if refusal is None:
            outcome = await self._turn.permission.obtain(
                self.call, "approval", self._requirements, self._is_as_judged
            )
            if not isinstance(outcome, Refusal):
                self._note(*outcome)
                return None
            refusal = outcome
        if rewritten := self.call.rewritten_arguments:
            output = f"{refusal.output}\n\n{REWRITTEN.format(arguments=rewritten)}"
            return structs.replace(refusal, output=output)
        return refusal

    def _rewrite(self, arguments: dict[str, Any]) -> Refusal | None:
        """Take over the arguments of a hook; a refusal if the tool does not accept them."""
        text = msgspec.json.encode(arguments).decode()
        call = structs.replace(self.call, rewritten_arguments=self._without_secrets(text))
        try:
            self._set(call, *self._turn.examine(self._tool, text))
        except (BadArguments, ToolFailure) as problem:
            self.call = call
            return Refusal("denied", f"denied: {self._without_secrets(str(problem))}")
        return None

    def _note(self, *allowed: Allowed) -> None:
        self.call = structs.replace(self.call, allowed=(*self.call.allowed, *allowed))

    def _verdict(self) -> Verdict:
        return self._turn.permission.verdict(self._requirements)

    async def _check(self) -> Refusal | None:
        """Refuse a call that the agent may not make, or that would fail if the user allowed it."""
        turn = self._turn
        if turn.context.permissions.read_only and self.effect != "read":
            return Refusal("denied", READ_ONLY.format(agent=turn.context.agent))
        if self._verdict().action == "ask" and (check := self._tool.check):
            # A call that would fail anyway is not worth a question.
            files = turn.environments.files.versions
            try:
                await trio.to_thread.run_sync(check, self._arguments, turn.workspace, files)
            except ToolFailure as failure:
                return Refusal("failed", self._without_secrets(str(failure)))
        return None

    async def run(self, output: Output) -> ToolResult:
        """Run the tool, then the hooks; every failure is a `ToolFailure`."""
        hooks = self._turn.hooks
        try:
            result = await self._run(output)
        except ToolFailure as failure:
            added = await hooks.after(self.call, str(failure), failed=True)
            raise ToolFailure(str(failure) + self._without_secrets(added)) from failure
        after = partial(hooks.after, self.call, result.output, failed=result.failed)
        added = await or_send_result(after, result, output)
        return structs.replace(result, output=result.output + self._without_secrets(added))

    async def run_again(self, begin: Callable[[], Awaitable[None]], output: Output) -> ToolResult:
        """Ask whether a stopped call may write; if so, run it in the session's enclosure."""
        first, self._stopped = self._stopped, None
        assert first is not None
        outcome = await self._turn.escalation.permit_writing(self.call, self._command, first)
        if not isinstance(outcome, Allowed):
            return outcome
        self._note(outcome)
        await begin()
        result = await self._run(output, Enclosure.SESSION)
        return structs.replace(result, output=f"{RAN_AGAIN}\n{result.output}")

    async def _run(self, output: Output, enclosure: Enclosure | None = None) -> ToolResult:
        """Run the tool; append new instructions, disabled repositories and new errors in files."""
        turn, tool = self._turn, self._tool
        enclosed = await self._enclose(enclosure)
        environment = turn.environments.make(
            self.call, self._requirements, enclosed.confined, output
        )
        try:
            check = await self._check_of_changes()
            async with turn.enclosures.no_new_repositories(enclosed) as notes:
                result = await self._run_tool(environment)
            added = new_instructions(self._requirements, environment) + "".join(notes)
            if check:
                added += await or_send_result(check.new_errors, result, environment.user.output)
            return structs.replace(
                result,
                output=self._without_secrets(result.output + added),
                diff=self._without_secrets(result.diff),
            )
        except ToolFailure as failure:
            raise ToolFailure(self._without_secrets(str(failure))) from failure
        except trio.TooSlowError:
            raise ToolFailure(
                f"{tool.name} was stopped after its time limit of {tool.timeout_s:g} s."
            ) from None
        except Exception as error:
            log.exception("tool_crashed", tool=tool.name, call_id=self.call.id)
            raise ToolFailure(
                f"{tool.name} failed because of a bug in it: {type(error).__name__}: {error}"
            ) from error

    async def _run_tool(self, environment: ToolEnvironment) -> ToolResult:
        """Run the tool; if its enclosure stopped it and the user agrees, again in a looser one.

        The user is not asked about a call that only reads, as others run beside it: see
        `run_again`.
        """
        result = await self._attempt(environment)
        confined = environment.commands.confined
        if confined is None or not result.stopped_by or not self._commands:
            return result
        if confined.enclosure is Enclosure.READ_ONLY:
            self._stopped = result
            return result
        offered = await self._turn.escalation.offer(
            self.call, self._command, confined.enclosure, result
        )
        if offered.enclosure is None:
            return offered.result
        self._note(*filter(None, (offered.allowed,)))
        if offered.enclosure is Enclosure.OUTSIDE:
            note, looser = RAN_OUTSIDE, CallEnclosure(None)
        else:
            note = RAN_AGAIN
            looser = await self._turn.enclosures.enclose(offered.enclosure, self._requirements)
        result = await self._attempt(_confined(environment, looser.confined))
        return structs.replace(result, output=f"{note}\n{result.output}")

    async def _attempt(self, environment: ToolEnvironment) -> ToolResult:
        with trio.fail_after(self._tool.timeout_s):
            return await self._tool.run(self._arguments, environment)

    async def _enclose(self, enclosure: Enclosure | None) -> CallEnclosure:
        """Make the enclosure; the user's own commands and tools without commands have none."""
        turn = self._turn
        if not self._commands or self.call.by_user:
            return CallEnclosure(None)
        if enclosure is None:
            enclosure = turn.enclosures.enclosure_of(self._requirements)
            # Rules may allow a command more, but not for a read-only agent.
            if turn.context.permissions.read_only:
                enclosure = Enclosure.READ_ONLY
        background = _runs_in_background(self._tool, self._arguments)
        return await turn.enclosures.enclose(enclosure, self._requirements, background=background)

    async def _check_of_changes(self) -> FileCheck | None:
        """Note the errors in files that the tool will change."""
        if self._tool.effect != "write":
            # Which files a command will change is not known beforehand.
            return None
        root, files = to_be_written(self._requirements, self._turn.workspace)
        diagnostics = self._turn.environments.files.diagnostics
        return await diagnostics.before_change(root, files) if files else None

    def _is_as_judged(self) -> bool:
        """Whether the call still needs the same permissions as when the user was asked."""
        return self._turn.requirements_of(self._tool, self._arguments) == self._requirements

    @property
    def _commands(self) -> list[str]:
        return _commands(self._requirements)

    @property
    def _command(self) -> Requirement:
        """The requirement to run the command line, for a call that has one."""
        return next(
            requirement
            for requirement in self._requirements
            if requirement.kind == "command" and requirement.permission != UNSANDBOXED
        )

    def _without_secrets(self, text: str) -> str:
        return self._turn.environments.without_secrets(text)


async def or_send_result(
    more: Callable[[], Awaitable[str]], result: ToolResult, output: Output
) -> str:
    """Return `more`; if that is interrupted, send the result so far as live output.

    The tool has done its work, so the model must learn of it although the call counts as aborted.
    """
    try:
        return await more()
    except BaseException:
        await output(result.output)
        raise


def _commands(requirements: tuple[Requirement, ...]) -> list[str]:
    return [line for r in requirements if r.kind == "command" for line in r.subjects]


def _runs_in_background(tool: Tool, arguments: Any) -> bool:  # noqa: ANN401
    """Whether a call leaves a command running in the background."""
    return tool.effect == "command" and not tool.repeatable(arguments)


def _title(tool: Tool, requirements: tuple[Requirement, ...]) -> str:
    if tool.effect == "agent":
        return one_line(requirements[0].title)
    titles = (" ".join(requirement.subjects) or requirement.title for requirement in requirements)
    return one_line(next(titles, ""))


def _confined(environment: ToolEnvironment, confined: CommandSandbox | None) -> ToolEnvironment:
    """Return the environment with its command in another sandbox, or in none."""
    commands = structs.replace(environment.commands, confined=confined)
    return structs.replace(environment, commands=commands)
