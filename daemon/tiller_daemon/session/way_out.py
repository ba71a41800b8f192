"""The way out of the sandbox: a command that was held back runs again outside, if the user says so.

The model has no say in it: no argument of a call asks for this. The user is asked when a command
has failed in the sandbox by what looks like the sandbox's doing.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs

from tiller_daemon.policy.shell_commands import only_reads
from tiller_daemon.session.command_reach import need_unsandboxed
from tiller_daemon.session.permission import Permission, one_line
from tiller_daemon.tools.base import ToolEnvironment, ToolResult
from tiller_protocol.items import ToolCall

RAN_OUTSIDE = "[It failed in the sandbox. The user let it run again without. What it said then:]"
DECLINED = "[The user was asked to let it run without the sandbox, and did not.{said}]"

RunTool = Callable[[ToolEnvironment], Awaitable[ToolResult]]


class WayOut:
    """Of one turn: when the user has said no once, they are not asked again in it."""

    def __init__(self, permission: Permission) -> None:
        self._permission = permission
        self._declined = False

    async def run(
        self, call: ToolCall, commands: Sequence[str], environment: ToolEnvironment, run: RunTool
    ) -> ToolResult:
        """Run a call; again, outside of its sandbox, when that held it back and the user agrees.

        `commands` are the command lines that it runs, at most one.
        """
        result = await run(environment)
        if not self._is_offered(commands, environment, result):
            return result
        (command,) = commands
        title = one_line(f"The sandbox held it back. Run again without: {command}")
        reply = await self._permission.offer(call, need_unsandboxed(command, title))
        if reply is None:
            return result
        if reply.resolution in ("once", "always"):
            result = await run(dataclasses.replace(environment, confined=None))
            return structs.replace(result, output=f"{RAN_OUTSIDE}\n{result.output}")
        self._declined = True
        said = f" They said: {reply.text}" if reply.text else ""
        return structs.replace(result, output=f"{result.output}\n{DECLINED.format(said=said)}")

    def _is_offered(
        self, commands: Sequence[str], environment: ToolEnvironment, result: ToolResult
    ) -> bool:
        confined = environment.confined
        if self._declined or confined is None or not result.held_back:
            return False
        acts = not all(only_reads(command) for command in commands)
        return acts and confined.mode == "workspace_write"
