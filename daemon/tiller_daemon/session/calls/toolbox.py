"""The tools of one turn: finds a tool, validates arguments, has it permitted, runs it.

Implements the turn's `ToolRuntime`. Nothing in a call's arguments can loosen a rule.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio
from msgspec import Struct, structs

from tiller_daemon.policy.readable import Readable
from tiller_daemon.policy.shell.enclosures import seems_to_read
from tiller_daemon.redaction.byte_stream import SECRET_PLACEHOLDER
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.session.calls.arguments import BadArguments, decode_arguments
from tiller_daemon.session.calls.command_reach import (
    further_requirements,
    requirements_without_sandbox,
)
from tiller_daemon.session.calls.enclosing import Enclosed, Enclosing
from tiller_daemon.session.calls.escalation import RAN_AGAIN, Escalation
from tiller_daemon.session.calls.offered_tools import find_tool, no_tool
from tiller_daemon.session.calls.permission import Permission, one_line
from tiller_daemon.session.calls.result import or_keep, to_be_written
from tiller_daemon.session.hooks import TurnHooks
from tiller_daemon.tools.base import (
    BackgroundCommands,
    Diagnostics,
    FileCheck,
    FileVersions,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolResult,
)
from tiller_daemon.tools.nested_instructions import tell_instructions
from tiller_daemon.tools.similar import did_you_mean
from tiller_daemon.tools.task import RESUMED
from tiller_daemon.turn.context import TurnContext
from tiller_daemon.turn.ports import Emit, PreparedCall, Refusal
from tiller_protocol.events import PlanUpdated
from tiller_protocol.items import Effect, PlanEntry, ToolCall

log = structlog.get_logger()

READ_ONLY = (
    "denied: the agent {agent} only looks and changes nothing. Commands that only read can be run; "
    "leave out what writes, or end with what should be done by somebody else."
)

Delegate = Callable[[str, str, str, str], Awaitable[ToolResult]]
"""`Delegation.run`: the call's id, the prompt, the agent, what to resume."""


