"""Escalation: a command that its enclosure stopped runs again in a looser one, if the user says so.

The model has no say in it: no argument of a call asks for this. One that only seemed to read and
wanted to write is offered the session's enclosure, any other one the outside.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs

from tiller_daemon.policy.rules import BUILT_IN
from tiller_daemon.policy.shell.enclosures import UNSANDBOXED, judge_line
from tiller_daemon.sandbox.enclosure import Enclosure
from tiller_daemon.session.calls.command_paths import unsandboxed_requirement
from tiller_daemon.session.calls.enclosing import Enclosing
from tiller_daemon.session.calls.permission import Permission, one_line
from tiller_daemon.tools.base import Requirement, ToolEnvironment, ToolResult
from tiller_protocol.items import ToolCall

RAN_OUTSIDE = "[It failed in the sandbox. The user let it run again without. What it printed then:]"
RAN_AGAIN = "[Its sandbox stopped it. The user let it do more. What it printed then:]"
DECLINED = "[The user was asked to let it {what}, and did not.{said}]"

RunTool = Callable[[ToolEnvironment], Awaitable[ToolResult]]


class Escalation:
    """Of one turn: when the user has declined once, they are not asked again in it."""

    def __init__(self, permission: Permission, enclosing: Enclosing) -> None:
        self._permission = permission
        self._enclosing = enclosing
        self._declined = False
        self._stopped: dict[str, ToolResult] = {}

    async def run(
        self, call: ToolCall, commands: Sequence[str], environment: ToolEnvironment, run: RunTool
    ) -> ToolResult:
        """Run a call; again, outside, when its enclosure stopped it and the user agrees.

        `commands` is the command line that it runs, if any, as often as it needs a permission. One
        that only reads is not asked about here, as others run beside it: see `was_stopped`.
        """
        result = await run(environment)
        confined = environment.confined
        if confined is None or not result.stopped_by or not commands:
            return result
        if confined.enclosure is Enclosure.READ_ONLY:
            self._stopped[call.id] = result
            return result
        if self._declined:
            return result
        command = commands[0]
        if confined.enclosure is Enclosure.BUILD and self._enclosing.session_may_more(result):
            return await self._run_in_session(call, command, environment, run, result)
        title = one_line(
            f"The sandbox stopped it: {result.stopped_by}. Run again outside: {command}"
        )
        reply = await self._permission.offer(call, unsandboxed_requirement(command, title))
        if reply is None:
            return result
        if reply.resolution in ("once", "always"):
            result = await run(dataclasses.replace(environment, confined=None))
            return structs.replace(result, output=f"{RAN_OUTSIDE}\n{result.output}")
        return self._decline(result, "run outside of the sandbox", reply.text)

    async def _run_in_session(
        self,
        call: ToolCall,
        command: str,
        environment: ToolEnvironment,
        run: RunTool,
        result: ToolResult,
    ) -> ToolResult:
        """A build that wanted what only the session's own enclosure has."""
        title = one_line(f"It wanted more than a build ({result.stopped_by}). Let it: {command}")
        need = structs.replace(_requirement_of(environment.requirements), title=title)
        reply = await self._permission.offer(call, need)
        if reply is None:
            return result
        if reply.resolution not in ("once", "always"):
            return self._decline(result, "do more than build", reply.text)
        enclosed = await self._enclosing.enclose(Enclosure.SESSION, environment.requirements)
        result = await run(dataclasses.replace(environment, confined=enclosed.confined))
        return structs.replace(result, output=f"{RAN_AGAIN}\n{result.output}")

    def was_stopped(self, call: ToolCall) -> bool:
        """Whether a call ran where nothing can be written, and was stopped there."""
        return call.id in self._stopped

    def forget(self, call: ToolCall) -> None:
        """Leave a stopped call at that."""
        self._stopped.pop(call.id, None)

    async def permit_writing(
        self, call: ToolCall, requirements: Sequence[Requirement]
    ) -> ToolResult | None:
        """Ask whether a stopped call may run where it can write; its result as it is, if not."""
        result = self._stopped.pop(call.id)
        need = next(
            need
            for need in requirements
            if need.kind == "command" and need.permission != UNSANDBOXED
        )
        (command,) = need.subjects
        rules = (*BUILT_IN, *self._enclosing.rules())
        # Asked where nothing runs unasked, the policy says what rules allow by themselves.
        verdict = judge_line(command, need.permission, rules, None)
        mode = self._enclosing.context.permissions.sandbox.mode
        if mode == "read_only" or verdict.action == "deny" or self._enclosing.is_read_only_agent:
            return result
        if verdict.action == "allow" or self._permission.approve == "always":
            return None
        if self._permission.approve == "never" or self._declined:
            return result
        title = one_line(f"It wanted to write ({result.stopped_by}). Let it: {command}")
        reply = await self._permission.ask_about(call, structs.replace(need, title=title))
        if reply.resolution in ("once", "always"):
            return None
        return self._decline(result, "write", reply.text)

    def _decline(self, result: ToolResult, what: str, text: str) -> ToolResult:
        self._declined = True
        said = f" They said: {text}" if text else ""
        return structs.replace(
            result, output=f"{result.output}\n{DECLINED.format(what=what, said=said)}"
        )


def _requirement_of(requirements: Sequence[Requirement]) -> Requirement:
    """What a call needs to run its command."""
    return next(n for n in requirements if n.kind == "command" and n.permission != UNSANDBOXED)
