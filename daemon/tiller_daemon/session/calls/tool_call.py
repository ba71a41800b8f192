"""Takes one tool call from prepared arguments through permission and execution to its result."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio
from msgspec import structs

from tiller_daemon.files.paths import Location
from tiller_daemon.policy.rules import Verdict
from tiller_daemon.policy.shell.levels import NETWORK, UNSANDBOXED
from tiller_daemon.sandbox.base import CommandSandbox
from tiller_daemon.sandbox.level import SandboxLevel
from tiller_daemon.sandbox.quarantine import QUARANTINED
from tiller_daemon.session.calls.arguments import BadArguments
from tiller_daemon.session.calls.command_paths import command_lines
from tiller_daemon.session.calls.escalation import RAN_AGAIN, RAN_OUTSIDE
from tiller_daemon.session.calls.permission import one_line
from tiller_daemon.session.calls.turn_tools import TurnTools, runs_in_background
from tiller_daemon.tools.base import (
    FileCheck,
    Requirement,
    Tool,
    ToolEnvironment,
    ToolFailure,
    ToolResult,
)
from tiller_daemon.tools.nested_instructions import new_instructions
from tiller_daemon.tools.path_access import to_be_written, tool_failures
from tiller_daemon.tools.write_scope import WriteScope
from tiller_daemon.turn.ports import Output, Refusal
from tiller_protocol.events import WarningRaised
from tiller_protocol.items import Allowed, Effect, ToolCall

log = structlog.get_logger()

READ_ONLY = (
    "denied: the agent {agent} is read-only. It can run commands that only read. Leave out "
    "the parts that write, or end with a description of what should be changed."
)

UNSAVED = (
    "{path} was left as it is: it has changes in the user's editor that are not saved. Ask the "
    "user to save it, then read it again and repeat the change."
)

SHOWN_MAX = 3
"""After how many hidden paths, each of them shown, a command is not run once more."""

REWRITTEN = "One of the user's hooks had changed this call's arguments to {arguments}"


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

    @property
    def scope(self) -> WriteScope | None:
        """The scope that a task declares; None for all other calls."""
        return next((one.scope for one in self._requirements if one.scope), None)

    def permit_early(self) -> bool:
        """Permit the call if it only reads, may be repeated, and needs no approval."""
        # If the response is retried, the call runs again, which a hook would notice.
        if self._turn.hooks.observes(self._tool.name):
            return False
        if self.effect != "read" or not self._tool.repeatable(self._arguments):
            return False
        allowed = self._turn.permission.unasked(self._requirements)
        self._note(*(allowed or ()))
        return allowed is not None

    @property
    def was_stopped(self) -> bool:
        """Whether the call seemed only to read, and its sandbox stopped it when it wrote."""
        return self._stopped is not None

    async def permit(self) -> Refusal | None:
        """Ask the policy, then the hooks, then the user if the policy requires it.

        Arguments that a hook has changed are judged like the model's own.
        """
        if self.call.by_user:
            # The sub-agent's own calls are judged like all other calls.
            return None
        refusal = await self._check()
        observed = self._turn.hooks.observes(self._tool.name)
        if observed and refusal is None and self._verdict().action != "deny":
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
        """Use the arguments from a hook; return a refusal if the tool does not accept them."""
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
        """Return a refusal if the agent may not make the call, or if it would fail once allowed."""
        turn = self._turn
        if turn.context.permissions.read_only and self.effect != "read":
            return Refusal("denied", READ_ONLY.format(agent=turn.context.agent))
        if self.effect != "read" and (beyond := turn.beyond_limits(self._tool, self._requirements)):
            return Refusal("denied", beyond)
        if (check := self._tool.check) and self._verdict().action == "ask":
            # The user need not be asked about a call that would fail anyway.
            files = turn.environments.files.versions
            try:
                await self._require_saved()
                with tool_failures():
                    await trio.to_thread.run_sync(check, self._arguments, turn.workspace, files)
            except ToolFailure as failure:
                return Refusal("failed", self._without_secrets(str(failure)))
        return None

    @property
    def _written(self) -> list[Location]:
        """The files in the workspace that the tool itself will write."""
        if self._tool.effect != "write":
            # It is not known beforehand which files a command will change.
            return []
        return to_be_written(self._requirements, self._turn.workspace.resolve())

    async def _require_saved(self) -> None:
        """Raise `ToolFailure` if an editor has unsaved changes to a file to be written."""
        for location in self._written:
            if await self._turn.environments.files.editors.unsaved(location) is not None:
                raise ToolFailure(UNSAVED.format(path=location.text))

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
        """Ask whether a stopped call may do what it tried; if so, run it again."""
        first, self._stopped = self._stopped, None
        assert first is not None
        outcome = await self._turn.escalation.permit_writing(self.call, self._command, first)
        if isinstance(outcome, ToolResult):
            return outcome
        self._note(outcome.allowed)
        await begin()
        result = await self._run(output, outcome.level, outcome.seen)
        note = RAN_OUTSIDE if outcome.level is SandboxLevel.OUTSIDE else RAN_AGAIN
        return structs.replace(result, output=f"{note}\n{result.output}")

    async def _run(
        self, output: Output, level: SandboxLevel | None = None, seen: Sequence[Path] = ()
    ) -> ToolResult:
        """Run the tool; append new instructions and new file errors."""
        turn, tool = self._turn, self._tool
        sandbox = await self._make_sandbox(level, seen)
        environment = turn.environments.make(self.call, self._requirements, sandbox, output)
        try:
            await self._require_saved()
            check = await self._check_of_changes()
            result = await self._run_tool(environment)
            for location in self._written:
                await environment.files.editors.written(location)
            added = new_instructions(self._requirements, environment)
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
        # A bug in one tool must not end the turn.
        except Exception as error:
            log.exception("tool_crashed", tool=tool.name, call_id=self.call.id)
            raise ToolFailure(
                f"{tool.name} failed because of a bug in it: {type(error).__name__}: {error}"
            ) from error

    async def _run_tool(self, environment: ToolEnvironment) -> ToolResult:
        """Run the tool. If its sandbox stops it and the user agrees, repeat it in a looser one.

        The user is not asked here about a call that only reads, because other calls run
        concurrently; see `run_again`.
        """
        result = await self._attempt(environment)
        sandbox = environment.commands.sandbox
        if sandbox is None or not result.stopped_by or not command_lines(self._requirements):
            return result
        if sandbox.level is SandboxLevel.READ_ONLY:
            self._stopped = result
            return result
        return await self._repeated(environment, sandbox.level, result)

    async def _repeated(
        self, environment: ToolEnvironment, tried: SandboxLevel, result: ToolResult
    ) -> ToolResult:
        """Repeat a stopped call as the user allows. It may then be stopped by something else."""
        seen: tuple[Path, ...] = ()
        while result.stopped_by and len(seen) < SHOWN_MAX:
            offered = await self._turn.escalation.offer(self.call, self._command, tried, result)
            if isinstance(offered, ToolResult):
                return offered
            self._note(offered.allowed)
            seen += offered.seen
            tried = offered.level
            is_outside = tried is SandboxLevel.OUTSIDE
            note = RAN_OUTSIDE if is_outside else RAN_AGAIN
            looser = None if is_outside else await self._make_sandbox(tried, seen)
            commands = structs.replace(environment.commands, sandbox=looser)
            result = await self._attempt(structs.replace(environment, commands=commands))
            result = structs.replace(result, output=f"{note}\n{result.output}")
            if is_outside:
                break
        return result

    async def _attempt(self, environment: ToolEnvironment) -> ToolResult:
        try:
            with tool_failures(), trio.fail_after(self._tool.timeout_s):
                return await self._tool.run(self._arguments, environment)
        finally:
            sandbox = environment.commands.sandbox
            with trio.CancelScope(shield=True):
                for text in sandbox.notices if sandbox else ():
                    await self._turn.environments.emit(WarningRaised(QUARANTINED, text))

    async def _make_sandbox(
        self, level: SandboxLevel | None, seen: Sequence[Path] = ()
    ) -> CommandSandbox | None:
        """Make the sandbox; none for the user's own commands, or for tools without commands."""
        turn = self._turn
        if not command_lines(self._requirements):
            return None
        if self.call.in_sandbox:
            session = SandboxLevel.SESSION
            return await turn.sandboxes.make(session, self._requirements, network=True)
        if self.call.by_user:
            return None
        if level is None:
            level = turn.sandboxes.level_of(self._requirements)
            # Rules may allow a command a looser sandbox, but not for a read-only agent.
            if turn.context.permissions.read_only:
                level = SandboxLevel.READ_ONLY
        background = runs_in_background(self._tool, self._arguments)
        network = any(allowed.permission == NETWORK for allowed in self.call.allowed)
        return await turn.sandboxes.make(
            level, self._requirements, network=network, background=background, seen=seen
        )

    async def _check_of_changes(self) -> FileCheck | None:
        """Note the errors in files before the tool changes them."""
        files = [location.path for location in self._written]
        if not files:
            return None
        diagnostics = self._turn.environments.files.diagnostics
        return await diagnostics.before_change(self._turn.workspace.resolve(), files)

    def _is_as_judged(self) -> bool:
        """Whether the call still needs the same permissions as when the user was asked."""
        return self._turn.requirements_of(self._tool, self._arguments) == self._requirements

    @property
    def _command(self) -> Requirement:
        """The requirement to run the command line of a call."""
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
    """Return the result of `more`; if interrupted, send the result so far as live output.

    The tool has done its work, so the model must learn of it although the call counts as aborted.
    """
    try:
        return await more()
    except BaseException:
        await output(result.output)
        raise


def _title(tool: Tool, requirements: tuple[Requirement, ...]) -> str:
    if tool.effect == "agent":
        return one_line(requirements[0].title)
    titles = (" ".join(requirement.subjects) or requirement.title for requirement in requirements)
    return one_line(next(titles, ""))