class _Work(Struct, frozen=True):
    """What `run` needs of a prepared call."""

    tool: Tool
    arguments: Any
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True)
class Toolbox:
    """The tools of one turn, and what they are run with.

    `variables` makes the environment of a child process from a call id, `withdraw` takes back the
    questions of a call.
    """

    context: TurnContext
    tools: Mapping[str, Tool]
    permission: Permission
    escalation: Escalation
    enclosing: Enclosing
    emit: Emit
    files: FileVersions
    spill_directory: Path
    journals: Path
    private_addresses: bool
    proxies: Mapping[str, str]
    variables: Callable[[str], Mapping[str, str]]
    secrets: Callable[[], tuple[str, ...]]
    delegate: Delegate
    background: BackgroundCommands
    diagnostics: Diagnostics
    hooks: TurnHooks
    withdraw: Callable[[str], None]

    def prepare(self, call: ToolCall) -> PreparedCall | Refusal:
        """Find the tool and validate the arguments, or say what is wrong with the call."""
        tool = find_tool(self.tools, call.name)
        if tool is None:
            return Refusal("invalid", no_tool(call.name, self.tools))
        try:
            arguments = decode_arguments(tool, call.arguments)
            workspace = Path(self.context.workspace)
            requirements = self._requirements(tool, arguments, workspace)
        except BadArguments as bad:
            return Refusal("invalid", str(bad))
        except ToolFailure as failure:
            return Refusal("failed", str(failure))
        if unknown := self._unknown_agent(tool, requirements):
            return Refusal("invalid", unknown)
        effect = self._effect(tool, requirements)
        prepared = structs.replace(
            call, name=tool.name, effect=effect, title=_title(tool, requirements)
        )
        return PreparedCall(prepared, prepared.effect, _Work(tool, arguments, requirements))

    def may_begin_early(self, prepared: PreparedCall) -> bool:
        """Whether the call only reads, can be made again, and needs no question.

        A hook would notice that it is made again.
        """
        work: _Work = prepared.work
        if self.hooks.watch(work.tool.name):
            return False
        if prepared.effect != "read" or not work.tool.repeatable(work.arguments):
            return False
        return self.permission.verdict(work.requirements).action == "allow"

    def remember(self) -> Callable[[], None]:
        """Return what forgets all that calls learn of files from now on."""
        return self.files.remember()

    async def permit(self, prepared: PreparedCall) -> Refusal | None:
        """Ask the policy, then the user's hooks, then the user if the policy says so."""
        work: _Work = prepared.work
        if self.context.permissions.read_only and prepared.effect != "read":
            return Refusal("denied", READ_ONLY.format(agent=self.context.agent))
        workspace = Path(self.context.workspace)
        action = self.permission.verdict(work.requirements).action
        if action == "ask" and (check := work.tool.check):
            try:
                await trio.to_thread.run_sync(check, work.arguments, workspace, self.files)
            except ToolFailure as failure:
                return Refusal("failed", self._without_secrets(str(failure)))
        if action != "deny" and (denied := await self.hooks.before(prepared.call)):
            return Refusal("denied", self._without_secrets(denied))

        def is_as_judged() -> bool:
            return self._requirements(work.tool, work.arguments, workspace) == work.requirements

        return await self.permission.obtain(
            prepared.call, "approval", work.requirements, is_as_judged
        )

    async def permit_repetition(self, call: ToolCall) -> Refusal | None:
        """Ask about a call that was made again and again; headless runs without a user end."""
        tool = self.tools.get(call.name)
        if tool and tool.polls:
            return None
        title = f"{call.name} was called again and again with the same arguments. Go on?"
        need = Requirement("doom_loop", (call.name,), ("*",), title=title, detail=call.arguments)
        refusal = await self.permission.obtain(call, "doom_loop", (need,))
        return refusal and structs.replace(refusal, ends_turn=True)

    async def run(
        self, prepared: PreparedCall, output: Callable[[str], Awaitable[None]]
    ) -> ToolResult:
        """Run the call, then tell the user's hooks; every failure is a `ToolFailure`."""
        call = prepared.call
        try:
            result = await self._run(prepared, output)
        except ToolFailure as failure:
            told = await self.hooks.after(call, str(failure), failed=True)
            raise ToolFailure(str(failure) + self._without_secrets(told)) from failure
        after = partial(self.hooks.after, call, result.output, failed=result.failed)
        told = await or_keep(after, result, output)
        return structs.replace(result, output=result.output + self._without_secrets(told))

    def was_stopped(self, call: ToolCall) -> bool:
        """Whether a call that seemed to read wanted to write, and was stopped."""
        return self.escalation.was_stopped(call)

    def forget_stopped(self, call: ToolCall) -> None:
        """Leave a stopped call at that."""
        self.escalation.forget(call)

    async def run_stopped(
        self,
        prepared: PreparedCall,
        begin: Callable[[], Awaitable[None]],
        output: Callable[[str], Awaitable[None]],
    ) -> ToolResult:
        """Ask whether a stopped call may write and run it again if so; no other call runs then.

        `begin` is awaited before it runs again.
        """
        work: _Work = prepared.work
        if result := await self.escalation.permit_writing(prepared.call, work.requirements):
            return result
        await begin()
        result = await self._run(prepared, output, Enclosure.SESSION)
        return structs.replace(result, output=f"{RAN_AGAIN}\n{result.output}")

    async def _run(
        self,
        prepared: PreparedCall,
        output: Callable[[str], Awaitable[None]],
        enclosure: Enclosure | None = None,
    ) -> ToolResult:
        """Run the call within its tool's time limit, and say what it broke."""
        work: _Work = prepared.work
        enclosed = await self._enclosed(prepared, enclosure)
        environment = ToolEnvironment(
            workspace=Path(self.context.workspace),
            spill_directory=self.spill_directory,
            session_id=self.context.session_id,
            call_id=prepared.call.id,
            files=self.files,
            variables=self.variables(prepared.call.id),
            output=lambda piece: output(self._without_secrets(piece)),
            show_plan=self._show_plan,
            ask=partial(self.permission.put_question, prepared.call),
            delegate=partial(self.delegate, prepared.call.id),
            background=self.background,
            requirements=work.requirements,
            journals=self.journals,
            private_addresses=self.private_addresses,
            diagnostics=self.diagnostics,
            readable=Readable(self.permission.rules()),
            withdraw=partial(self.withdraw, prepared.call.id),
            secrets=self.secrets(),
            confined=enclosed.confined,
            proxies=self.proxies,
        )
        try:
            check = await self._check_of_changes(work)
            result = await self.escalation.run(
                prepared.call, _commands(work.requirements), environment, partial(_run_tool, work)
            )
            told = tell_instructions(work.requirements, environment)
            told += await self.enclosing.disable_new_repositories(enclosed)
            if check:
                told += await or_keep(check.new_errors, result, environment.output)
            return structs.replace(
                result,
                output=self._without_secrets(result.output + told),
                diff=self._without_secrets(result.diff),
            )
        except ToolFailure as failure:
            raise ToolFailure(self._without_secrets(str(failure))) from failure
        except trio.TooSlowError:
            raise ToolFailure(
                f"{work.tool.name} was stopped after its time limit of {work.tool.timeout_s:g} s."
            ) from None
        except Exception as error:
            log.exception("tool_crashed", tool=work.tool.name, call_id=prepared.call.id)
            raise ToolFailure(
                f"{work.tool.name} failed by a defect of its own: {type(error).__name__}: {error}"
            ) from error

    async def _check_of_changes(self, work: _Work) -> FileCheck | None:
        """The check of the files that a tool will change by itself; a command may change any."""
        if work.tool.effect != "write":
            return None
        root, files = to_be_written(work.requirements, Path(self.context.workspace))
        return await self.diagnostics.before_change(root, files) if files else None

    def _requirements(self, tool: Tool, arguments: Any, workspace: Path) -> tuple[Requirement, ...]:  # noqa: ANN401
        requirements = tool.requirements(arguments, workspace)
        requirements = (*requirements, *further_requirements(requirements, workspace))
        if not _commands(requirements):
            return requirements
        most = self.enclosing.most_unasked
        if self.enclosing.asks:
            requirements = (
                *requirements,
                *requirements_without_sandbox(requirements, reads_are_held=most is not None),
            )
        if most and _is_lasting(tool, arguments):
            most = Enclosure.READ_ONLY  # A build's repositories are looked for when it has ended.
        return tuple(
            structs.replace(need, most_unasked=most) if need.kind == "command" else need
            for need in requirements
        )

    async def _enclosed(self, prepared: PreparedCall, enclosure: Enclosure | None) -> Enclosed:
        """The enclosure of a call: none for the user's own command, nor for other tools."""
        work: _Work = prepared.work
        if not _commands(work.requirements) or prepared.call.by_user:
            return Enclosed(None)
        if enclosure is None:
            enclosure = self.enclosing.enclosure_of(work.requirements)
            if self.context.permissions.read_only:
                enclosure = Enclosure.READ_ONLY
        lasting = _is_lasting(work.tool, work.arguments)
        return await self.enclosing.enclose(enclosure, work.requirements, lasting=lasting)

    def _unknown_agent(self, tool: Tool, requirements: tuple[Requirement, ...]) -> str:
        if tool.effect != "agent":
            return ""
        agents = {agent.name for agent in self.context.sub_agents}
        unknown = [s for need in requirements for s in need.subjects if s not in {*agents, RESUMED}]
        if not unknown:
            return ""
        near = did_you_mean(unknown[0], agents)
        return f"There is no agent {unknown[0]!r}.{near} Agents: {', '.join(sorted(agents))}."

    def _effect(self, tool: Tool, requirements: tuple[Requirement, ...]) -> Effect:
        match tool.effect:
            case "read" | "write":
                return tool.effect
            case "command":
                commands = _commands(requirements)
                held = self.enclosing.most_unasked is not None
                reads = bool(commands) and held and all(map(seems_to_read, commands))
            case "agent":
                only_look = {a.name for a in self.context.sub_agents if a.read_only}
                agents = {s for need in requirements for s in need.subjects}
                reads = self.context.permissions.read_only or agents <= only_look
        return "read" if reads else "write"

    def _without_secrets(self, text: str) -> str:
        """Take keys out: a file may hold one, and root can read the daemon's environment (G13)."""
        for secret in self.secrets():
            text = text.replace(secret, SECRET_PLACEHOLDER)
        return text

    async def _show_plan(self, plan: tuple[PlanEntry, ...]) -> None:
        await self.emit(PlanUpdated(plan))


async def _run_tool(work: _Work, environment: ToolEnvironment) -> ToolResult:
    with trio.fail_after(work.tool.timeout_s):
        return await work.tool.run(work.arguments, environment)


def _commands(requirements: tuple[Requirement, ...]) -> list[str]:
    return [text for need in requirements if need.kind == "command" for text in need.subjects]


def _is_lasting(tool: Tool, arguments: Any) -> bool:  # noqa: ANN401
    """Whether a call leaves a command behind in the background."""
    return tool.effect == "command" and not tool.repeatable(arguments)


def _title(tool: Tool, requirements: tuple[Requirement, ...]) -> str:
    if tool.effect == "agent":
        return one_line(requirements[0].title)
    return one_line(
        next(
            (" ".join(need.subjects) or need.title for need in requirements),
            "",
        )
    )
